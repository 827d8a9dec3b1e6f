"""Inverted tests against profiles worked out with scipy, their coverage, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import nnls as scipy_nnls

from blue_solvers import blue
from blue_solvers.nonnegative import inverted_intervals
from constraint_builders import Problem, Schema
from noise_mechanisms import draw_noise
from tests.helpers.every import every

SCHEMA = Schema({"a": 2, "b": 3})
PROBLEM = Problem(SCHEMA, {"total": 4.0, "a": 4.0, "detailed": 4.0}, desired="all")
M = np.vstack([np.ones(6), np.kron(np.eye(2), np.ones(3)), np.eye(6)])
Y = np.array([9.0, 7.0, 1.0, 6.0, 1.5, -3.0, -1.0, 2.0, 0.5])


def least(y: np.ndarray, row: np.ndarray | None = None, value: float = 0.0) -> float:
    """Least sum of squared deviations over non-negative cells; a sum is held by a heavy weight."""
    heavy = 1e5
    A, b = M / 2, y / 2
    if row is not None:
        A, b = np.vstack([A, heavy * row]), np.append(b, heavy * value)
    x, _ = scipy_nnls(A, b)
    return float(np.square((y - M @ x) / 2).sum())


def functional(place: int) -> np.ndarray:
    """A desired cell as a sum of the six cells, by its table and place."""
    for name in PROBLEM.desired.names:
        start = PROBLEM.desired.slice(name).start
        if start <= place < PROBLEM.desired.slice(name).stop:
            inside = place - start
            whole = {"total": np.ones((1, 6)), "a": M[1:3], "detailed": np.eye(6)}
            return whole.get(str(name), np.tile(np.eye(3), 2))[inside]
    raise AssertionError


@pytest.mark.few(0)
@every("place", range(12))
def test_ends_have_the_statistic_of_their_critical_values(place: int) -> None:
    found = inverted_intervals(PROBLEM, Y, [place], 0.9, draws=19, rng=1)
    row, free = functional(place), least(Y)
    P = blue(PROBLEM)
    centre, error = (P @ Y)[place], np.sqrt(P.variances()[place])
    multiple = stats.norm.isf(0.025)
    assert (found.critical >= multiple**2 - 1e-9).all()
    for end, critical, sign in ((found.lower[0], found.critical[0, 0], -1), (found.upper[0], found.critical[1, 0], 1)):
        at_blue = abs(end - (centre + sign * multiple * error)) < 1e-6 * error + 1e-9
        statistic = least(Y, row, end) - free
        if at_blue or end < 1e-9:
            assert statistic <= critical + 1e-3
        else:
            assert statistic == pytest.approx(critical, rel=0.01, abs=0.01)
    assert found.lower[0] <= found.estimate[0] <= found.upper[0]
    assert found.lower[0] >= 0
    assert found.estimate[0] == pytest.approx(np.clip(centre, found.lower[0], found.upper[0]))


def test_far_from_zero_it_is_the_interval_around_the_blue() -> None:
    y = 1000 + Y
    y[0] += 5000
    y[1:3] += 2000
    found = inverted_intervals(PROBLEM, y, [0, 1, 8], 0.9, draws=20, rng=2)
    P = blue(PROBLEM)
    multiple = stats.norm.isf(0.025)
    np.testing.assert_allclose(found.estimate, (P @ y)[[0, 1, 8]], rtol=1e-9)
    np.testing.assert_allclose(found.upper - found.lower, 2 * multiple * np.sqrt(P.variances()[[0, 1, 8]]), rtol=2e-3)


@pytest.mark.few(0)
@pytest.mark.parametrize("runs", [12, pytest.param(80, marks=pytest.mark.slow)])
def test_coverage_is_the_level_or_more_and_empty_cells_are_known_better(runs: int) -> None:
    truth = M @ np.array([30.0, 0, 0, 0, 0, 0])
    rng = np.random.default_rng(3)
    places = [0, *range(PROBLEM.desired.slice("detailed").start, PROBLEM.desired.slice("detailed").start + 3)]
    true = np.array([functional(place) @ [30.0, 0, 0, 0, 0, 0] for place in places])
    held, widths, bias = np.zeros(4), np.zeros(4), np.zeros(4)
    for _ in range(runs):
        y = truth + draw_noise(PROBLEM, 1, rng)[:, 0]
        found = inverted_intervals(PROBLEM, y, places, 0.9, draws=20, rng=rng)
        held += (found.lower <= true + 1e-6) & (true <= found.upper + 1e-6)
        widths += (found.upper - found.lower) / runs
        bias += (found.estimate - true) / runs
    assert (held >= stats.binom.isf(1 - 1e-4, runs, 0.9)).all()
    plain = 2 * stats.norm.isf(0.05) * np.sqrt(blue(PROBLEM).variances()[places])
    assert (widths[2:] < 0.75 * plain[2:]).all()
    assert (widths[:2] < 1.25 * plain[:2]).all()
    assert (abs(bias[:2]) < 5 * np.sqrt(4.0 / runs)).all()


def test_what_is_known_exactly_bounds_the_ends() -> None:
    problem = Problem(SCHEMA, {"total": 0.0, "a": 4.0, "detailed": 4.0}, desired="all")
    y = Y.copy()
    y[0] = 4.0
    found = inverted_intervals(problem, y, [0, 1, 5, 7], draws=5, rng=4)
    assert (found.lower[0], found.upper[0]) == pytest.approx((4.0, 4.0))
    assert (found.upper <= 4.0 + 1e-9).all()
    spent = Problem(SCHEMA, {"total": 0.0, "detailed": 4.0}, desired="all")
    nothing = inverted_intervals(spent, np.array([0.0, *Y[3:]]), [0, 1, 5, 7], draws=5, rng=4)
    assert (nothing.upper <= 1e-9).all()


def test_the_same_seed_gives_the_same_intervals() -> None:
    first, second = (inverted_intervals(PROBLEM, Y, [0, 7], draws=12, rng=5) for _ in range(2))
    assert np.array_equal(first.lower, second.lower)
    assert np.array_equal(first.upper, second.upper)


def test_misfits_are_refused() -> None:
    with pytest.raises(ValueError, match="cell 12 is not in the layout: positions run from 0 to 11"):
        inverted_intervals(PROBLEM, Y, [12])
    with pytest.raises(ValueError, match="y must be one vector of 9"):
        inverted_intervals(PROBLEM, np.stack([Y, Y], axis=1), [0])
    with pytest.raises(ValueError, match="draws"):
        inverted_intervals(PROBLEM, Y, [0], draws=0)
    correlated = Problem(SCHEMA, {"detailed": None}, covariance=np.eye(6) + 0.5)
    with pytest.raises(ValueError, match="needs uncorrelated noise"):
        inverted_intervals(correlated, np.ones(6), [0])

"""Inverted tests against profiles worked out with scipy, their coverage, and what they refuse."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import lsq_linear
from scipy.optimize import nnls as scipy_nnls

from blue_solvers import blue
from blue_solvers.least_squares import least_squares
from blue_solvers.nonnegative import inverted_intervals
from constraint_builders import Problem, Schema
from noise_mechanisms import draw_noise
from tests.helpers.every import every
from tests.helpers.refused import refuses

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


ROWS = np.array([[1.0, 0, 0], [-1, 1, 0], [0, -1, 1], [0, 0, -1], [1, 1, 1]])


def within(y: np.ndarray, lower: float, upper: float, leaf: int | None = None, value: float = 0.0) -> float:
    """Least sum of squared deviations over leaves between bounds, one of them perhaps known."""
    free = np.arange(3) != leaf
    rest = y - (0 if leaf is None else value * ROWS[:, leaf])
    return float(2 * lsq_linear(ROWS[:, free], rest, (lower, upper), tol=1e-14).cost)


def test_leaves_within_bounds_have_the_statistic_of_their_critical_values() -> None:
    y = [0.2, 1.6, -0.9, -0.1, 1.4]
    found = least_squares(ROWS, y, 1.0)
    tested = inverted_intervals(found, y, [0, 1, 2], 0.9, draws=3, rng=1, bounds=(0.0, 1.5))
    plain = found.interval(0.95)
    for leaf in range(3):
        for end, critical, blue_end in zip(
            (tested.lower[leaf], tested.upper[leaf]),
            tested.critical[:, leaf],
            (plain[0][leaf], plain[1][leaf]),
            strict=True,
        ):
            assert 0 <= end <= 1.5
            statistic = within(np.array(y), 0, 1.5, leaf, end) - within(np.array(y), 0, 1.5)
            inside = min(abs(end - 0), abs(end - 1.5), abs(end - blue_end)) > 1e-6
            assert statistic == pytest.approx(critical, abs=0.01) if inside else statistic <= critical + 1e-3
    free = inverted_intervals(found, y, [0, 1, 2], 0.9, draws=1, rng=1, bounds=(-99.0, {"leaves": np.full(3, 99.0)}))
    np.testing.assert_allclose([free.lower, free.upper], plain, atol=3e-3)
    rows = inverted_intervals(found, y, [1], 0.9, draws=1, rng=1, bounds={"rows": (-np.inf, [2, 2, 2, 2, 0.5])})
    assert rows.upper[0] < tested.upper[1] + 2
    with pytest.raises(ValueError, match="bounds of 'leaves' and 'rows' may be given: got 'nodes'"):
        inverted_intervals(found, y, [0], bounds={"nodes": (0, 1)})


def test_cells_within_bounds_of_any_sign() -> None:
    """Of tables and of equations."""
    y = PROBLEM.vector({"total": 0.0, "a": [-2.0, 2.5], "detailed": [[1.0, -3.0, -1.0], [2.0, 0.5, 0.0]]})
    bounds = (-1.0, {"total": 3.0, "a": [2.0, 2.0], "detailed": np.ones((2, 3))})
    found = inverted_intervals(PROBLEM, y, [7], 0.9, draws=1, rng=1, bounds=bounds)
    assert -1 <= found.lower[0] < found.upper[0] <= 1
    balance = Problem.from_matrix([[1.0, -1, -1]], np.ones(3))
    told = inverted_intervals(balance, [3.0, 1.0, -0.5], [0, 2], 0.9, draws=1, rng=1, bounds=([0, 0, 0], [2.0, 9, 9]))
    assert told.upper[0] == 2.0
    assert told.lower[1] == 0.0


@pytest.mark.parametrize("runs", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_leaves_at_bounds_are_held(runs: int) -> None:
    truth, rng = np.array([0.0, 1.5, 0.6]), np.random.default_rng(3)
    leaves = np.arange(2 if runs < 10 else 3)
    held, lengths = np.zeros(leaves.size), np.zeros((2, leaves.size))
    for _ in range(runs):
        y = ROWS @ truth + 0.5 * rng.standard_normal(5)
        found = least_squares(ROWS, y, 0.25)
        draws = 3 if runs < 10 else 20
        tested = inverted_intervals(found, y, leaves, 0.9, draws=draws, rng=rng, bounds=(0.0, 1.5))
        held += (tested.lower <= truth[leaves] + 1e-6) & (truth[leaves] <= tested.upper + 1e-6)
        lengths += [tested.upper - tested.lower, np.subtract(*found.interval(0.9)[::-1])[leaves]]
    assert (held >= np.maximum(1, stats.binom.isf(1 - 1e-4, runs, 0.9))).all()
    assert (lengths[0, :2] < 0.8 * lengths[1, :2]).all()


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
    first, second = (inverted_intervals(PROBLEM, Y, [0, 7], draws=5, rng=5) for _ in range(2))
    assert np.array_equal(first.lower, second.lower)
    assert np.array_equal(first.upper, second.upper)


def test_misfits_are_refused() -> None:
    refuses("cell 12 is not in the layout: positions run from 0 to 11", inverted_intervals, PROBLEM, Y, [12])
    refuses("y must be one vector of 9", inverted_intervals, PROBLEM, np.stack([Y, Y], axis=1), [0])
    refuses("draws", inverted_intervals, PROBLEM, Y, [0], draws=0)
    correlated = Problem(SCHEMA, {"detailed": None}, covariance=np.eye(6) + 0.5)
    refuses("needs uncorrelated noise", inverted_intervals, correlated, np.ones(6), [0])

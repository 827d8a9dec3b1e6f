"""Iterations on the estimate and on its multipliers: their proofs, which is taken, and what either gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import BlueOperator, ConjugateGradient, blue
from blue_solvers.structured import iteration
from blue_solvers.structured.scaled_precision import ScaledPrecision
from blue_solvers.structured.ways import gaps_in, multipliers_are_sooner, on_estimate, on_multipliers, sizes_in
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.arrays import Float
from tests.helpers.effort import examples
from tests.helpers.exact_reference import exact_blue

SOLVER = ConjugateGradient(preconditioner="two_pass")
SMALL = Schema({"a": 3, "b": 2, "c": 2})
TABLES = ["total", "a", "b", "a * b", "detailed"]


def drawn(problem: Problem, ratio: float, law: str) -> Problem:
    """The same tables with variances between 1 and `ratio`, each its own."""
    share = np.random.default_rng(5).random(problem.observed.size)
    return problem.with_variances(1 + (ratio - 1) * share if law == "uniform" else ratio**share)


@contextmanager
def forced(multipliers: bool | None) -> Iterator[None]:
    """Solvers that are prepared meanwhile go one way, or the one they choose."""
    with pytest.MonkeyPatch.context() as patch:
        if multipliers is not None:
            patch.setattr(iteration, "multipliers_are_sooner", lambda *_: multipliers)
        yield


def by(problem: Problem, multipliers: bool | None, solver: ConjugateGradient = SOLVER) -> BlueOperator:
    with forced(multipliers):
        return blue(problem, solver)


def noise(problem: Problem, columns: int = 2) -> Float:
    return np.sqrt(problem.variances)[:, None] * np.random.default_rng(6).standard_normal(
        (problem.observed.size, columns)
    )


def random_parts(seed: int) -> tuple[Float, Float, ScaledPrecision, Float]:
    """An orthogonal projection, precisions over eight decades, and what they are as the iterations know them."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((9, int(rng.integers(1, 9)))))[0]
    d = 10.0 ** rng.uniform(-4, 4, 9)
    D = d[:, None]
    precision = ScaledPrecision(lambda Z: D * Z, lambda Z: Z / D, float(d.min()), True, float(np.ptp(d)), "")
    return basis @ basis.T, d, precision, rng.standard_normal((9, 3))


@examples(60)
@given(seed=st.integers(0, 10_000))
def test_both_proofs_bound_the_error_of_whatever_they_are_given(seed: int) -> None:
    Q, d, precision, given_ = random_parts(seed)
    rng = np.random.default_rng(seed + 1)
    R, Z = Q @ given_, Q @ rng.standard_normal((9, 3))
    W = (np.eye(9) - Q) @ rng.standard_normal((9, 3))
    values, vectors = np.linalg.eigh(Q)
    basis = vectors[:, values > 0.5]
    best = basis @ np.linalg.solve(basis.T @ (d[:, None] * basis), basis.T @ R)
    errors = np.sqrt((d[:, None] * (Z - best) ** 2).sum(axis=0))
    unit = np.sqrt(precision.least)
    left = R - Q @ (d[:, None] * Z)
    assert (errors <= sizes_in(precision, left, True) / unit * (1 + 1e-6) + 1e-9).all()
    assert (errors <= gaps_in(precision, Z, W, R) / unit * (1 + 1e-6) + 1e-9).all()
    assert (sizes_in(precision, left, True) <= np.linalg.norm(left, axis=0) * (1 + 1e-12)).all()
    np.testing.assert_array_equal(sizes_in(precision, left, False), np.linalg.norm(left, axis=0))


def test_the_proof_by_multipliers_is_sharp_at_the_best_of_both() -> None:
    Q, d, precision, given_ = random_parts(3)
    values, vectors = np.linalg.eigh(Q)
    basis = vectors[:, values > 0.5]
    R = Q @ given_
    best = basis @ np.linalg.solve(basis.T @ (d[:, None] * basis), basis.T @ R)
    gaps = gaps_in(precision, best, R - d[:, None] * best, R)
    assert gaps.max() < 1e-9 * np.linalg.norm(R, axis=0).max()


WAYS = [(ratio, way) for ratio in (3.0, 1e2, 1e4, 1e8) for way in (False, True)] + [(1e12, None)]


@pytest.mark.parametrize("law", ["uniform", "log-uniform"])
@pytest.mark.parametrize(("ratio", "multipliers"), WAYS)
def test_either_way_is_within_its_bound_of_exact_rationals(ratio: float, law: str, multipliers: bool | None) -> None:
    problem = drawn(Problem(SMALL, dict.fromkeys(TABLES, 1.0)), ratio, law)
    P = by(problem, multipliers)
    deviations = np.sqrt(problem.variances)
    X, info = P.apply(np.diag(deviations))
    exact = exact_blue(SMALL, TABLES, problem.variances, TABLES)
    errors = np.sqrt(exact.variances)[:, None]
    rounding = 1e-14 * deviations.max()  # of sums of cells whose deviations differ by six decades
    assert info.error_bound is not None
    assert (abs(X - exact.operator * deviations) <= info.error_bound * errors + rounding).all()
    assert info.error_bound <= (2.1e-9 if ratio <= 1e4 else np.inf)
    np.testing.assert_allclose(P.variances(), exact.variances, rtol=1e-8)


@pytest.mark.parametrize(("ratio", "multipliers"), WAYS)
def test_variances_from_weights_of_half_the_digits(
    ratio: float, multipliers: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iteration, "MOST_CELLS", 0)
    problem = drawn(Problem(SMALL, dict.fromkeys(TABLES, 1.0)), ratio, "log-uniform")
    exact = exact_blue(SMALL, TABLES, problem.variances, TABLES)
    P = by(problem, multipliers)
    np.testing.assert_allclose(P.variances(), exact.variances, rtol=1e-9)
    loose = by(problem, multipliers, ConjugateGradient(rtol=1e-2, preconditioner="two_pass")).variances()
    assert (loose >= exact.variances * (1 - 1e-9)).all()  # weights that agree are never better than the best
    np.testing.assert_allclose(loose, exact.variances, rtol=1e-2)


@pytest.mark.parametrize(
    ("make", "law", "ratio", "most"),
    [
        (gallery.pl94, "uniform", 1e2, 24),
        (gallery.pl94, "uniform", 1e4, 33),
        (gallery.pl94, "log-uniform", 1e4, 270),
        (lambda: gallery.cube(5, 5), "uniform", 1e4, 35),
    ],
)
def test_multipliers_are_taken_where_they_are_sooner(make, law: str, ratio: float, most: int) -> None:
    problem = drawn(make(), ratio, law)
    y = noise(problem, 1)
    P = blue(problem, SOLVER)
    assert P.info.reason.endswith("on its multipliers")
    x, info = P.apply(y)
    other, slow = by(problem, multipliers=False).apply(y)
    assert info.iterations <= min(most, 0.85 * slow.iterations)
    assert abs(x - other).max() <= 4e-9 * np.sqrt(problem.variances.max())
    assert info.error_bound <= 2.1e-9
    dot_test(P)


def test_the_estimate_is_iterated_on_where_that_is_sooner() -> None:
    problem = drawn(gallery.cube(4, 4), 1e4, "log-uniform")
    P = blue(problem, SOLVER)
    assert not P.info.reason.endswith("on its multipliers")
    y = noise(problem, 1)
    assert P.apply(y)[1].iterations < by(problem, multipliers=True).apply(y)[1].iterations


def test_a_trial_tells_which_way_is_sooner() -> None:
    """Where Q keeps one direction there is one step to take, and where it leaves one, one multiplier."""
    rng = np.random.default_rng(2)
    d = 10.0 ** rng.uniform(-2, 2, 60)
    D = d[:, None]
    precision = ScaledPrecision(lambda Z: D * Z, lambda Z: Z / D, float(d.min()), True, 1e4, "")
    for kept, expected in ((1, False), (59, True)):
        basis = np.linalg.qr(rng.standard_normal((60, kept)))[0]

        def project(Z: Float, basis: Float = basis) -> Float:
            return basis @ (basis.T @ Z)

        ways = (
            on_estimate(project, lambda Z: D * Z, precision, True),
            on_multipliers(project, precision, lambda Z: Z / D),
        )
        R = project(rng.standard_normal((60, 1)))
        assert multipliers_are_sooner(*ways, R, 1e4) is expected
        assert not multipliers_are_sooner(*ways, R, 2.0)
        goal = 1e-10 * np.ones(1)
        for way in ways:
            found = way(R, goal, 500)
            assert found.converged
            np.testing.assert_allclose(project(D * found.Z), R, atol=1e-7)


def test_cells_that_were_not_measured_leave_no_multipliers() -> None:
    variances = np.ones(12)
    variances[3] = np.inf
    problem = Problem(SMALL, {"a": [1.0, 400.0, 7.0], "detailed": variances.reshape(3, 2, 2)}, ["a"])
    P = blue(problem, SOLVER)
    assert not P.info.reason.endswith("on its multipliers")
    expected = exact_blue(SMALL, ["a", "detailed"], problem.variances, ["a"])
    measured = np.isfinite(problem.variances)
    y = np.where(measured, np.random.default_rng(0).standard_normal(15), 0.0)
    np.testing.assert_allclose(P @ y, expected.operator[:, measured] @ y[measured], atol=1e-8)
    np.testing.assert_allclose(P.variances(), expected.variances, rtol=1e-8)


def sums_over(levels: list[int], shape: tuple[int, int]) -> Float:
    """Cells of the tables "a" and "detailed" at every geounit of three geolevels, from the detailed ones of the leaves.

    `levels` are the counties that the tracts lie in.
    """
    tracts, counties = len(levels), max(levels) + 1
    within = [np.ones((1, tracts)), np.eye(counties)[levels].T, np.eye(tracts)]
    tables = [np.kron(np.eye(shape[0]), np.ones((1, shape[1]))), np.eye(shape[0] * shape[1])]
    return np.vstack([np.kron(geounits, table) for geounits in within for table in tables])


@examples(20, 4)
@given(seed=st.integers(0, 10_000), law=st.sampled_from(["uniform", "log-uniform"]), multipliers=st.booleans())
def test_bounds_hold_beside_dense_on_spines_in_ratio_ten_thousand(seed: int, law: str, multipliers: bool) -> None:
    """Of every linear combination of cells: the largest error in its own standard errors is the length in noise."""
    rng = np.random.default_rng(seed)
    counties = int(rng.integers(1, 4))
    inside = sorted([*range(counties), *(int(k) for k in rng.integers(0, counties, int(rng.integers(0, 7))))])
    parent = [-1, *[0] * counties, *(1 + k for k in inside)]
    spine = Spine(parent, ["S", *["C"] * counties, *["T"] * len(inside)])
    tables = dict.fromkeys(["a", "detailed"], 1.0)
    problem = drawn(Problem(Schema({"a": 4, "b": 4}), dict.fromkeys("SCT", tables), spine=spine), 1e4, law)
    Y = noise(problem)
    X, info = by(problem, multipliers).apply(Y)
    M, unit = sums_over(inside, (4, 4)), np.sqrt(problem.variances)[:, None]
    best = M @ np.linalg.lstsq(M / unit, Y / unit, rcond=None)[0]
    assert info.error_bound is not None
    assert (np.linalg.norm((X - best) / unit, axis=0) <= info.error_bound + 1e-11).all()
    assert info.error_bound <= 2.1e-9

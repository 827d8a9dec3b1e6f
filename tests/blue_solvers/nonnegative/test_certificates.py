"""Fits over eight decades of variances, without a detailed table: optima in exact rationals, proofs that hold."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from blue_solvers.nonnegative import METHODS, NotConvergedError, anchored_fit, max_fit, nnls, ols, reweighted_fit
from blue_solvers.nonnegative.active_set import polish
from blue_solvers.nonnegative.bounded_sums import with_bounds_on
from blue_solvers.nonnegative.cell_bounds import Ranges, propagated, tightened
from blue_solvers.nonnegative.duality_gap import certify
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, Solution, csc
from blue_solvers.nonnegative.solving import feasible_cells, possible_sums, solve
from constraint_builders import Problem, Schema
from tests.blue_solvers.nonnegative.exact_quadratic_programs import LeastSquares
from tests.helpers.effort import examples, first_of, lengths
from tests.helpers.oracles.invent import Kind, Size, taken

PROVED = 1e-8  # of 1 and the objective: the gap that is allowed
SEEDS = 400
REFUSALS = ("holds tables, not equations", "holds whole tables", "one variance", "does not cover all")


PLAIN = Kind(spine=False, zeros=False, equalities=False, unmeasured=False, cellwise=True, decades=8.0, count=3.0)
ANY = Kind(cellwise=True, decades=8.0, count=3.0)


def invented(seeds: range, kind: Kind) -> Iterator[tuple[Problem, np.ndarray]]:
    """Problems of a kind and measurements of them."""
    for own, problem in taken(seeds, kind):
        yield problem, np.where(problem.unmeasured, np.nan, own.y)


def check(fit, reference: LeastSquares, optimum: float) -> None:
    """The fit is as good as it says, and it says that it is good."""
    objective = reference.objective(fit.detail.ravel())
    excess = objective - optimum
    rounding = 1e-11 * (1 + objective)
    assert fit.gap <= PROVED * (1 + objective)
    assert -rounding <= excess <= fit.gap + rounding
    assert fit.objective == pytest.approx(objective, rel=1e-9, abs=1e-9)
    exact = reference.v == 0
    assert abs(reference.M @ fit.detail.ravel() - reference.a)[exact].max(initial=0) <= fit.margin_residual + 1e-12
    assert fit.margin_residual <= 1e-9 * max(1.0, abs(reference.a).max())


@pytest.mark.few(1)
@pytest.mark.parametrize("start", first_of(range(0, SEEDS, 50), 4))
def test_small_fits_are_the_exact_optimum(start: int) -> None:
    solved = 0
    for problem, y in invented(range(2 * start, 2 * start + 100), replace(PLAIN, size=Size(levels=4, columns=6))):
        M = problem.marginal_matrix().toarray()
        for method, signed in ((nnls, False), (ols, True)):
            reference = LeastSquares(M, y, problem.variances, signed)
            optimum = reference.optimum()
            if optimum is None:
                with pytest.raises((NotConvergedError, ValueError), match=r"non-negative|known exactly"):
                    method(problem, y)
                continue
            check(method(problem, y), reference, float(optimum))
            solved += 1
    assert solved >= 140


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@lengths("seeds", 15, 60)
def test_every_method_converges_wherever_there_is_a_fit(seeds: int, method) -> None:
    """With structural zeros, equalities and geographies too; counts are non-negative, so that there always is."""
    done = 0
    for problem, y in invented(range(2 * seeds), ANY):
        try:
            fit = method(problem, y)
        except ValueError as refusal:
            if not any(word in str(refusal) for word in REFUSALS):
                raise
            continue
        done += 1
        assert fit.detail.min() >= 0
        assert fit.gap <= 10 * PROVED * (1 + fit.objective)
        assert fit.margin_residual <= 1e-8 * max(1.0, np.nanmax(abs(y)))
    assert done >= 8 * seeds / 60


@pytest.mark.parametrize("shape", [(10, 10, 10), (30, 40)])
def test_large_fits_are_proved_too(shape: tuple[int, ...]) -> None:
    """Beyond the exact active-set method: every margin but the detailed table, a variance for every cell."""
    rng = np.random.default_rng(1)
    names = [f"v{i}" for i in range(len(shape))]
    observed = {}
    for k in range(len(shape)):
        for kept in itertools.combinations(range(len(shape)), k):
            sizes = tuple(shape[i] for i in kept)
            observed[" * ".join(names[i] for i in kept) or "total"] = 10 ** rng.uniform(-4, 4, sizes)
    problem = Problem(Schema(dict(zip(names, shape, strict=True))), observed)
    M = problem.marginal_matrix()
    counts = rng.poisson(2.0, M.shape[1]) * (rng.random(M.shape[1]) < 0.3)
    y = M @ counts + np.sqrt(problem.variances) * rng.standard_normal(M.shape[0])
    for method in (nnls, ols):
        fit = method(problem, y)
        assert fit.gap <= PROVED * (1 + fit.objective)
        assert fit.objective <= LeastSquares(M, y, problem.variances).objective(counts)


@pytest.mark.few(1)
@pytest.mark.parametrize(("method", "mean", "seed"), [(reweighted_fit, 1, 3), (max_fit, 30, 6)])
def test_fits_of_overlapping_tables_are_proved_where_weak_ties_end_in_rounding(method, mean: int, seed: int) -> None:
    """Every table of three of six variables or fewer, of variances over five decades: no cell is measured itself."""
    rng = np.random.default_rng(seed)
    schema = Schema({f"v{i}": 3 for i in range(6)})
    counts = rng.poisson(mean, schema.shape).ravel()
    tables = [kept for k in range(4) for kept in itertools.combinations(schema.names, k)]
    problem = Problem(schema, {" * ".join(kept) or "total": 10 ** rng.uniform(-2, 3) for kept in tables})
    noise = np.sqrt(problem.variances) * rng.normal(size=problem.variances.size)
    fit = method(problem, problem.marginal_matrix() @ counts + noise)
    assert fit.gap <= PROVED * (1 + fit.objective)


def small_program(seed: int) -> tuple[QuadraticProgram, LeastSquares]:
    """A program with weights, without, and with exact rows, as rationals know it too."""
    rng = np.random.default_rng(seed)
    rows, cells = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    M = (rng.random((rows, cells)) < 0.6).astype(float)
    counts = rng.integers(0, 9, cells) * (rng.random(cells) < 0.6)
    v = 10 ** rng.uniform(-4, 4, rows) * (rng.random(rows) < 0.75)
    weighted = rng.random(cells) < 0.4
    own = 10 ** rng.uniform(-4, 4, cells)
    answer = M @ counts + np.sqrt(v) * rng.standard_normal(rows)
    target = np.where(weighted, counts + np.sqrt(own) * rng.standard_normal(cells), 0.0)
    p = QuadraticProgram(
        M=csc(M),
        target=target,
        weight=np.where(weighted, 1 / own, 0.0),
        lower=np.zeros(cells),
        upper=np.full(cells, np.inf),
        answer=answer,
        variance=v,
    )
    precisions = 1 / np.where(weighted, 1 / own, 1.0)[weighted]
    reference = LeastSquares(
        np.vstack([M, np.eye(cells)[weighted]]), np.append(answer, target[weighted]), np.append(v, precisions)
    )
    return p, reference


@given(st.integers(0, 10**6), st.floats(-8, 3), st.floats(-8, 3))
@examples(150)
def test_no_cells_and_multipliers_are_proved_better_than_they_are(seed: int, size: float, error: float) -> None:
    """Weak duality for anything: the gap is never less than what the objective exceeds the optimum by."""
    p, reference = small_program(seed)
    optimum = reference.optimum()
    if optimum is None:
        return
    rng = np.random.default_rng(seed)
    best = solve(p)
    cells = np.maximum(best.cells + 10**size * rng.standard_normal(best.cells.size), 0.0)
    exact = np.flatnonzero(p.variance == 0)
    if exact.size:  # keep what is known exactly: a gap is between cells that may be
        cells = best.cells
    multipliers = best.multipliers + 10**error * rng.standard_normal(best.multipliers.size)
    certified = certify(p, Solution(cells, multipliers, 0))
    excess = Fraction(reference.objective(cells)) - optimum
    assert certified.gap >= float(excess) - 1e-12 * (1 + certified.objective)


@given(st.integers(0, 10**6))
@examples(150)
def test_the_active_set_method_alone_finds_the_optimum(seed: int) -> None:
    p, reference = small_program(seed)
    optimum = reference.optimum()
    if optimum is None:
        return
    found = certify(p, polish(p, feasible_cells(p)))
    assert found.gap <= PROVED * (1 + found.objective)
    assert reference.objective(found.cells) - float(optimum) <= 1e-9 * (1 + float(optimum))


@given(seed=st.integers(0, 10**6))
@example(seed=461)  # of which cells that were freed one by one, in vain, ended elsewhere
@example(seed=568)
@examples(60)
def test_bounds_that_meet_in_one_point_do_not_stop_the_active_set_method(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = int(rng.integers(2, 7))
    rows, point = rng.integers(-1, 2, (int(rng.integers(1, 3 * cells)), cells)), rng.integers(-3, 4, cells)
    target, free, none = point + 3 * rng.normal(size=cells), np.full(cells, np.inf), np.zeros(0)
    p = QuadraticProgram(csc(np.zeros((0, cells))), target, np.ones(cells), -free, free, none, none)
    sums, is_least = rows @ point, rng.random(len(rows)) < 0.5
    low = np.where(is_least, sums, sums - rng.integers(0, 3, len(rows)))
    high = np.where(is_least, sums + rng.integers(0, 3, len(rows)), sums)
    weights = np.where(rng.random(len(rows)) < 0.5, 0.0, 1.0)
    wanted = sums + rng.normal(size=len(rows))
    p = with_bounds_on(p, csr_array(rows.astype(float)), Ranges(low, high), wanted, weights)
    found = certify(p, polish(p, feasible_cells(p)))
    assert found.gap <= PROVED * (1 + found.objective)


@pytest.mark.parametrize("seed", [151, 181, 249])
def test_rows_of_any_sign_that_follow_from_others_are_solved(seed: int) -> None:
    """Orthogonal factors, with ranks decided by singular values, ended elsewhere: such programs were refused."""
    rng = np.random.default_rng(seed)
    cells, rows, scale = int(rng.integers(4, 80)), int(rng.integers(2, 30)), 10.0 ** rng.integers(-8, 9)
    sums = (rng.random((rows, cells)) < 0.3).astype(float)
    M = np.vstack([sums, (rng.random((int(rng.integers(1, 12)), rows)) < 0.3) @ sums])
    inside = np.where(rng.random(cells) < 0.6, 0.0, rng.integers(0, 30, cells))
    variance = 10 ** rng.uniform(-4, 4, len(M))
    variance[rng.random(len(M)) < 0.5] = 0.0
    weight = 10 ** rng.uniform(-4, 4, cells)
    weight[rng.random(cells) < 0.6] = 0.0
    target = (inside + rng.normal(size=cells) * np.where(weight > 0, weight, 1) ** -0.5) * scale
    upper = np.where(rng.random(cells) < 0.2, inside + 3, np.inf) * scale
    rng = np.random.default_rng(seed + 1)
    M, lower = M * rng.choice([-1, 1, 2, 0.3], M.shape), np.zeros(cells)
    answer = M @ np.clip(target, lower, upper) + scale * np.sqrt(variance) * rng.normal(size=len(M))
    lower = np.where(rng.random(cells) < 0.3, -np.inf, lower)
    p = QuadraticProgram(csc(M), target, weight / scale**2, lower, upper, answer, variance * scale**2)
    found = solve(p)
    assert found.gap <= PROVED * (1 + found.objective) + 2 * found.rounding
    assert found.margin_residual <= 1e-9 * p.scale


def test_rows_with_bounds_are_kept_by_the_active_set_method() -> None:
    """A cell that was measured as 9, another as 0, and their sum as 0, which is at most 2."""
    none, one = np.zeros(2), np.ones((1, 2))
    p = QuadraticProgram(csc(np.zeros((0, 2))), np.array([9.0, 0]), none + 1, none, none + np.inf, none[:0], none[:0])
    tied = with_bounds_on(p, csr_array(one), Ranges(none[:1] - 2, none[:1] + 2), none[:1], np.array([0.25]))
    found = certify(tied, polish(tied, np.zeros(3)))
    assert found.cells == pytest.approx([2.0, 0.0, 2.0])
    assert found.gap < 1e-12
    assert found.objective == pytest.approx(0.5 * 49 + 0.5)


@given(st.integers(0, 10**6))
@examples(100)
def test_bounds_that_follow_never_cut_off_cells_that_may_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, cells = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    M = csc(rng.integers(-2, 3, (rows, cells)).astype(float))
    x = rng.integers(-5, 9, cells).astype(float)
    low = np.where(rng.random(cells) < 0.6, x - rng.integers(0, 4, cells), -np.inf)
    high = np.where(rng.random(cells) < 0.6, x + rng.integers(0, 4, cells), np.inf)
    spread = rng.integers(0, 3, rows)
    box = propagated(M, Ranges(low, high), M @ x - spread, M @ x + spread, 1e-9)
    assert (box.low <= x + 1e-9).all()
    assert (box.high >= x - 1e-9).all()
    assert (box.low >= low).all()
    assert (box.high <= high).all()


def test_parts_of_an_exact_zero_are_held() -> None:
    p = small_program(0)[0]
    p = replace(
        p,
        M=csc(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]])),
        target=np.zeros(3),
        weight=np.array([0.0, 1.0, 0.0]),
        lower=np.zeros(3),
        upper=np.full(3, np.inf),
        answer=np.array([0.0, 6.0]),
        variance=np.zeros(2),
    )
    held = tightened(p)
    np.testing.assert_array_equal(held.lower, [0, 0, 3])
    np.testing.assert_array_equal(held.upper, [0, 0, 3])
    assert (held.weight > 0).all()
    found = solve(p)
    np.testing.assert_array_equal(found.cells[:2], 0)
    assert found.cells[2] == pytest.approx(3, rel=1e-12)
    assert found.gap == 0
    with pytest.raises(NotConvergedError, match="leaves a cell between 0 and -1: no non-negative cells meet it"):
        solve(replace(p, answer=np.array([-1.0, 6.0])))
    assert possible_sums(p) == pytest.approx((3, 3))
    assert possible_sums(replace(p, variance=np.array([1.0, 0.0]))) == (pytest.approx(3), np.inf)


def test_contradictions_are_refused_by_name_and_not_taken_for_slow_convergence() -> None:
    schema = Schema({"a": 2, "b": 2})
    problem = Problem(schema, {"a": 1.0, "b": 0.0}, equalities=([[0, 0, 1, -1]], [7.0]))
    for method in (nnls, METHODS["max"], METHODS["reweighted"], anchored_fit):
        with pytest.raises((NotConvergedError, ValueError), match=r"known exactly|contradict"):
            method(problem, np.array([1.0, 1.0, 2.0, 3.0]))


def test_an_anchored_sum_gives_way_to_what_is_known_exactly() -> None:
    """The BLUE's sum is negative, the first cell known to be 5: the sum is 5, and with an equality it is 5 + 2."""
    schema = Schema({"a": 3})
    problem = Problem(schema, {"total": 1.0, "a": [0.0, 1.0, 1.0]})
    y = np.array([-30.0, 5.0, -9.0, -9.0])
    np.testing.assert_allclose(anchored_fit(problem, y).detail, [5, 0, 0], atol=1e-9)
    held = Problem(schema, {"total": 1.0, "a": [0.0, 1.0, 1.0]}, equalities=([[0, 0, 1, -1]], [2.0]))
    np.testing.assert_allclose(anchored_fit(held, y).detail, [5, 2, 0], atol=1e-9)

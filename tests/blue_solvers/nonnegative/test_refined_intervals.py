"""Refined intervals and their coverage on problems of every kind, against sets of cells written out one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from blue_solvers import blue
from blue_solvers.nonnegative import METHODS, coverage, nnls, ols, refine_intervals
from blue_solvers.uncertainty import intervals
from constraint_builders import Areas, Problem, Schema, Spine
from noise_mechanisms.laws import CellKey, RandomRounding, Rounding
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refuses
from tests.helpers.spines import consistent_measurements, measurement_matrices, spine_problems

SPINE = Spine([-1, 0, 0, 1, 1, 2], ["US", "State", "State", "County", "County", "County"])
SCHEMA = Schema({"sex": 2, "age": 3}, {"age": {"adult": [0, 1, 1]}})


def least_holding_sums(exact: np.ndarray, values: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """For every desired set of cells the least value of an exact set that holds it, by comparing sets."""
    sums = [(set(np.flatnonzero(row)), value) for row, value in zip(exact, values, strict=True)]
    holding = [[value for cells, value in sums if set(np.flatnonzero(row)) <= cells] for row in desired]
    return np.array([min(found, default=np.inf) for found in holding])


def refined_everything(problem: Problem, y: np.ndarray) -> np.ndarray:
    """The ceilings, as intervals from minus infinity to infinity come back."""
    size = problem.desired.size
    lower, upper = refine_intervals(problem, y, np.full(size, -np.inf), np.full(size, np.inf))
    assert not lower.any()
    return upper


@given(spine_problems(), st.integers(0, 1000))
@examples(40)
def test_spines_are_refined_by_the_exact_sums_that_hold_each_cell(problem: Problem, seed: int) -> None:
    y = np.where(problem.unmeasured, np.nan, consistent_measurements(problem, seed))
    M, D = measurement_matrices(problem)
    expected = least_holding_sums(M[problem.exact], y[problem.exact], D)
    np.testing.assert_allclose(refined_everything(problem, y), expected)


def special_problem() -> Problem:
    """A spine with everything known exactly that there is: totals, single cells, zeros, sums of both signs."""
    names = [("US", "total"), ("State", "sex"), ("County", "detailed")]
    observed = {"US": {"total": 0.0}, "State": {"sex": [[0.0, 2.0], [3.0, 0.0]]}, "County": {"detailed": 4.0}}
    zeros = {("State", "sex * adult"): np.array([[[True, False], [False, False]], [[False, False], [False, False]]])}
    layout = Problem(SCHEMA, observed, spine=SPINE).observed
    rows = np.zeros((3, layout.size))
    rows[0, layout.slice(names[2])] = [2.0] * 6 + [0.0] * 12  # twice the first county
    rows[1, layout.slice(names[2])] = [0.0] * 6 + [-1.0, -2.0, -1.0, -1.0, -1.0, -5.0] + [0.0] * 6
    rows[2, layout.slice(names[2])] = [1.0] * 3 + [-1.0] * 3 + [0.0] * 12  # of both signs: bounds nothing
    desired = {"US": ["total", "adult"], "State": ["detailed", "sex"], "County": ["detailed", "adult", "total"]}
    return Problem(SCHEMA, observed, desired, spine=SPINE, zeros=zeros, equalities=(rows, [30.0, -40.0, 2.0]))


def test_zeros_and_equalities_refine_too() -> None:
    problem = special_problem()
    rng = np.random.default_rng(0)
    M = problem.marginal_matrix().toarray()
    y = M @ rng.poisson(6.0, M.shape[1])
    y[problem.observed.slice(("State", "sex"))] = [11, 9, 14, 12]
    y[0] = 46
    D = measurement_matrices(problem)[1]
    E, b = problem.equalities
    rows = np.vstack([M[problem.exact], (E @ M)[0] / 2, -(E @ M)[1]])
    values = np.concatenate([y[problem.exact], [15.0, 40.0]])
    empty = problem.zeros.detailed(np.flatnonzero(SPINE.child_counts == 0))
    expected = np.empty(len(D))
    for j, cell in enumerate(D):
        parts = np.flatnonzero((cell > 0) & ~empty)
        if not parts.size:
            expected[j] = 0.0
            continue
        holding = [v / row[parts].min() for row, v in zip(rows, values, strict=True) if (row[parts] > 0).all()]
        expected[j] = min(holding)
    np.testing.assert_allclose(refined_everything(problem, y), expected)
    assert (expected == 0).any()
    # what the linear program says is the largest each cell can be is never cut off
    known = np.vstack([M[problem.exact], E @ M])
    right = np.concatenate([y[problem.exact], b])
    bounds = [(0, 0 if e else None) for e in empty]
    for j, cell in enumerate(D):
        result = linprog(-cell, A_eq=known, b_eq=right, bounds=bounds)
        if result.status == 0:
            assert -result.fun <= expected[j] + 1e-7


def test_negative_exact_sums_are_refused_by_name() -> None:
    problem = Problem(Schema({"a": 2}), {"total": 0.0, "a": 1.0})
    refuses("known exactly sum to -3", refine_intervals, problem, [-3.0, 0.0, 0.0], np.zeros(3), np.ones(3))
    equal = Problem(Schema({"a": 2}), {"total": 1.0, "a": 1.0}, equalities=([[0, -1, -1]], [3.0]))
    refuses("known exactly sum to -3", refine_intervals, equal, [1.0, 0.0, 0.0], np.zeros(3), np.ones(3))


def test_what_does_not_fit_is_refused_by_name() -> None:
    problem = Problem(Schema({"a": 2}), {"total": 1.0, "a": [1.0, np.inf]}, desired=["total"])
    refuses(r"y must have shape \(3,\)", refine_intervals, problem, np.ones(7), [0.0], [1.0])
    refuses(r"lower and upper must have shape \(1,\)", refine_intervals, problem, np.ones(3), [0.0, 1.0], [1.0])
    refuses("lower is above upper in table 'total'", refine_intervals, problem, np.ones(3), [2.0], [1.0])
    known = Problem(Schema({"a": 2}), {"total": 0.0, "a": 0.0})
    with pytest.raises(ValueError, match="values known exactly contradict one another by 1 "):
        refine_intervals(known, [1.0, 1, 1], np.zeros(3), np.ones(3))
    refuses("truth does not add up by 1 ", coverage, known, [1.0, 1, 1], nnls, 2, np.random.default_rng(0))
    assert refine_intervals(problem, np.array([1.0, 1.0, np.nan]), [-1.0], [4.0]) == (0, 4)


def with_nan(problem: Problem, bad: float) -> np.ndarray:
    y = np.ones(problem.observed.size)
    y[1] = bad
    return y


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_with_holes_are_refused_by_name(bad: float) -> None:
    problem = Problem(SCHEMA, {"County": {"detailed": 1.0}}, spine=SPINE)
    size = problem.desired.size
    cell = r"table \('County', 'detailed'\), cell \(geocode=3, sex=0, age=1\) is (nan|inf)"
    refuses(f"y: {cell}", refine_intervals, problem, with_nan(problem, bad), np.zeros(size), np.ones(size))
    refuses(f"truth: {cell}", coverage, problem, with_nan(problem, bad), nnls, 2, np.random.default_rng(0))
    with pytest.raises(ValueError, match="lower or upper holds NaN"):
        refine_intervals(problem, np.ones(size), with_nan(problem, np.nan), np.ones(size))


def test_truth_must_say_what_was_not_measured() -> None:
    problem = Problem(SCHEMA, {"total": 1.0, "sex": np.inf, "detailed": 1.0})
    truth = problem.marginal_matrix() @ np.ones(6)
    truth[1] = np.nan
    refuses("truth holds NaN", coverage, problem, truth, nnls, 2, np.random.default_rng(0))


@pytest.mark.few(1)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_coverage_on_a_spine_is_that_of_its_definition(method) -> None:
    observed = {"US": {"total": 0.0}, "State": {"sex": 2.0}, "County": {"detailed": 4.0}}
    problem = Problem(SCHEMA, observed, {"US": ["sex"], "County": ["detailed"]}, spine=SPINE)
    cells = np.random.default_rng(1).poisson(0.7, 18).astype(float)
    truth = problem.marginal_matrix() @ cells
    found = coverage(problem, truth, method, 40, np.random.default_rng(2), 0.8)
    from noise_mechanisms import draw_noise

    Y = truth[:, None] + draw_noise(problem, 40, np.random.default_rng(2))
    wanted = measurement_matrices(problem)[1] @ cells
    P, fitted, held = blue(problem), [], []
    for y in Y.T:
        fitted.append(method(problem, y).desired - wanted)
        lower, upper = refine_intervals(problem, y, *intervals(P, y, 0.8))
        held.append((lower <= wanted + 1e-9) & (wanted <= upper + 1e-9))
    np.testing.assert_allclose(found.bias, np.mean(fitted, axis=0), atol=1e-7)
    np.testing.assert_allclose(found.error, np.mean(np.square(fitted), axis=0), atol=1e-6)
    np.testing.assert_allclose(found.refined, np.mean(held, axis=0))


@pytest.mark.parametrize(
    "law", [RandomRounding(3), Rounding(10), CellKey([{0: 1.0}, {0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}])]
)
def test_coverage_where_figures_are_published_by_a_law(law) -> None:
    """Least squares of large counts are the unbiased estimates: fits of them cover as these do, and have no bias."""
    problem = Problem(Schema({"a": 3, "b": 2}), {"total": law, "a": law, "a * b": law})
    truth = problem.marginal_matrix() @ np.random.default_rng(0).integers(500, 1000, 6)
    found = coverage(problem, truth, ols, 400, np.random.default_rng(1))
    np.testing.assert_array_equal(found.refined, found.fitted)
    if law.is_random:
        assert found.refined.min() > 0.8
        assert (abs(found.bias) <= 4.5 * np.sqrt(found.error / found.draws)).all()


@every("seed", range(4))
def test_coverage_of_what_follows_from_exact_values_is_complete_at_any_size(seed: int) -> None:
    """Sums of exact leaves have no width, and the rounding of their size."""
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.1, 0.3, 1 / 3, 3.0], (2, 7))
    problem = Problem(
        Schema({"unit": 1}), {"R": {"total": 1.0}, "Leaf": {"total": 0.0}}, areas=Areas(7, {"R": weights})
    )
    cells = rng.uniform(1e8, 1e9, 7)
    found = coverage(problem, np.concatenate([weights @ cells, cells]), nnls, 5, np.random.default_rng(1))
    assert (found.refined == 1).all()
    assert (found.fitted == 1).all()


@every("unit", [1e-10, 1e9])
def test_coverage_is_the_same_in_any_unit(unit: float) -> None:
    def of(unit: float) -> tuple[np.ndarray, np.ndarray]:
        problem = Problem(Schema({"a": 3}), {"a": unit**2 * np.array([0.0, 1, 2]), "total": unit**2})
        found = coverage(problem, unit * np.array([5.0, 1, 2, 8]), nnls, 100, np.random.default_rng(1), 0.5)
        return found.refined, found.fitted

    np.testing.assert_array_equal(of(unit), of(1.0))
    assert of(unit)[0][0] == 1  # known exactly
    assert (of(unit)[0][1:] < 0.8).all()

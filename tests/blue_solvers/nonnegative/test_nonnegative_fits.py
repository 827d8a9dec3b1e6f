"""The five methods against independent references: scipy's nnls, simplex projections by sorting, linear programming."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers.nonnegative import NotConvergedError, anchored_fit, max_fit, nnls, ols, reweighted_fit, sequential_fit
from blue_solvers.nonnegative.price.private_cells import project_to_simplex
from blue_solvers.nonnegative.reweighted_fit import low_answers
from constraint_builders import Problem, Schema, gallery
from tests.feature_support.instances import Instance
from tests.feature_support.optimality import require_reweighted, require_sequential
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.refused import refused, refuses

METHODS = [ols, nnls, max_fit, sequential_fit, reweighted_fit, anchored_fit]
CERTIFIED = 1e-8  # of the largest count: well below the 1e-6 that is promised


def two_way(rows=4, columns=5, variance=8.0, noise="laplace"):
    schema = Schema({"rows": rows, "columns": columns})
    names = ("total", "rows", "columns", "detailed")
    return Problem(schema, dict.fromkeys(names, variance), noise=noise)


def three_way(detailed=True, **more):
    schema = Schema({"a": 3, "b": 4, "c": 2}, {"b": {"halves": [0, 0, 1, 1], "odd": [0, 1, 0, 1]}})
    observed = {"total": 1.0, "a * halves": 2.0, "b * c": 3.0, "odd * a": 0.5, "a * c": 1.5}
    return Problem(schema, observed | ({"detailed": 4.0} if detailed else {}) | more)


def measurements(problem, seed, columns=None, most=12):
    """Noisy margins of sparse counts."""
    rng = np.random.default_rng(seed)
    M = problem.marginal_matrix()
    cells = np.where(rng.random(M.shape[1]) < 0.4, rng.integers(1, most, M.shape[1]), 0)
    std = np.where(np.isfinite(problem.variances), np.sqrt(problem.variances), 0)
    noise = rng.normal(size=(M.shape[0], columns or 1)) * std[:, None]
    y = (M @ cells)[:, None] + noise
    return y if columns else y[:, 0]


def instance_of(problem, y):
    """The same as dense matrices, where nothing is known exactly."""
    M = problem.marginal_matrix().toarray()
    nothing = np.zeros((0, M.shape[1])), np.zeros(0)
    return Instance(problem, y, np.zeros(M.shape[1]), M, M, np.diag(problem.variances), *nothing)


@given(seed=st.integers(0, 2**32 - 1), shape=st.lists(st.integers(1, 4), min_size=1, max_size=3))
@examples(40)
def test_nnls_equals_scipy(seed, shape):
    rng = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(len(shape))]
    margins = [" * ".join(c) for k in range(len(names)) for c in itertools.combinations(names, k)]
    kept = [name or "total" for name in margins if rng.random() < 0.6]
    variances = {name: float(10 ** rng.uniform(-2, 2)) for name in [*kept, "detailed"]}
    problem = Problem(Schema(dict(zip(names, shape, strict=True))), variances)
    y = measurements(problem, rng)
    fit, std = nnls(problem, y), np.sqrt(problem.variances)
    expected = scipy.optimize.nnls(problem.marginal_matrix().toarray() / std[:, None], y / std)[0]
    np.testing.assert_allclose(fit.detail.ravel(), expected, atol=1e-7)
    assert fit.detail.min() >= 0
    assert fit.kkt_residual < CERTIFIED * abs(y).max()


@every("method", METHODS)
@every("detailed", [True, False])
def test_exact_tables_are_kept_to_rounding(method, detailed):
    problem = three_way(detailed, c=0.0, halves=0.0)
    y = measurements(problem, 8)
    fit = method(problem, y)
    exact = problem.exact
    np.testing.assert_allclose(fit.observed[exact], y[exact], atol=1e-9 * abs(y).max())
    assert fit.margin_residual < 1e-9 * abs(y).max()
    assert fit.kkt_residual < CERTIFIED * abs(y).max()


@every("method", METHODS)
def test_columns_are_fitted_one_by_one(method):
    problem = two_way()
    y = measurements(problem, 5, columns=3)
    fit = method(problem, y)
    assert fit.detail.shape == (4, 5, 3)
    assert fit.observed.shape == y.shape
    alone = [method(problem, column) for column in y.T]
    np.testing.assert_allclose(fit.detail, np.stack([own.detail for own in alone], axis=-1), atol=1e-12)
    np.testing.assert_allclose(fit.objective, [own.objective for own in alone])
    assert fit.gap == max(own.gap for own in alone)
    assert fit.error_bound == np.sqrt(2 * fit.gap)
    assert alone[0].objective.shape == ()


def test_a_fit_gives_desired_tables():
    schema = Schema({"sex": 2, "age": 3})
    problem = Problem(schema, {"total": 1.0, "detailed": 1.0}, desired=["age", "total"])
    y = problem.vector({"total": 9.0, "detailed": [[4.0, -2.0, 1.0], [3.0, 0.0, 2.0]]})
    fit = nnls(problem, y)
    np.testing.assert_allclose(fit.tables()["age"], fit.detail.sum(axis=0))
    np.testing.assert_allclose(fit.tables()["total"], fit.detail.sum())


@every("scale", [1e-9, 1e-6, 1e3, 1e9])
@every("seed", range(3))
def test_max_fit_is_the_same_in_any_units(scale, seed):
    """The linear program within has absolute tolerances: of small counts they were as large as what it looks for."""
    rng = np.random.default_rng(seed)
    schema, spread = (
        Schema({"a": 3, "b": 4}),
        {"a": 1.0, "b": rng.uniform(0.5, 4, 4), "detailed": rng.uniform(0.5, 4, (3, 4))},
    )
    own = Problem(schema, spread)
    other = Problem(schema, {name: scale**2 * np.asarray(variance) for name, variance in spread.items()})
    y = own.marginal_matrix() @ rng.poisson(2, 12) + rng.normal(size=19)
    farthest = [
        (abs(fit.observed - z) / np.sqrt(fit.problem.variances)).max()
        for fit, z in ((max_fit(own, y, slack=0.0), y), (max_fit(other, scale * y, slack=0.0), scale * y))
    ]
    np.testing.assert_allclose(farthest[1], farthest[0], rtol=1e-6)


def test_max_fit_of_tables_that_agree_leaves_unmeasured_cells_alone():
    problem = Problem(Schema({"a": 3}), {"total": 1.0, "a": [1.0, np.inf, 1.0]})
    fit = max_fit(problem, problem.vector({"total": 6.0, "a": [1.0, np.nan, 3.0]}), slack=0.0)
    np.testing.assert_allclose(fit.detail, [1.0, 2.0, 3.0], atol=1e-9)


def transport(rows, columns, target):
    """The nearest non-negative table with given margins, by least squares with heavily weighted margins."""
    a, b = target.shape
    heavy = 1e5
    margins = np.vstack([np.kron(np.eye(a), np.ones(b)), np.kron(np.ones(a), np.eye(b))])
    A = np.vstack([heavy * margins, np.eye(a * b)])
    right = np.concatenate([heavy * rows, heavy * columns, target.ravel()])
    return scipy.optimize.nnls(A, right, maxiter=10_000)[0].reshape(a, b)


@every("seed", range(6))
def test_sequential_fit_of_a_two_way_table_is_projections_on_simplices_and_a_transport(seed):
    problem = two_way()
    y = measurements(problem, seed, most=5)
    tables = problem.observed.tables(y)
    fit = sequential_fit(problem, y)
    total = max(float(tables["total"]), 0.0)
    rows, columns = project_to_simplex(tables["rows"], total), project_to_simplex(tables["columns"], total)
    np.testing.assert_allclose(fit.detail.sum(), total, atol=1e-9)
    np.testing.assert_allclose(fit.detail.sum(axis=1), rows, atol=1e-9)
    np.testing.assert_allclose(fit.detail.sum(axis=0), columns, atol=1e-9)
    np.testing.assert_allclose(fit.detail, transport(rows, columns, tables["detailed"]), atol=1e-4)


@every("order", list(itertools.permutations(["total", "a * halves", "b * c", "odd * a", "a * c"]))[::17])
@every("detailed", [True, False])
def test_every_stage_of_a_sequential_fit_is_optimal(order, detailed):
    problem = three_way(detailed)
    order = [*order, "detailed"] if detailed else order
    require_stages(problem, measurements(problem, 11), order)


@every("seed", range(3))
@every("mean", [0.3, 3.0])
def test_every_stage_is_optimal_where_tables_meet_in_cells_that_are_0(seed, mean):
    """All margins of 81 cells that are nearly empty, where answers of tables by themselves go with no cells at all."""
    problem, rng = gallery.cube(4, 3), np.random.default_rng(seed)
    cells = rng.poisson(mean, 81) * (rng.random(81) < 0.5)
    y = problem.marginal_matrix() @ cells + rng.normal(size=problem.observed.size) * np.sqrt(problem.variances)
    require_stages(problem, y, [str(name) for name in problem.observed.names])


def require_stages(problem, y, order):
    """The answers of each table are those of a stage solved over all detailed cells, with no shortcut."""
    fit = sequential_fit(problem, y, order)
    assert fit.margin_residual < 1e-9 * abs(y).max()
    assert fit.kkt_residual < CERTIFIED * abs(y).max()
    require_sequential(instance_of(problem, y), fit.detail.ravel(), order, 1e-4)


@every("unit", [1e-9, 1.0, 1e9])
def test_the_objective_of_a_sequential_fit_is_that_of_its_tables(unit):
    """Squares of the cells, which no table determines, were added, in squared counts."""
    problem = Problem(Schema({"a": 3, "b": 4}), {"a": unit**2, "b": 2 * unit**2})
    y = unit * np.array([9.0, -2.0, 5.0, 3.0, 4.0, -1.0, 8.0])
    fit = sequential_fit(problem, y)
    squares = ((fit.observed - y) ** 2 / problem.variances).sum() / 2
    np.testing.assert_allclose(fit.objective, squares, rtol=1e-9)


def test_tables_of_large_counts_are_fitted_by_themselves():
    """A few Newton steps each: over all cells, which have no weight in most stages, they take three times as many."""
    problem, rng = gallery.cube(4, 4), np.random.default_rng(3)
    y = problem.marginal_matrix() @ rng.poisson(50, 256) + rng.normal(size=problem.observed.size)
    fit = sequential_fit(problem, y)
    assert fit.iterations <= 4 * len(problem.observed.names)
    assert fit.error_bound < 1e-4


@pytest.mark.slow
def test_tables_of_counts_near_zero_are_fitted_where_most_cells_have_no_room():
    """Unless these are held first, what is found for all cells misses a table that was fitted."""
    problem, rng = gallery.cube(5, 5), np.random.default_rng(0)
    y = problem.marginal_matrix() @ rng.poisson(0.05, 3125) + np.sqrt(2) * rng.normal(size=problem.observed.size)
    fit = sequential_fit(problem, y)
    assert fit.error_bound < 3e-5
    assert fit.margin_residual < CERTIFIED * abs(y).max()


@every("noise", ["laplace", "gaussian"])
@every("seed", range(4))
def test_reweighted_fit_equals_algorithm_2(noise, seed):
    problem = two_way(9, 12, noise=noise)
    y = measurements(problem, seed, most=60)
    fit = reweighted_fit(problem, y)
    require_reweighted(instance_of(problem, y), fit.detail.ravel())
    assert fit.kkt_residual < CERTIFIED * abs(y).max()


def test_the_facts_example_of_downweighting():
    """216 zero cells under Laplace noise of scale 8: nearly all are low, weighed down 40.4-fold or so."""
    answers = np.append(np.random.default_rng(0).laplace(scale=8, size=215), 10_000.0)
    assert low_answers(answers, 128.0, "laplace", 0.99).sum() == 215


def test_an_anchored_fit_takes_the_excess_from_small_cells():
    """Three cells and their sum, worked out by hand from the docstring's formula: only the small cell gives way."""
    problem = Problem(Schema({"a": 3}), {"total": 1.0, "a": 1.0})
    y = problem.vector({"total": 100.0, "a": [100.0, 2.0, -6.0]})
    unbiased, plain, fit = ols(problem, y), nnls(problem, y), anchored_fit(problem, y)
    total, excess = unbiased.detail.sum(), plain.detail.sum() - unbiased.detail.sum()
    lenient = 1 + min(9.0, excess) / (1 + (plain.detail / 2) ** 2)
    # With the sum held, weighted least squares over the free cells: x_j = a_j - shift * lenient_j.
    free = fit.detail > 0
    shift = (np.array([100.0, 2.0, -6.0])[free].sum() - total) / lenient[free].sum()
    np.testing.assert_allclose(fit.detail[free], (np.array([100.0, 2.0, -6.0]) - shift * lenient)[free], atol=1e-9)
    assert plain.detail[0] - fit.detail[0] < plain.detail[1] - fit.detail[1]


@pytest.mark.parametrize("low", [-3.0, -6.0, -8.0, -400.0])
def test_the_excess_over_a_negative_total_is_that_over_none(low):
    """Two cells of a known sum and one far below 0: the docstring's formula, where the sum cannot be the unbiased."""
    schema = Schema({"a": 3}, {"a": {"pair": [0, 0, 1]}})
    problem = Problem(schema, {"pair": [0.0, np.inf], "a": [1.0, 2.0, 1.0]})
    y = problem.vector({"pair": [5.0, 0.0], "a": [3.5, 2.5, low]})
    plain = nnls(problem, y).detail
    spread = np.sqrt([1.0, 2.0])
    lenient = 1 + np.minimum(9.0, (plain.sum() - max(0.0, 5.0 + low)) / spread) / (1 + (plain[:2] / (2 * spread)) ** 2)
    given, variances = np.array([3.5, 2.5]), spread**2 * lenient
    expected = given - variances * (given.sum() - 5.0) / variances.sum()
    np.testing.assert_allclose(anchored_fit(problem, y).detail, [*expected, 0.0], atol=1e-7)


def test_cells_measured_twice_are_anchored_as_by_their_mean_whatever_the_order():
    """Groups of single levels measure them again: the first three times, the second with another weight."""
    schema = Schema({"a": 3}, {"a": {"first": [0, 1, 1], "again": [0, 1, 1], "second": [0, 1, 0], "third": [0, 0, 1]}})
    tables = {"total": 1.0, "a": 4.0, "first": [4.0, np.inf], "again": [2.0, np.inf]}
    tables |= {"second": [np.inf, 12.0], "third": [np.inf, 4.0]}
    values = {"total": 28.0, "a": [30.0, 8.0, -8.0], "first": [26.0, 0.0], "again": [29.0, 0.0]}
    values |= {"second": [0.0, 4.0], "third": [0.0, -2.0]}
    once = Problem(schema, {"total": 1.0, "a": [1.0, 3.0, 2.0]})
    expected = anchored_fit(once, once.vector({"total": 28.0, "a": [28.5, 7.0, -5.0]})).detail
    assert nnls(once, once.vector({"total": 28.0, "a": [28.5, 7.0, -5.0]})).detail.sum() > expected.sum() + 0.1
    for names in itertools.permutations(tables):
        problem = Problem(schema, {name: tables[name] for name in names})
        np.testing.assert_allclose(anchored_fit(problem, problem.vector(values)).detail, expected, atol=1e-9)


def test_without_empty_cells_an_anchored_fit_is_the_unbiased_one():
    problem = two_way()
    y = problem.marginal_matrix() @ np.full(20, 500.0) + np.random.default_rng(0).normal(size=30)
    np.testing.assert_allclose(anchored_fit(problem, y).detail, ols(problem, y).detail, atol=1e-8)


def test_a_negative_total_leaves_every_method_with_some_table():
    problem = two_way()
    y = -np.ones(30)
    for method in METHODS[1:]:
        assert method(problem, y).detail.min() >= 0
    for method in (sequential_fit, anchored_fit):
        assert not method(problem, y).detail.any()


@every("method", [ols, nnls, max_fit, sequential_fit, anchored_fit])
@every("seed", range(3))
def test_fits_are_the_same_in_every_unit(method, seed):
    """Counts of thousands of millions, and parts of one."""
    problem = two_way(3, 4, 1.0)
    y = measurements(problem, seed)
    expected = method(problem, y).detail
    for unit in (1e9, 1e-6, 1e-12):
        found = method(two_way(3, 4, unit**2), unit * y)
        np.testing.assert_allclose(found.detail / unit, expected, rtol=0, atol=1e-12 * abs(y).max())


@every("seed", range(3))
def test_large_trees_are_certified(seed):
    schema = Schema({"block": 20_000}, {"block": {"tract": np.repeat(np.arange(200), 100).tolist()}})
    problem = Problem(schema, {"total": 128.0, "tract": 128.0, "detailed": 128.0}, noise="laplace")
    y = measurements(problem, seed, most=50)
    for method in (nnls, sequential_fit, reweighted_fit):
        fit = method(problem, y)
        assert fit.kkt_residual < CERTIFIED * abs(y).max()
        assert fit.margin_residual < 1e-10 * abs(y).max()


def test_conjugate_gradients_reach_the_same_accuracy():
    """Also where the cells themselves were not measured."""
    pairs = Problem(Schema({"a": 20, "b": 30, "c": 40}), {"a * b": 2.0, "b * c": 3.0, "a * c": 2.0})
    for problem in (gallery.cube(5, 5), pairs):
        y = measurements(problem, 0)
        assert nnls(problem, y).kkt_residual < CERTIFIED * abs(y).max()


@every("method", METHODS)
def test_bad_vectors_are_refused(method):
    problem = two_way()
    refuses(r"y must have shape \(30,\)", method, problem, np.zeros(29))
    y = np.zeros(30)
    y[3] = np.nan
    refuses(r"table 'rows', cell .* is NaN", method, problem, y)


@every("method", METHODS[1:])
def test_negative_exact_values_are_refused(method):
    problem = Problem(Schema({"a": 2}), {"total": 0.0, "a": 1.0})
    refuses("table 'total' is known exactly and negative", method, problem, np.array([-1.0, 2.0, 3.0]))


@every("method", METHODS[1:])
def test_exact_values_that_no_non_negative_cells_meet_are_refused(method):
    """Pairs of three binary variables, each pair equal: margins agree, but a = b, b = c and a != c has no table."""
    names = {"a * b": 0.0, "b * c": 0.0, "a * c": 0.0, "detailed": 1.0}
    problem = Problem(Schema({"a": 2, "b": 2, "c": 2}), names)
    equal, unequal = [[5.0, 0.0], [0.0, 5.0]], [[0.0, 5.0], [5.0, 0.0]]
    y = problem.vector({"a * b": equal, "b * c": equal, "a * c": unequal, "detailed": np.full((2, 2, 2), 1.25)})
    refuses("non-negative cells", method, problem, y, error=NotConvergedError)


def test_bad_orders_are_refused():
    problem = two_way()
    y = np.ones(30)
    for order, message in [
        (["total"], "leaves out 'rows', 'columns', 'detailed'"),
        (["total", "rows", "rows", "columns", "detailed"], "'rows' twice"),
        (["sex"], "no table 'sex'"),
        ("total", "must be a list"),
    ]:
        refuses(message, sequential_fit, problem, y, order)


@refused((lambda p, y: reweighted_fit(p, y, gamma=1.0), "gamma"),
                                               (lambda p, y: max_fit(p, y, slack=-1.0), "slack"),
)  # fmt: skip
def test_bad_parameters_are_refused(call) -> None:
    call(two_way(), np.ones(30))

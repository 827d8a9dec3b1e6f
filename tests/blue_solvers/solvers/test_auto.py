"""What `auto` chooses where equal variances fail, and why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from blue_solvers import Auto, Cholesky, ConjugateGradient, blue
from blue_solvers.normal_equations import factorisation
from blue_solvers.normal_equations.factorisation import factorise, operations_by_cholmod
from blue_solvers.solvers import auto, direct
from blue_solvers.structured import nearest as nearest_structured
from blue_solvers.structured.nearest import variance_ratio
from constraint_builders import Problem, Schema, Spine, gallery
from tests.helpers.effort import examples

AROUND = ConjugateGradient(preconditioner="two_pass")
needs_order = pytest.mark.skipif(not factorisation.cholmod_gives_triangles(), reason="needs scikit-sparse 0.4")


def cellwise(problem: Problem, ratio: float) -> Problem:
    """Variances between 1 and `ratio` in every cell, both ends taken in every table of two cells."""
    variances = np.random.default_rng(0).uniform(1, ratio, problem.observed.size)
    starts = problem.observed.offsets[:-1][problem.observed.sizes > 1]
    variances[starts], variances[starts + 1] = 1, ratio
    return problem.with_variances(variances)


@pytest.fixture
def factorisations_are_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "CHOLESKY_OPERATIONS", 4)
    monkeypatch.setattr(auto, "MOST_RANK", 4)


def assert_estimates_well(problem: Problem, reason: str) -> None:
    P = blue(problem)
    y = np.random.default_rng(1).standard_normal(problem.observed.size)
    np.testing.assert_allclose(P @ y, blue(problem, "dense") @ y, atol=1e-7)
    assert P.info.exact
    assert reason in P.info.reason


def test_few_constraints_are_factorised() -> None:
    solver, reason = Auto().choose(cellwise(gallery.cube(3, 3), 3.0))
    assert solver == Cholesky()
    assert "cheap to factorise" in reason


def test_many_constraints_in_small_blocks_are_factorised(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = cellwise(gallery.pl94_counties(3), 3.0)
    monkeypatch.setattr(auto, "CHOLESKY_OPERATIONS", problem.rank**3 / 6)
    assert Auto().choose(problem)[0] == Cholesky()
    monkeypatch.setattr(auto, "CHOLESKY_OPERATIONS", problem.rank**3 / 600)
    assert Auto().choose(problem)[0] == AROUND
    monkeypatch.setattr(auto, "CHOLESKY_RANK", 4)
    assert Auto().choose(problem)[0] == AROUND


def counties(ratio: float) -> Problem:
    schema = Schema({"a": 3, "b": 2})
    spine = Spine([-1, *[0] * 40], ["State", *["County"] * 40], [str(i) for i in range(41)])
    tables = dict.fromkeys(spine.levels, dict.fromkeys(["a", "detailed"], 1.0))
    return cellwise(Problem(schema, tables, spine=spine), ratio)


@needs_order
def test_what_a_good_order_makes_cheap_is_factorised_where_iterations_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "CHOLESKY_OPERATIONS", 4)
    assert Auto().choose(counties(1e4))[0] == Cholesky()
    assert_estimates_well(counties(1e4), "iterations would be long")
    assert Auto().choose(counties(3.0))[0] == AROUND
    for name in ("MOST_RANK", "MOST_PRODUCTS"):
        with monkeypatch.context() as limited:
            limited.setattr(auto, name, 4)
            assert Auto().choose(counties(1e4))[0] == AROUND


@needs_order
@pytest.mark.parametrize("ratio", [100.0, 1e4, 1e6])
def test_a_factor_that_costs_more_than_iterations_is_not_taken(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What iterations take grows as the root of the ratio."""
    monkeypatch.setattr(auto, "CHOLESKY_OPERATIONS", 4)
    problem = cellwise(gallery.cube(3, 3), ratio)
    as_dear = 1_000.0 * np.sqrt(ratio) * problem.observed.size
    for operations, expected in ((0.99 * as_dear, Cholesky()), (1.01 * as_dear, AROUND), (np.inf, AROUND)):
        monkeypatch.setattr(factorisation, "operations_by_cholmod", lambda matrix, operations=operations: operations)
        assert Auto().choose(problem)[0] == expected
    monkeypatch.setattr(auto, "PRODUCTS", np.inf)
    monkeypatch.setattr(factorisation, "operations_by_cholmod", lambda matrix: 0.0)
    moderate = Auto().choose(cellwise(gallery.cube(3, 3), 10.0))  # so few steps that no factor is looked at
    assert moderate[0] == AROUND


@needs_order
@examples(12)
@given(seed=st.integers(0, 10_000))
def test_operations_are_those_of_the_factor_that_is_made(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = cellwise(gallery.cube(*(int(k) for k in rng.integers(2, 4, 2))), 100.0)
    A = problem.constraint_matrix()
    matrix = sparse.csc_array(A @ sparse.diags_array(problem.variances) @ A.T)
    columns = np.diff(factorise(matrix).triangle()[0].indptr).astype(float)
    assert operations_by_cholmod(matrix) == (columns**2).sum()
    assert factorisation.products_of(problem.noise.entries() @ A.T) >= matrix.nnz


@pytest.mark.usefixtures("factorisations_are_dear")
@pytest.mark.parametrize(
    ("ratio", "expected"), [(3.0, AROUND), (10.0, AROUND), (1e4, AROUND), (3e6, AROUND), (1e8, ConjugateGradient())]
)
def test_ratios_of_variances_iterate_around_equal_ones_until_steps_are_too_many(
    ratio: float, expected: ConjugateGradient
) -> None:
    problem = cellwise(gallery.cube(3, 3), ratio)
    solver, reason = Auto().choose(problem)
    assert solver == expected
    assert f"{ratio:.3g}" in reason
    assert_estimates_well(problem, reason)


@pytest.mark.usefixtures("factorisations_are_dear")
def test_tables_measured_in_part_iterate_around_equal_variances() -> None:
    pairs = np.where(np.eye(3), np.inf, 1.0)
    problem = Problem(Schema({"a": 3, "b": 3}), {"a * b": 1.0, "b": 2.0, "a": pairs[0], "total": 1.0})
    solver, reason = Auto().choose(problem)
    assert solver == AROUND
    assert "tables are measured in part" in reason
    y = np.where(problem.unmeasured, 0.0, np.random.default_rng(1).standard_normal(problem.observed.size))
    np.testing.assert_allclose(blue(problem) @ y, blue(problem, "dense") @ y, atol=1e-7)


def test_it_is_the_same_solver_in_every_run() -> None:
    problem = cellwise(gallery.cube(6, 4), 1e4)
    assert len({Auto().choose(problem) for _ in range(3)}) == 1


@pytest.mark.usefixtures("factorisations_are_dear")
def test_what_has_no_equal_variances_nearby_iterates_on_the_constraints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest_structured, "MOST_EXACT_CELLS", 0)
    monkeypatch.setattr(direct, "MOST_OPERATOR_CELLS", 0)
    schema = Schema({"a": 5, "b": 5})
    exact_in_part = Problem(schema, {"detailed": np.arange(25.0).reshape(5, 5), "a": 2.0, "b": 1.0}, ["a"])
    band = sparse.diags_array([np.full(29, 0.4), np.ones(30), np.full(29, 0.4)], offsets=[-1, 0, 1])
    operator = Problem(schema, {"detailed": None, "a": None}, covariance=aslinearoperator(band))
    for problem, word in (
        (exact_in_part, "known exactly in some cells and not in others"),
        (operator, "without a method solve"),
    ):
        solver, reason = Auto().choose(problem)
        assert solver == ConjugateGradient()
        assert word in reason
        assert ": use " not in reason


def test_ratio_is_within_a_table_of_a_geounit_not_between_them() -> None:
    schema = Schema({"a": 2, "b": 3})
    assert variance_ratio(Problem(schema, {"a": 1.0, "b": 1e6, "total": 0.0})) == 1
    assert variance_ratio(Problem(schema, {"a": [1.0, 7.0], "b": [2.0, 1.0, 4.0], "total": np.inf})) == 7
    assert variance_ratio(Problem(schema, {"a": [1.0, np.inf], "b": 2.0}, ["b"])) == np.inf

"""The two passes against dense least squares, and against the solvers on the constraint matrix."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import TwoPass, UnsupportedProblemError, blue
from blue_solvers.testing import dot_test
from constraint_builders import Problem, Schema, Spine, gallery
from tests.helpers.spines import SCHEMA, consistent_measurements, dense_estimate, spine_problems


@given(spine_problems(), st.integers(0, 1000))
def test_estimates_and_variances_equal_dense_least_squares(problem: Problem, seed: int) -> None:
    y = consistent_measurements(problem, seed)
    expected, variances = dense_estimate(problem, y)
    P = blue(problem, "two_pass")
    # 1e-9 standard errors, and the rounding of the dense reference, whose counts are sums of hundreds of cells.
    deviations = np.sqrt(np.maximum(variances, 0))
    assert (abs(P @ y - expected) <= 1e-9 * deviations + 1e-12 * abs(y).max()).all()
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-6, atol=1e-9 * max(1.0, variances.max()))


@given(spine_problems())
def test_the_adjoint_is_the_transpose(problem: Problem) -> None:
    dot_test(blue(problem, "two_pass"), rng=0)


@given(spine_problems(), st.integers(0, 1000))
def test_the_constraint_matrix_gives_the_same(problem: Problem, seed: int) -> None:
    y = consistent_measurements(problem, seed)
    P = blue(problem, "two_pass")
    other = blue(problem, "cholesky")
    np.testing.assert_allclose(P @ y, other @ y, atol=1e-8 * abs(y).max())
    np.testing.assert_allclose(P.variances(), other.variances(), rtol=1e-7, atol=1e-9)


@given(spine_problems(special=False))
def test_the_estimate_is_consistent_and_says_so(problem: Problem) -> None:
    P = blue(problem)
    y = consistent_measurements(problem, 1)
    assert P.solver.choose(problem)[0] == TwoPass()
    assert P.info.exact
    assert P.estimate(y).info.violation <= 1e-9 * abs(y).max()


def test_a_problem_without_a_spine_is_one_geounit() -> None:
    for problem in (gallery.toy(), gallery.berkeley(), gallery.cube(3, 3)):
        y = np.random.default_rng(0).standard_normal((problem.observed.size, 3))
        np.testing.assert_allclose(blue(problem, "two_pass") @ y, blue(problem, "dense") @ y, atol=1e-12)


def test_redistricting_tables_with_their_recode() -> None:
    problem = gallery.pl94()
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 2))
    two_pass, sea_blue = blue(problem, "two_pass"), blue(problem, "sea_blue")
    np.testing.assert_allclose(two_pass @ y, sea_blue @ y, atol=1e-11)
    np.testing.assert_allclose(two_pass.variances(), sea_blue.variances(), rtol=1e-11)


def test_an_exact_total_in_every_county_is_kept() -> None:
    spine = Spine([-1, 0, 0], ["State", "County", "County"])
    schema = Schema({"sex": 2, "age": 3})
    problem = Problem(schema, {"State": {"detailed": 2.0}, "County": {"total": 0.0, "sex": 1.0}}, spine=spine,
                      desired={"State": ["total"], "County": ["total", "sex"]})  # fmt: skip
    rng = np.random.default_rng(0)
    y = rng.normal(20, 5, problem.observed.size)
    P = blue(problem)
    estimate = problem.desired.tables(P @ y)
    given_totals = problem.observed.tables(y)["County", "total"]
    np.testing.assert_allclose(estimate["County", "total"], given_totals, rtol=1e-14)
    np.testing.assert_allclose(estimate["State", "total"], [given_totals.sum()], rtol=1e-14)
    assert problem.desired.tables(P.variances())["County", "total"].tolist() == [0, 0]


def test_unequal_variances_within_a_table_are_refused_by_name_and_left_to_others() -> None:
    spine = Spine([-1, 0, 0], ["State", "County", "County"])
    problem = Problem(SCHEMA, {"County": {"a": np.array([[1.0, 2.0], [1.0, 1.0]])}}, spine=spine)
    with pytest.raises(UnsupportedProblemError, match="variances differ within a table of a geounit"):
        blue(problem, "two_pass")
    assert blue(problem).solver.choose(problem)[0].name == "cholesky"


def test_chains_of_geounits_without_measurements() -> None:
    spine = Spine([-1, 0, 1, 2, 3, 3], ["A", "B", "C", "D", "E", "E"])
    schema = Schema({"sex": 2, "age": 3})
    problem = Problem(schema, {"A": {"total": 1.0}, "E": {"detailed": 3.0}}, spine=spine, desired="all")
    y = consistent_measurements(problem, 3)
    expected, variances = dense_estimate(problem, y)
    P = blue(problem, "two_pass")
    np.testing.assert_allclose(P @ y, expected, rtol=1e-10)
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-10)

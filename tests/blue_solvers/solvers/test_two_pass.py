"""The two passes against dense least squares, and against the solvers on the constraint matrix."""

import numpy as np
import pytest
from hypothesis import given

from blue_solvers import TwoPass, UnsupportedProblemError, blue
from constraint_builders import Problem, Schema, Spine, gallery
from tests.helpers.spines import SCHEMA, consistent_measurements, spine_problems


@given(spine_problems(special=False))
def test_the_estimate_is_consistent_and_says_so(problem: Problem) -> None:
    P = blue(problem)
    y = consistent_measurements(problem, 1)
    assert P.solver.choose(problem)[0] == TwoPass()
    assert P.info.exact
    assert P.estimate(y).info.violation <= 1e-9 * abs(y).max()


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

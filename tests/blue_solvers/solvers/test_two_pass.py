"""The two passes against dense least squares, and against the solvers on the constraint matrix."""

import numpy as np
import pytest
from hypothesis import given

from blue_solvers import TwoPass, UnsupportedProblemError, blue
from constraint_builders import Problem, Spine
from tests.helpers.spines import SCHEMA, consistent_measurements, spine_problems


@given(spine_problems(special=False))
def test_the_estimate_is_consistent_and_says_so(problem: Problem) -> None:
    P = blue(problem)
    y = consistent_measurements(problem, 1)
    assert P.solver.choose(problem)[0] == TwoPass()
    assert P.info.exact
    assert P.estimate(y).info.violation <= 1e-9 * abs(y).max()


def test_unequal_variances_within_a_table_are_refused_by_name_and_left_to_others() -> None:
    spine = Spine([-1, 0, 0], ["State", "County", "County"])
    problem = Problem(SCHEMA, {"County": {"a": np.array([[1.0, 2.0], [1.0, 1.0]])}}, spine=spine)
    with pytest.raises(UnsupportedProblemError, match="variances differ within a table of a geounit"):
        blue(problem, "two_pass")
    assert blue(problem).solver.choose(problem)[0].name == "cholesky"

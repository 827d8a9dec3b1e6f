"""Tables that are known exactly in some cells and not in others, in iterations around equal variances."""

import numpy as np
import pytest

from blue_solvers import ConjugateGradient, blue
from blue_solvers.structured.nearest import exact_in_part, variance_ratio
from blue_solvers.testing import check_solver
from constraint_builders import Problem, Schema, gallery

SOLVER = ConjugateGradient(preconditioner="two_pass")


def test_every_law_of_the_contract_with_exact_and_unmeasured_cells_in_one_table() -> None:
    variances = np.random.default_rng(0).uniform(1, 3, (3, 4))
    variances[0, 1] = variances[2, 3] = 0
    variances[1, 2] = np.inf
    a = [1.0, 0.0, 2.0]
    problem = Problem(Schema({"a": 3, "b": 4}), {"total": 1.0, "a": a, "detailed": variances}, ["a", "b"])
    assert exact_in_part(problem).tolist() == [2, 5, 15]
    whole = Problem(problem.schema, {"total": 0.0, "a": a, "detailed": variances}, ["a", "b"])
    assert exact_in_part(whole).tolist() == [2, 5, 15]  # not of a table that is exact as a whole
    check_solver(SOLVER, problem)
    assert blue(problem, SOLVER).info.error_bound is None


def test_exact_or_not_measured_and_nothing_between() -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a": [0.0, np.inf, np.inf], "a * b": 2.0, "total": 1.0})
    check_solver(SOLVER, problem)


@pytest.mark.parametrize("count", [1, 40])
def test_iterations_are_those_without_exact_cells(count: int) -> None:
    plain = gallery.cube(4, 4)
    variances = np.random.default_rng(0).uniform(1, 3, plain.observed.size)
    some = variances.copy()
    some[np.random.default_rng(1).choice(plain.observed.size, count, replace=False)] = 0
    iterations = []
    for problem in (plain.with_variances(variances), plain.with_variances(some)):
        P = blue(problem, SOLVER)
        _, info = P.apply(np.sqrt(problem.variances) * np.random.default_rng(2).standard_normal(problem.observed.size))
        iterations.append(info.iterations)
        assert variance_ratio(problem) < 3
        assert info.error_bound < 1e-8
    assert abs(iterations[1] - iterations[0]) <= 2

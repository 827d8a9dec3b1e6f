"""Tables that are known exactly in some cells and not in others, in iterations around equal variances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from blue_solvers import ConjugateGradient, blue
from blue_solvers.structured.nearest import exact_in_part, variance_ratio
from blue_solvers.testing import check_solver, dot_test
from constraint_builders import Problem, Schema, gallery
from tests.helpers.correlated import dense_operator
from tests.helpers.effort import examples
from tests.helpers.spines import consistent_measurements, dense_estimate, spine_problems

SOLVER = ConjugateGradient(preconditioner="two_pass")


@examples(15)
@given(invented=spine_problems(), share=st.sampled_from([0.05, 0.3, 0.9]), seed=st.integers(0, 99))
def test_any_cells_of_any_spine(invented: Problem, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    variances = np.where(rng.random(invented.observed.size) < share, 0.0, rng.uniform(1, 9, invented.observed.size))
    problem = invented.with_variances(np.where(invented.unmeasured, np.inf, variances))
    assume(SOLVER.supports(problem) is None)
    y = consistent_measurements(problem, seed)
    expected, variances = dense_estimate(problem, y)
    P = blue(problem, SOLVER)
    assert abs(P @ y - expected).max() <= 1e-7 * max(1.0, abs(y).max())
    np.testing.assert_allclose(P.variances(), variances, rtol=1e-6, atol=1e-9)
    dot_test(P)


def test_every_law_of_the_contract_with_exact_and_unmeasured_cells_in_one_table() -> None:
    variances = np.random.default_rng(0).uniform(1, 3, (3, 4))
    variances[0, 1] = variances[2, 3] = 0
    variances[1, 2] = np.inf
    a = [1.0, 0.0, 2.0]
    problem = Problem(Schema({"a": 3, "b": 4}), {"total": 1.0, "a": a, "detailed": variances}, ["a", "b"])
    assert exact_in_part(problem).tolist() == [2, 5, 15]
    check_solver(SOLVER, problem)
    assert blue(problem, SOLVER).info.error_bound is None


def test_exact_or_not_measured_and_nothing_between() -> None:
    problem = Problem(Schema({"a": 3, "b": 2}), {"a": [0.0, np.inf, np.inf], "a * b": 2.0, "total": 1.0})
    check_solver(SOLVER, problem)


def test_exact_cells_beside_equalities() -> None:
    schema = Schema({"a": 3, "b": 4})
    variances = np.random.default_rng(0).uniform(1, 3, (3, 4))
    variances[0, 1] = variances[2, 3] = 0
    E = np.zeros((1, 16))
    E[0, [1, 2]] = 1
    problem = Problem(schema, {"total": 1.0, "a": 2.0, "detailed": variances}, equalities=(E, [17.0]))
    expected, offset, errors = dense_operator(problem)
    P = blue(problem, SOLVER)
    np.testing.assert_allclose(P @ np.eye(16), expected, atol=1e-9)
    np.testing.assert_allclose(P.offset, offset, atol=1e-9)
    np.testing.assert_allclose(P.variances(), errors, atol=1e-9)
    y = np.random.default_rng(0).normal(5, 2, 16)
    x = P @ y + P.offset
    np.testing.assert_allclose(x[problem.exact], y[problem.exact], atol=1e-12)
    np.testing.assert_allclose(E @ x, [17.0], atol=1e-12)


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

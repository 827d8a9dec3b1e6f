"""The paper's examples of what goes wrong where its assumptions fail, and the exact estimate that does not."""

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import SOLVERS, ConjugateGradient, SeaBlue, Solver, blue
from constraint_builders import Problem, Schema
from tests.helpers.every import every

SCHEMA = Schema({"a": 2, "b": 2})
EXACT: list[Solver] = [
    *(solver() for name, solver in SOLVERS.items() if name not in ("sea_blue", "two_pass", "areas")),
    ConjugateGradient(preconditioner="two_pass"),
]


@every("solver", EXACT)
def test_example_12_correlated_tables_give_the_total_variance_four(solver: Solver) -> None:
    """The table over a is the noisy sum of the noisy detailed one: it adds nothing, where weighing gives 4 + 8/25."""
    rows = np.kron(np.eye(2), np.ones((1, 2)))
    covariance = np.block([[np.eye(4), rows.T], [rows, rows @ rows.T + np.eye(2)]])
    problem = Problem(SCHEMA, {"detailed": None, "a": None}, ["total"], covariance=sparse.csr_array(covariance))
    P = blue(problem, solver)
    np.testing.assert_allclose(P.variances(), [4.0], rtol=1e-9)
    np.testing.assert_allclose(P.T @ np.ones(1), [1, 1, 1, 1, 0, 0], atol=1e-8)


@every("solver", EXACT)
def test_example_13_unequal_variances_give_the_total_at_most_three(solver: Solver) -> None:
    """Each row is known twice, with variances 1 and 22, 11 and 2."""
    problem = Problem(SCHEMA, {"a": [1.0, 11.0], "detailed": [[11.0, 11.0], [1.0, 1.0]]}, ["total"])
    variance = blue(problem, solver).variances()[0]
    assert variance == pytest.approx(22 / 23 + 22 / 13, rel=1e-9)
    assert variance <= 3
    heuristic = blue(problem, SeaBlue())
    np.testing.assert_allclose(heuristic.variances(), [8.0], rtol=1e-12)
    heuristic @ np.zeros(6)
    assert not heuristic.info.exact
    assert "heuristic" in heuristic.info.reason

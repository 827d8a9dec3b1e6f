"""Recodes that cross so that no basis of group sums serves all: relations by exact elimination, every solver agrees."""

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import every

# Three pairs of three levels: one more relation than their pairwise common coarsenings show.
SCHEMA = Schema({"a": 3, "s": 2}, recodes={"a": {"p": [0, 0, 1], "q": [0, 1, 0], "r": [1, 0, 0]}})
OBSERVED = {"p": 1.0, "q": 2.0, "r": 1.5, "s": 1.0, "p * s": 2.0}
SPINE = Spine([-1, 0, 0], ["State", "County", "County"])


@every("solver", ["auto", "sea_blue", "two_pass", "cholesky", "cg"])
def test_every_solver_agrees(solver: str) -> None:
    problem = Problem(SCHEMA, OBSERVED, desired="all")
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 3))
    P, reference = blue(problem, solver), blue(problem, "dense")
    np.testing.assert_allclose(P @ y, reference @ y, atol=1e-8)
    np.testing.assert_allclose(P.variances(), reference.variances(), rtol=1e-8)


@every("desired", [["p"], ["q"], ["q", "r", "p * s"]])
@every(
    "observed", [{"County": {"detailed": 1.0}}, {"State": {"p": 1.0, "r": 2.0}, "County": {"detailed": 1.0, "s": 3.0}}]
)
def test_recodes_may_be_desired_that_were_not_observed(observed: dict, desired: list[str]) -> None:
    problem = Problem(SCHEMA, observed, spine=SPINE, desired=desired)
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 3))
    reference = blue(problem, "dense")
    for solver in ("auto", "two_pass", "cholesky", "cg"):
        P = blue(problem, solver)
        np.testing.assert_allclose(P @ y, reference @ y, atol=1e-8)
        np.testing.assert_allclose(P.variances(), reference.variances(), atol=1e-9)
    with pytest.raises(ValueError, match="not estimable"):
        Problem(SCHEMA, {"State": {"s": 1.0}}, spine=SPINE, desired={"State": desired})

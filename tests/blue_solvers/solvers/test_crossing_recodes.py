"""Recodes that cross so that no basis of group sums serves all: relations by exact elimination, every solver agrees."""

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import every
from tests.helpers.exact_reference import rational_rank

# Three pairs of three levels: one more relation than their pairwise common coarsenings show.
SCHEMA = Schema({"a": 3, "s": 2}, recodes={"a": {"p": [0, 0, 1], "q": [0, 1, 0], "r": [1, 0, 0]}})
OBSERVED = {"p": 1.0, "q": 2.0, "r": 1.5, "s": 1.0, "p * s": 2.0}
SPINE = Spine([-1, 0, 0], ["State", "County", "County"])


def test_relations_are_all_that_hold() -> None:
    problem = Problem(SCHEMA, OBSERVED)
    A, M = problem.constraint_matrix(), problem.marginal_matrix()
    assert problem.recodes_cross
    assert abs(A @ M).max() == 0
    assert A.shape[0] == problem.rank == problem.observed.size - rational_rank((M @ M.T).toarray())
    assert np.array_equal(A.data, np.round(A.data))


@every("solver", ["auto", "sea_blue", "two_pass", "cholesky", "cg"])
def test_every_solver_agrees(solver: str) -> None:
    problem = Problem(SCHEMA, OBSERVED, desired="all")
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 3))
    P, reference = blue(problem, solver), blue(problem, "dense")
    np.testing.assert_allclose(P @ y, reference @ y, atol=1e-8)
    np.testing.assert_allclose(P.variances(), reference.variances(), rtol=1e-8)


def test_pairs_of_levels_determine_the_levels() -> None:
    observed = {"State": {"p": 1.0, "q": 2.0}, "County": {"r": 1.5, "s": 1.0, "detailed": 2.0}}
    problem = Problem(SCHEMA, observed, spine=SPINE, desired={"State": ["a", "detailed"], "County": "all"})
    y = np.random.default_rng(0).standard_normal((problem.observed.size, 3))
    P, reference = blue(problem), blue(problem, "cholesky")
    assert P.solver.choose(problem)[0].name == "two_pass"
    np.testing.assert_allclose(P @ y, reference @ y, atol=1e-12)
    np.testing.assert_allclose(P.variances(), reference.variances(), rtol=1e-9)


def test_what_stays_open_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table \('County', 'a'\).* is not estimable"):
        Problem(SCHEMA, {"State": {"p": 1.0, "q": 2.0, "r": 1.0}, "County": {"r": 1.5}}, spine=SPINE,
                desired={"County": ["a"]})  # fmt: skip


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

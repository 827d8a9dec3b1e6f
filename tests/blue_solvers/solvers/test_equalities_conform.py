"""`check_solver` on problems with equalities A x = b, b not 0: every law, every solver, and solvers that break one."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blue_solvers import SOLVERS, ConjugateGradient, Solver
from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.testing import check_solver, problems
from blue_solvers.testing.possible_truths import PossibleTruths
from constraint_builders import Problem, Schema
from tests.helpers.broken_solvers import BrokenSolver
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.invent import Invented, Kind, taken

SEEDS = st.integers(0, 100_000)
FLAT = Kind(spine=False, decades=2.0)
KINDS = {
    "flat": FLAT,
    "flat, variances by cell": replace(FLAT, cellwise=True),
    "flat, correlated": replace(FLAT, covariance="sparse"),
    "flat, shared noise": replace(FLAT, covariance="shared"),
    "spine": Kind(decades=2.0),
    "areas that are sets": Kind(areas="sets", decades=2.0),
    "areas with weights": Kind(areas="weights", decades=2.0),
}
PLAIN: list[Solver] = [solver() for solver in SOLVERS.values()]
CONFIGURED = [
    *PLAIN,
    ConjugateGradient(preconditioner=None),
    ConjugateGradient(preconditioner="two_pass"),
    ConjugateGradient(rows="independent"),
]
ALWAYS = {"flat", "spine", "areas with weights"}  # with solvers that are configured; with plain ones every kind
WITH_EQUALITIES = [name for name in problems() if name.startswith("equalities")]


def has_values(described: Description) -> bool:
    """Whether there are equalities, and not all of them to 0."""
    return described.equalities is not None and bool(described.equalities[1].any())


def drawn(seed: int, kind: Kind) -> tuple[Invented, Problem] | None:
    """The first problem from a seed on whose equalities have right-hand sides and in which something is not known."""
    inventions = taken(range(seed, seed + 300), kind, has_values)
    return next((own for own in inventions if (own[0].reference.variances > 1e-9).all()), None)


def pairs() -> list[Any]:
    """Every kind of problem with every solver, of which some are for ``-m slow``."""
    rare = pytest.mark.slow
    return [
        pytest.param(kind, solver, id=f"{kind}-{solver!r}", marks=() if solver in PLAIN or kind in ALWAYS else rare)
        for kind in KINDS
        for solver in CONFIGURED
    ]


@pytest.mark.few(3)
@pytest.mark.parametrize(("kind", "solver"), pairs())
@examples(25, 1)
@given(seed=SEEDS)
def test_every_law_of_drawn_problems(kind: str, solver: Solver, seed: int) -> None:
    found = drawn(seed, KINDS[kind])
    with suppress(UnsupportedProblemError):  # where `supports` says so too: that is the first law
        check_solver(solver, found[1])


BROKEN = {
    "offset forgotten": "unbiased: P @ x + P.offset is x where A x = b",
    "offset twice": "unbiased: P @ x + P.offset is x where A x = b",
    "offset of y": "unbiased: P @ x + P.offset is x where A x = b",
    "offset applied": "linear",
    "offset of the adjoint": "adjoint",
    "equality dropped": "equalities hold: E (P @ y + P.offset) = e",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", WITH_EQUALITIES)
@every("flaw", BROKEN)
def test_a_wrong_solver_breaks_the_law_that_says_so(name: str, flaw: str) -> None:
    """The message names the solver, the problem, the law and, where there is one, the cell."""
    problem = problems()[name]
    if flaw == "equality dropped" and problem.desired.names != problem.observed.names:
        law = "P is the BLUE's"  # what is estimated is unbiased still, and no equality is among it
    else:
        law = BROKEN[flaw]
    with pytest.raises(AssertionError) as raised:
        check_solver(BrokenSolver(flaw=flaw), problem)
    assert str(raised.value).startswith("solver 'broken' on Problem(")
    assert f"breaks {law!r}: " in str(raised.value)


@pytest.mark.few(0)
def test_check_solver_on_its_own_problems_names_the_problem() -> None:
    """A solver that knows nothing of equalities is right until the first of them."""
    with pytest.raises(AssertionError, match="solver 'broken' on equalities breaks 'equalities hold"):
        check_solver(BrokenSolver(flaw="equality dropped"))


@pytest.mark.few(0)
@every("name", list(problems()))
def test_possible_truths_satisfy_what_is_known(name: str) -> None:
    """Of every kind of problem; and they are all: as many directions as there are consistent vectors."""
    problem, rng = problems()[name], np.random.default_rng(3)
    if problem.observed.size > 200:
        problem = Problem(Schema({"a": 2}), {"a": 1.0, "total": 1.0})
    truths = PossibleTruths.of(problem)
    z = truths.start[:, None] + truths.differences(rng, 2)
    A, b = problem.equations("all")
    np.testing.assert_allclose(A @ (truths.observed @ z), np.tile(b[:, None], 2), atol=1e-8)
    if problem.equalities is not None:
        E, e = problem.equalities
        assert e.any()
        np.testing.assert_allclose(E @ (truths.observed @ z), np.tile(e[:, None], 2), atol=1e-8)
    measured = ~problem.unmeasured
    reached = np.linalg.matrix_rank((truths.observed @ truths.directions)[measured])
    assert reached == measured.sum() - np.linalg.matrix_rank(A.toarray())

"""`check_solver` on problems with equalities A x = b, b not 0: every law, every solver, and solvers that break one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from blue_solvers import SOLVERS, AreaSolver, ConjugateGradient, Dense, Solver, blue
from blue_solvers.contract import Info, Prepared, UnsupportedProblemError
from blue_solvers.testing import check_solver, problems
from blue_solvers.testing.conformance import PROPERTIES
from blue_solvers.testing.possible_truths import PossibleTruths
from constraint_builders import Areas, Problem, Schema
from constraint_builders.arrays import Float
from tests.helpers.effort import examples
from tests.helpers.every import every
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.invent import Invented, Kind, invent

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
    for s in range(seed, seed + 300):
        found = invent(s, kind, has_values)
        if found is None or not (found.reference.variances > 1e-9).all():
            continue
        with suppress(ValueError):
            return found, found.description.problem()
    return None


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
    assert found is not None
    with suppress(UnsupportedProblemError):  # where `supports` says so too: that is the first law
        check_solver(solver, found[1])


def test_equalities_about_what_nothing_determines_violate_nothing() -> None:
    """An equality about a cell that nothing else determines says nothing of the estimate."""
    found = drawn(0, KINDS["areas with weights"])
    assert found is not None
    check_solver(AreaSolver(), found[1])


class Spoilt(Prepared):
    """The dense reference's preparation, spoilt in what equalities ask of it."""

    def __init__(self, problem: Problem, flaw: str) -> None:
        self.problem, self.flaw = problem, flaw
        self._whole = Dense().plan(problem)
        self._good = Dense().plan(problem.replace(equalities=None)) if flaw == "equality dropped" else self._whole
        changed = {
            "offset forgotten": lambda own: 0 * own,
            "offset twice": lambda own: 2 * own,
            "offset of y": lambda own: own + 1e-3,
        }
        self.offset = changed.get(flaw, lambda own: own)(self._good.offset)
        self.info = Info("spoilt", exact=True, reason="to be found out")

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, _ = self._good.apply(Y)
        added = self.offset if Y.ndim == 1 else self.offset[:, None]
        return X + added * (self.flaw == "offset applied"), self.info

    def adjoint(self, V: Float) -> Float:
        return self._good.adjoint(V + 1.0 if self.flaw == "offset of the adjoint" else V)

    def variances(self) -> Float:
        return self._good.variances()


@dataclass(frozen=True)
class SpoiltSolver(Solver):
    name: ClassVar[str] = "spoilt"
    flaw: str = ""

    def refusal(self, problem: Problem) -> str | None:
        return Dense().refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        return Spoilt(problem, self.flaw)


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
def test_a_solver_without_a_flaw_breaks_none(name: str) -> None:
    check_solver(SpoiltSolver(), problems()[name])


@pytest.mark.few(0)
@every("flaw", BROKEN)
@every("name", WITH_EQUALITIES)
def test_a_wrong_solver_breaks_the_law_that_says_so(name: str, flaw: str) -> None:
    """The message names the solver, the problem, the law and, where there is one, the cell."""
    problem = problems()[name]
    if flaw == "equality dropped" and problem.desired.names != problem.observed.names:
        law = "P is the BLUE's"  # what is estimated is unbiased still, and no equality is among it
    else:
        law = BROKEN[flaw]
    with pytest.raises(AssertionError) as raised:
        check_solver(SpoiltSolver(flaw=flaw), problem)
    assert str(raised.value).startswith("solver 'spoilt' on Problem(")
    assert f"breaks {law!r}: " in str(raised.value)


@pytest.mark.few(0)
def test_check_solver_on_its_own_problems_names_the_problem() -> None:
    """A solver that knows nothing of equalities is right until the first of them."""
    with pytest.raises(AssertionError, match="solver 'spoilt' on equalities breaks 'equalities hold"):
        check_solver(SpoiltSolver(flaw="equality dropped"))


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


def test_offsets_of_one_cell_by_hand() -> None:
    """Two counts whose sum is known to be 10, both measured with variance 1."""
    problem = Problem(Schema({"a": 2}), {"a": 1.0}, equalities=(np.ones((1, 2)), [10.0]))
    for solver in SOLVERS.values():
        if solver().supports(problem) is None:
            check_solver(solver(), problem)
            P = blue(problem, solver())
            np.testing.assert_allclose(P.offset, [5.0, 5.0], atol=1e-9)
            np.testing.assert_allclose(P @ np.array([4.0, 8.0]) + P.offset, [3.0, 7.0], atol=1e-9)


def test_drawn_problems_are_of_every_kind() -> None:
    """Areas that cross, that hold the same leaves, none or one, weights below 0; exact, unmeasured, zeros, spines."""
    seen: dict[str, int] = {}
    looked: dict[str, Callable[[Invented], bool]] = {
        "exact": lambda own: bool((own.description.variances == 0).any()),
        "unmeasured": lambda own: bool(np.isinf(own.description.variances).any()),
        "zeros": lambda own: bool(own.description.zeros),
        "spine": lambda own: own.description.parent is not None,
        "several columns of E": lambda own: bool((np.count_nonzero(own.description.equalities[0], axis=1) > 1).any()),
        "equalities that follow": lambda own: (
            np.linalg.matrix_rank(own.description.equalities[0]) < len(own.description.equalities[0])
        ),
    }
    of_areas: dict[str, Callable[[np.ndarray], bool]] = {
        "empty area": lambda S: bool((S == 0).all(axis=1).any()),
        "area of one leaf": lambda S: bool((np.count_nonzero(S[: -S.shape[1]], axis=1) == 1).any()),
        "areas that are the same": lambda S: len(np.unique(S[: -S.shape[1]], axis=0)) < len(S) - S.shape[1],
        "weight below 0": lambda S: bool((S < 0).any()),
        "areas that cross": _crossing,
    }
    for kind in ("spine", "areas with weights"):
        for seed in range(0, 480, 48):
            found = drawn(seed, KINDS[kind])
            if found is None:
                continue
            for what, holds in looked.items():
                seen[what] = seen.get(what, 0) + holds(found[0])
            if found[0].description.incidence is not None:
                for what, of in of_areas.items():
                    seen[what] = seen.get(what, 0) + of(found[0].description.incidence)
    assert min(seen.get(what, 0) for what in (*looked, *of_areas)) >= 1, seen


def _crossing(S: np.ndarray) -> bool:
    sets = [frozenset(np.flatnonzero(row)) for row in S]
    return any(one & other and not (one <= other or other <= one) for one in sets for other in sets)


@pytest.mark.few(0)
def test_areas_in_pieces_that_nothing_ties() -> None:
    """Two geographies side by side, an empty area, twice the same, and weights below 0; an equality across both."""
    incidence = [[1, 1, 0, 0], [1, 0, -1, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    areas = Areas(["p", "q", "r", "s"], {"Region": [0, 0, 1, 1], "Odd": incidence})
    schema = Schema({"a": 2, "b": 2})
    observed = {"Region": {"a": 2.0, "total": 0.5}, "Odd": {"b": 3.0}, "Leaf": {"detailed": 4.0}}
    plain = Problem(schema, observed, areas=areas, desired="all")
    E = np.zeros((2, plain.observed.size))
    E[0, [0, 5, -1]] = 1.0, 2.0, -1.0
    E[1, -5] = 1.0
    truth = plain.marginal_matrix() @ np.arange(1.0, plain.domain.size + 1)
    problem = plain.replace(equalities=(sparse.csr_array(E), E @ truth))
    taken = [solver for solver in CONFIGURED if solver.supports(problem) is None]
    assert len(taken) >= 5
    for solver in taken:
        report = check_solver(solver, problem)
        assert report.compared == report.problems
        assert report.laws == PROPERTIES

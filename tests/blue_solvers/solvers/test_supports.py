"""What a solver supports is what `blue` takes, of every kind of problem, and what the table of capabilities says."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import blue_solvers
from blue_solvers import (
    SOLVERS,
    ConjugateGradient,
    ConvergenceError,
    Prepared,
    SeaBlue,
    Solver,
    UnsupportedProblemError,
    blue,
)
from blue_solvers.testing import check_solver
from constraint_builders import Areas, LowRankPlusDiagonal, Problem, Schema, Spine, gallery
from tests.feature_support.capabilities import as_markdown, capabilities
from tests.helpers.effort import examples
from tests.helpers.every import cases, every
from tests.helpers.oracles.description import Description
from tests.helpers.oracles.invent import Kind, all_kinds, invent, plain_tables
from tests.helpers.places import README
from tests.helpers.refused import refuses

CONFIGURED: list[Solver] = [
    *(solver() for solver in SOLVERS.values()),
    ConjugateGradient(preconditioner=None),
    ConjugateGradient(preconditioner="multigrid"),
    ConjugateGradient(preconditioner="two_pass"),
    ConjugateGradient(rows="independent"),
]
SEEDS = st.integers(0, 10**6)
KINDS = st.sampled_from(all_kinds())


def assert_supports_says_what_blue_takes(problem: Problem) -> None:
    for solver in CONFIGURED:
        reason = solver.supports(problem)
        if reason is None:
            assert blue(problem, solver).shape == (problem.desired.size, problem.observed.size)
            continue
        with pytest.raises((UnsupportedProblemError, ConvergenceError)) as refused:
            blue(problem, solver)
        assert reason
        assert reason in str(refused.value)


def described(seed: int, kind: Kind) -> Description:
    invented = invent(seed, kind)
    assume(invented is not None)
    return invented.description


def made(make: Callable[..., Problem], *given: Any, **options: Any) -> Problem:
    """A problem, where there is one of that description."""
    with suppress(ValueError):
        return make(*given, **options)
    assume(False)
    raise AssertionError


class Solved(LinearOperator):
    """A covariance by its products and those of its inverse."""

    def __init__(self, covariance: np.ndarray) -> None:
        super().__init__(np.dtype(float), covariance.shape)
        self.covariance = covariance

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        return self.covariance @ X

    def _adjoint(self) -> LinearOperator:
        return self

    def solve(self, V: np.ndarray) -> np.ndarray:
        return np.linalg.solve(self.covariance, V)


@examples(20)
@given(seed=SEEDS, solves=st.booleans(), definite=st.booleans())
def test_covariance_operators(seed: int, solves: bool, definite: bool) -> None:
    own = plain_tables(seed, covariance="sparse", decades=1.0)
    covariance = own.covariance.toarray()
    covariance = (
        covariance if definite else covariance - np.linalg.eigvalsh(covariance).mean() * np.eye(len(covariance))
    )
    assume((np.diag(covariance) > 0).all())
    problem = made(own.with_covariance, Solved(covariance) if solves else aslinearoperator(covariance))
    if definite:
        assert_supports_says_what_blue_takes(problem)
        return
    reason = SOLVERS["dense"]().supports(problem)
    assert (reason is None) == bool((np.linalg.eigvalsh(covariance) > 0).all())
    if reason is not None:
        refuses(r"not positive (semi-)?definite", blue, problem, "dense", error=UnsupportedProblemError)


@examples(30, 3)
@given(seed=SEEDS, kind=KINDS, off=st.sampled_from([0.0, 1e-3, 1.0]))
def test_equalities_that_may_contradict(seed: int, kind: Kind, off: float) -> None:
    description = described(seed, replace(kind, covariance=""))
    assume(description.equalities is not None)
    E, b = description.equalities
    twice = np.vstack([E, 2 * E[:1]]), np.concatenate([b, 2 * b[:1] + off * (1 + abs(b[:1]))])
    assert_supports_says_what_blue_takes(made(replace(description, equalities=twice).problem))


@examples(30, 3)
@given(seed=SEEDS, rows=st.integers(1, 5), near=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3]), b=st.booleans())
def test_anybodys_equations(seed: int, rows: int, near: float, b: bool) -> None:
    rng = np.random.default_rng(seed)
    A = rng.integers(-2, 3, (rows, 6)).astype(float)
    A = np.vstack([A, A[0] + near * rng.standard_normal(6)])
    values = rng.choice([0.0, 1.0, 1.5], len(A)) if b else np.zeros(len(A))
    variances = 10.0 ** rng.uniform(-3, 3, 6) * rng.choice([0, 1, 1, 1], 6)
    if rng.random() < 0.3:
        U = np.sqrt(variances)[:, None] * rng.standard_normal((6, 1))
        problem = Problem.from_matrix(A, LowRankPlusDiagonal(variances, U), values)
    else:
        problem = Problem.from_matrix(A, variances, values)
    assert_supports_says_what_blue_takes(problem)


def test_equalities_may_speak_of_any_number_of_cells_that_nothing_measured_determines() -> None:
    """Of one that does nothing is told; two with the same sum of such cells say what they differ by."""
    schema = Schema({"a": 60, "b": 60})
    observed = {"a": 1.0, "b": 1.0, "detailed": np.inf}
    n = Problem(schema, observed, ["a"]).observed.size
    row = np.concatenate([np.zeros(120), np.ones(30), np.zeros(n - 150)])
    other = row + np.eye(n)[3]
    for rows, values in (([row], [30.0]), ([row, other], [30.0, 37.5])):
        problem = Problem(schema, observed, ["a"], equalities=(sparse.csr_array(rows), values))
        P, Q = blue(problem, "two_pass"), blue(problem, "cholesky")
        y = np.where(problem.unmeasured, 0.0, np.random.default_rng(0).normal(60, 1, n))
        np.testing.assert_allclose(P @ y + P.offset, Q @ y + Q.offset, atol=1e-10)
        np.testing.assert_allclose(P.variances(), Q.variances(), atol=1e-12)
    assert (P @ y + P.offset)[3] == pytest.approx(7.5)


@dataclass(frozen=True)
class Liar(Solver):
    """The closed form, of which what it supports is not true."""

    name: ClassVar[str] = "liar"
    flaw: str = ""

    def refusal(self, problem: Problem) -> str | None:
        return None if self.flaw == "takes too much" else SeaBlue().refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        if (reason := SeaBlue().refusal(problem)) is not None:
            raise UnsupportedProblemError(reason)
        if self.flaw == "breaks" and problem.exact.any():
            raise KeyError("exact")
        return SeaBlue().plan(problem)


def what_a_liar_says(self: Liar, problem: Problem) -> str | None:
    """As every solver's `supports`, but for flaws."""
    if self.flaw == "refuses too much" and problem.exact.any():
        return "some cells are exact"
    if self.flaw == "says another thing" and problem.spine is not None:
        return "it has geography"
    return Solver.supports(self, problem)


Liar.supports = what_a_liar_says  # type: ignore[method-assign]  # in the body it would be taken for the hook


@every("flaw", ["takes too much", "refuses too much", "says another thing", "breaks"])
def test_check_solver_finds_who_does_not_support_what_it_says(flaw: str) -> None:
    told = {
        "takes too much": "it is None, but blue raises UnsupportedProblemError",
        "refuses too much": "it says 'some cells are exact', but blue takes the problem",
        "says another thing": "it says 'it has geography', but blue UnsupportedProblemError: solver 'liar' cannot",
        "breaks": "blue raises KeyError: 'exact'",
    }
    refuses(rf"solver 'liar' on .* breaks 'supports': .*{told[flaw]}", check_solver, Liar(flaw), error=AssertionError)


def test_check_solver_finds_nothing_in_the_truth() -> None:
    assert "supports_what_blue_takes" in check_solver(Liar()).laws
    check_solver(Liar(), gallery.toy())


CAPABILITIES = capabilities()


@every("capability", CAPABILITIES)
def test_the_call_makes_the_solver(capability: object) -> None:
    call = capability.call  # type: ignore[attr-defined]
    solver = (
        eval(call, {own.__name__: own for own in blue_solvers.SOLVERS.values()})
        if "(" in call
        else blue_solvers.SOLVERS[call]()
    )
    assert solver == capability.solver  # type: ignore[attr-defined]


def test_every_solver_but_auto_is_in_the_table() -> None:
    assert {c.solver.name for c in CAPABILITIES} == set(blue_solvers.SOLVERS) - {"auto"}


def test_readme_shows_the_table() -> None:
    assert as_markdown() in README.read_text()


def test_areas_of_too_many_components_are_left_to_others() -> None:
    schema, areas = Schema({f"v{i}": 2 for i in range(13)}), Areas(2, {"All": [0, 0]})
    problem = Problem(schema, {"All": {"total": 1.0}, "Leaf": {"detailed": 1.0}}, areas=areas)
    assert "up to 8,193 components, more than 4,096" in (SOLVERS["areas"]().supports(problem) or "")


SEX, SPINE = Schema({"sex": 2}), Spine([-1, 0, 0], ["State", "County", "County"])


@cases(
    (
        Problem(SEX, {"County": {"sex": [[1.0, 2.0], [1.0, 1.0]]}}, spine=SPINE),
        "variances differ within a table of a g",
    ),
    (Problem(SEX, {"sex": 1.0, "total": 1.0}, equalities=([[1.0, 1e8, 0.0]], [5.0])), "variances are too unequal"),
    (Problem.from_summing_matrix([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]], 1.0), "do not form a tree"),
    (Problem.from_summing_matrix([[2, 1], [1, 0], [0, 1]], 1.0), "do not form a tree"),
    (Problem.from_summing_matrix([[1, 1], [0, 0]], 1.0), "do not form a tree"),
)
def test_the_two_passes_say_what_they_leave_to_others(problem: Problem, said: str) -> None:
    refuses(said, blue, problem, "two_pass", error=UnsupportedProblemError)
    assert blue(problem).solver.choose(problem)[0].name not in ("two_pass", "sea_blue")

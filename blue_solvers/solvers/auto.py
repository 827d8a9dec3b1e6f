"""Choosing a solver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from blue_solvers.nearest_structured import variance_ratio
from blue_solvers.solver import Float, Info, Prepared, Solver
from blue_solvers.solvers.cholesky import Cholesky
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from blue_solvers.solvers.sea_blue import SeaBlue
from blue_solvers.solvers.two_pass import TwoPass
from constraint_builders import Problem

CHOLESKY_RANK = (
    20_000  # above it the factor of A Sigma A', nearly dense for overlapping tables, costs more than iterating
)
TWO_PASS_RATIO = 100  # variances within a table in this ratio take 115 estimates at most; above it Jacobi can win


@dataclass(frozen=True)
class Auto(Solver):
    """The cheapest solver that gives the BLUE; `info` says which and why. Never a heuristic."""

    name: ClassVar[str] = "auto"

    def supports(self, problem: Problem) -> str | None:
        """Every problem."""
        return self.choose(problem)[0].supports(problem)

    def prepare(self, problem: Problem) -> Prepared:
        """Choose, and prepare that solver."""
        solver, reason = self.choose(problem)
        prepared = solver.prepare(problem)
        return _Chosen(prepared, reason)

    def choose(self, problem: Problem) -> tuple[Solver, str]:
        """The solver for a problem, and why."""
        if SeaBlue().supports(problem) is None and problem.table_variances is not None:
            return SeaBlue(), "noise is uncorrelated and of equal variance within tables (A1-A3): closed form, exact"
        special = problem.spine is not None or problem.zeros is not None or problem.equalities is not None
        if special and TwoPass().supports(problem) is None:
            return (
                TwoPass(),
                "noise is uncorrelated and of equal variance within every table of a geounit: two passes, exact",
            )
        cholesky = Cholesky()
        unsupported = cholesky.supports(problem)
        why = _why_not_closed_form(problem)
        if unsupported is not None:
            return ConjugateGradient(), f"{why}, and {unsupported.partition(':')[0]}: iterations"
        rank = problem.rank
        if rank <= CHOLESKY_RANK:
            return cholesky, f"{why}: {rank:,} constraints are few enough to factorise"
        return _iterations(problem, f"{why}: {rank:,} constraints are many to factorise, so iterations")


def _iterations(problem: Problem, why: str) -> tuple[Solver, str]:
    """Around the nearest structured problem unless its variances are too far away, otherwise on all rows."""
    around = ConjugateGradient(preconditioner="two_pass")
    unsupported = around.supports(problem)
    if unsupported is not None:
        return ConjugateGradient(), f"{why} on the constraints; not around equal variances, since {_first(unsupported)}"
    ratio = variance_ratio(problem)
    if ratio > TWO_PASS_RATIO:
        return ConjugateGradient(), (
            f"{why} on the constraints: those around equal variances may be many, the ratio within a table being up to "
            f"{ratio:.3g}"
        )
    return around, f"{why} around equal variances: the ratio within a table is at most {ratio:.3g}"


def _first(reason: str) -> str:
    """What is the matter, without the advice after it."""
    return reason.partition(": use ")[0]


def _why_not_closed_form(problem: Problem) -> str:
    if problem.schema is None:
        return "equations without tables"
    if problem.covariance is not None:
        return "noise is correlated (A2 fails)"
    return "variances differ within tables (A3 fails)"


class _Chosen(Prepared):
    """Another solver's preparation that also says why it was chosen."""

    def __init__(self, prepared: Prepared, reason: str) -> None:
        self.problem = prepared.problem
        self.offset = prepared.offset
        self._prepared = prepared
        self._reason = reason

    def apply(self, Y: Float) -> Float:
        return self._prepared.apply(Y)

    def adjoint(self, V: Float) -> Float:
        return self._prepared.adjoint(V)

    def variances(self) -> Float:
        return self._prepared.variances()

    @property
    def info(self) -> Info:
        info = self._prepared.info
        return replace(info, reason=f"auto chose {info.solver}: {self._reason}")

"""SEA BLUE: collection step and down pass, in closed form where variances are equal within tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blue_solvers.components import Components, components_of
from blue_solvers.components.assumptions import flat_refusal
from blue_solvers.contract import Info, Prepared, Solver
from blue_solvers.solvers.oblique_down_pass import ObliqueDownPass
from constraint_builders import Problem
from constraint_builders.arrays import Float


@dataclass(frozen=True)
class SeaBlue(Solver):
    """The paper's Algorithms 1 and 2, both branches, for any tables.

    With equal variances within tables (A1 to A3) the result is the BLUE, to rounding, in a few passes over the
    data, and no matrix is formed. With unequal ones it is the paper's heuristic, and `info` says so.
    """

    name: ClassVar[str] = "sea_blue"
    exact_for: ClassVar[str] = (
        "uncorrelated noise, equal variance within each table; otherwise the paper's heuristic, and "
        "`info.exact` is False"
    )
    cost: ClassVar[str] = "a few passes over the data"

    def refusal(self, problem: Problem) -> str | None:
        """All but uncorrelated noise in tables of a schema; of unequal variances also recodes."""
        return flat_refusal(problem)

    def why_inexact(self, problem: Problem) -> str | None:
        """Unequal variances within tables."""
        return None if problem.is_alike_by_geounit else "variances differ within tables (A3 fails)"

    def plan(self, problem: Problem) -> Prepared:
        """Plan the passes."""
        inexact = self.why_inexact(problem)
        if inexact is None:
            reason = "closed form: noise is uncorrelated and of equal variance within tables (A1-A3)"
            return SeaBlueEstimate(problem, components_of(problem), Info(self.name, exact=True, reason=reason))
        reason = f"heuristic, not the BLUE: {inexact}; cg and cholesky give the BLUE"
        return ObliqueDownPass(problem, Info(self.name, exact=False, reason=reason))


class SeaBlueEstimate(Prepared):
    """Components of equal variances, made ready."""

    def __init__(self, problem: Problem, method: Components, info: Info) -> None:
        self.problem = problem
        self.offset = getattr(method, "offset", np.zeros(problem.desired.size))
        self._method = method
        self.info = info

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._method.apply(Y), self.info

    def violation(self, Y: Float) -> float | None:
        return self._method.violation(Y)

    def adjoint(self, V: Float) -> Float:
        return self._method.adjoint(V)

    def variances(self) -> Float:
        return self._method.variances()

"""Multigrid on A Sigma A'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from blue_solvers.contract import Prepared, Solver
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from constraint_builders import Problem


@dataclass(frozen=True)
class Multigrid(Solver):
    """Smoothed-aggregation multigrid (pyamg) on the independent rows, its V-cycles accelerated by conjugate gradients.

    Cycles alone need thousands on these matrices (more than 5,000 for the redistricting tables), accelerated ones
    dozens.

    Parameters
    ----------
    rtol : float, optional
        As in `ConjugateGradient`.
    max_cycles : int
    """

    name: ClassVar[str] = "multigrid"
    exact_for: ClassVar[str] = "as `cg`, where the entries of the covariance are known"
    cost: ClassVar[str] = "a hierarchy by smoothed aggregation, then fewer iterations"
    rtol: float | None = None
    max_cycles: int = 2_000

    @property
    def _accelerated(self) -> ConjugateGradient:
        return ConjugateGradient(self.rtol, "multigrid", "independent", self.max_cycles)

    def refusal(self, problem: Problem) -> str | None:
        """A covariance that is not known entry by entry."""
        return self._accelerated.refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Build the hierarchy."""
        return self._accelerated.plan_as(problem, self.name)

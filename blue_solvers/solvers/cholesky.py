"""Sparse Cholesky factorisation of A Sigma A'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from blue_solvers.contract import Capability, Info, Prepared, Refusal, Solver
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from blue_solvers.normal_equations.sparse_normal import SparseNormalSolver
from constraint_builders import Problem


@dataclass(frozen=True)
class Cholesky(Solver):
    """CHOLMOD through scikit-sparse where it is installed, otherwise SuperLU of scipy, as `info` names.

    The factor's fill decides time and memory; single tables that everything overlaps make it dense.
    """

    name: ClassVar[str] = "cholesky"

    @classmethod
    def capabilities(cls) -> tuple[Capability, ...]:
        """Its row of the table."""
        return (
            Capability(
                cls.name,
                cls(),
                "any sparse covariance, any equations",
                "a sparse factorisation of A Sigma A'",
            ),
        )

    def refusal(self, problem: Problem) -> str | None:
        """A covariance that is not known entry by entry."""
        if not problem.noise.has_entries:
            return Refusal("its covariance is an operator without entries", "use solver='cg'")
        return None

    def plan(self, problem: Problem) -> Prepared:
        """Factorise once."""
        info = Info(self.name, exact=True, reason="sparse factorisation of A Sigma A'")
        return ConstrainedEstimate(problem, "independent", SparseNormalSolver, info)

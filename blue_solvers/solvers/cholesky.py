"""Sparse Cholesky factorisation of A Sigma A'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blue_solvers.contract import Info, Prepared, Refusal, Solver
from blue_solvers.normal_equations.factorisation import sparse_solver
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Problem


@dataclass(frozen=True)
class Cholesky(Solver):
    """CHOLMOD through scikit-sparse where it is installed, otherwise SuperLU of scipy, as `info` names.

    The factor's fill decides time and memory; single tables that everything overlaps make it dense.
    """

    name: ClassVar[str] = "cholesky"
    exact_for: ClassVar[str] = "any sparse covariance, any equations"
    cost: ClassVar[str] = "a sparse factorisation of A Sigma A'"

    def refusal(self, problem: Problem) -> str | None:
        """A covariance that is not known entry by entry."""
        if not problem.noise.has_entries:
            return Refusal("its covariance is an operator without entries", "use solver='cg'")
        return None

    def plan(self, problem: Problem) -> Prepared:
        """Factorise once."""
        info = Info(self.name, exact=True, reason="sparse factorisation of A Sigma A'")
        return ConstrainedEstimate(problem, "independent", sparse_solver, info)


def products_of_equations(problem: Problem) -> float:
    """Multiplications that form A Sigma A', of independent equations; it has no more entries than that."""
    A = problem.constraint_matrix()
    reach = A @ problem.noise.entries() if problem.is_correlated else A
    return float((np.diff(reach.tocsc().indptr).astype(float) ** 2).sum())

"""The projection of Theorem 5 by dense linear algebra: the reference for small problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scipy import linalg
from scipy.sparse.linalg import LinearOperator

from blue_solvers.constrained import ConstrainedEstimate, Equations, NormalSolver
from blue_solvers.solver import Float, Info, Prepared, Solver
from constraint_builders import Problem
from constraint_builders.memory import require_memory


@dataclass(frozen=True)
class Dense(Solver):
    """Dense Cholesky factorisation of A Sigma A'.

    Memory and time grow as the square and the cube of the rank.
    """

    name: ClassVar[str] = "dense"

    def supports(self, problem: Problem) -> str | None:
        """Every problem whose covariance is known entry by entry."""
        if isinstance(problem.covariance, LinearOperator):
            return "its covariance is an operator without entries: use solver='cg'"
        return None

    def prepare(self, problem: Problem) -> Prepared:
        """Factorise once."""
        needed = 3.0 * 8 * problem.rank**2
        what = f"the dense projection with {problem.rank:,} constraints"
        require_memory(needed, what, "use solver='sea_blue', 'cholesky' or 'cg'")
        info = Info(self.name, exact=True, reason="the projection of Theorem 5, by dense linear algebra")
        return ConstrainedEstimate(problem, "independent", _DenseNormalSolver, info)


class _DenseNormalSolver(NormalSolver):
    label = "LAPACK"

    def __init__(self, equations: Equations) -> None:
        self._deviations = equations.deviations[:, None]
        self._factor = linalg.cho_factor(equations.normal_matrix().toarray(), lower=True, overwrite_a=True)

    def solve(self, R: Float, target: Float) -> Float:
        return linalg.cho_solve(self._factor, R / self._deviations) / self._deviations

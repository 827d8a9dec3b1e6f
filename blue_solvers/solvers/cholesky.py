"""Sparse Cholesky factorisation of A Sigma A'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blue_solvers.contract import Capability, Info, Prepared, Refusal, Solver
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.normal_equations.noisy_equations import Equations, NormalSolver
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.memory import require_memory

ENTRY_BYTES = 12


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
        return ConstrainedEstimate(problem, "independent", _SparseNormalSolver, info)


class _SparseNormalSolver(NormalSolver):
    def __init__(self, equations: Equations) -> None:
        _require_memory(equations)
        self._deviations = equations.deviations[:, None]
        self._factor = factorise(equations.normal_matrix())
        self.label = self._factor.label

    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        return self._factor.solve(R / self._deviations) / self._deviations, 0


def _require_memory(equations: Equations) -> None:
    """Refuse when the entries of A Sigma A', before any fill, would not fit."""
    rows = equations.A.shape[0]
    reach = np.diff((equations.A @ equations.entries()).tocsc().indptr).astype(float)
    entries = min(float((reach**2).sum()), float(rows) ** 2)
    what = f"the sparse normal matrix of {rows:,} constraints"
    require_memory(3 * ENTRY_BYTES * entries, what, "use solver='sea_blue' or 'cg'")

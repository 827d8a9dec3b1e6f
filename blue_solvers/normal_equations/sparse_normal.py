"""A Sigma A' solved by one sparse factorisation."""

from __future__ import annotations

import numpy as np

from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.normal_equations.noisy_equations import Equations, NormalSolver
from constraint_builders.arrays import Float
from constraint_builders.memory import require_memory

ENTRY_BYTES = 12


class SparseNormalSolver(NormalSolver):
    """Of independent equations."""

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

"""The estimate under noise of a singular covariance, by its factor: combinations without noise stay as measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from blue_solvers.contract import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.memory import require_memory

RANK_TOLERANCE = 1e-10  # of equations in units of the noise that independent cells would give them


class SingularEstimate(Prepared):
    """x = y - F G^+ (A y - b) with Sigma = F F' and G = A F, which is y - Sigma A' (A Sigma A')^+ (A y - b).

    Parameters
    ----------
    problem : Problem
        Whose noise is singular.
    F : ndarray, (n, k)
        Its factor.
    info : Info

    Raises
    ------
    MemoryError
        If dense matrices over the observed layout would not fit.
    """

    def __init__(self, problem: Problem, F: Float, info: Info) -> None:
        n = problem.observed.size
        require_memory(4.0 * 8 * n**2, f"the dense projection of {n:,} cells", "give every combination some noise")
        self.problem, self.info = problem, info
        self._A, b = problem.equations("independent")
        sizes = np.sqrt(self._A.power(2) @ problem.variances)
        units = np.where(sizes > 0, sizes, 1.0)
        A = self._A.toarray() / units[:, None]
        left, singular, right = np.linalg.svd(A @ F, full_matrices=False)
        kept = singular > RANK_TOLERANCE
        moved = F @ right[kept].T
        gain = (moved / singular[kept]) @ left[:, kept].T
        self._P = np.eye(n) - gain @ A
        self._P -= gain @ (A @ self._P)  # what agrees, to rounding
        self._root = F - moved @ right[kept]
        self._spread = F
        self.offset = problem.tabulate((gain @ (b / units))[:, None])[:, 0]

    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y, and by how much its tables disagree: by what measurements without noise do."""
        X = self._P @ Y
        return self.problem.tabulate(X), replace(self.info, violation=float(abs(self._A @ X).max(initial=0.0)))

    def adjoint(self, V: Float) -> Float:
        """P' V."""
        return self._P.T @ self.problem.tabulate_transpose(V)

    def variances(self) -> Float:
        """Sums of squares; 0 of what the equations and measurements without noise determine."""
        root, spread = (self.problem.tabulate(own) for own in (self._root, self._spread))
        return (_without_rounding(root, spread) ** 2).sum(axis=1)

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        """W' P Sigma P' W as a product of roots; 0 of what the equations and measurements without noise determine."""
        root, spread = (W.T @ self.problem.tabulate(own) for own in (self._root, self._spread))
        root = _without_rounding(root, spread)
        return np.asarray(root @ root.T)


def _without_rounding(root: Float, spread: Float) -> Float:
    """Rows of a root of the estimate's covariance, 0 where little is left of what the measurements have there."""
    lengths, before = (np.linalg.norm(own, axis=1) for own in (root, spread))
    return np.where((lengths > RANK_TOLERANCE * before)[:, None], root, 0.0)

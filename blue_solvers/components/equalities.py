"""Linear combinations of cells that are known exactly, on top of an estimate that does not use them.

With E x = b for cells x of the observed layout, x_D the estimate of the desired cells without, and G = Cov(x_D, x)
E', the estimate with them is x_D - G (E Cov(x) E')^+ (E x - b). Each combination costs one covariance column, once.
"""

from __future__ import annotations

import numpy as np

from blue_solvers.components.tree_form import TreeForm
from blue_solvers.solver import Float
from constraint_builders import Problem

RANK_TOLERANCE = 1e-10  # relative to what the combinations' cells could vary: implied and repeated ones drop out


class WithEqualities:
    """The exact estimate of a problem with equalities; see the module.

    Parameters
    ----------
    problem : Problem
        With `equalities`, and what `TreeForm` needs.

    Attributes
    ----------
    offset : ndarray, (m,)
        Constant part of the estimate.
    """

    def __init__(self, problem: Problem) -> None:
        assert problem.equalities is not None
        self._E, b = problem.equalities
        self._desired = TreeForm(problem)
        self._observed = TreeForm(problem.observing())
        adjoint = self._observed.adjoint(self._E.T.toarray())
        weighted = problem.noise_covariance @ adjoint
        self._G = self._desired.apply(weighted)
        covariance = self._E @ self._observed.apply(weighted)
        self._gain = self._G @ _inverse(covariance, abs(self._E) @ np.sqrt(self._observed.variances()))
        self.offset = self._gain @ b

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._desired.apply(Y) - self._gain @ (self._E @ self._observed.apply(Y))

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._desired.adjoint(V) - self._observed.adjoint(self._E.T @ (self._gain.T @ V))

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        taken = np.einsum("ij,ij->i", self._gain, self._G)
        return np.maximum(self._desired.variances() - taken, 0.0)

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, before the equalities."""
        return self._desired.violation(Y)


def _inverse(covariance: Float, deviations: Float) -> Float:
    """Pseudo-inverse of the combinations' covariance, scaled by the most that each could deviate."""
    scale = np.where(deviations > 0, deviations, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > RANK_TOLERANCE
    scaled = vectors[:, kept] / scale[:, None]
    return (scaled / values[kept]) @ scaled.T

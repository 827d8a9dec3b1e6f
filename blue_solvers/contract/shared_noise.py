"""Noise that many cells share, a few sources of it, on top of any exact estimate that does without.

With noise e + U g, e independent of variances D and g of k independent units, let P be the estimate under D alone and
R = (I - P)' D^-1 U over the observed layout, k columns of its adjoint. Given g the estimate is P (y - U g), and the
sources that make the fit best are

    g = (I + R' D R)^-1 (R' y - U' D^-1 P.offset),    Cov(x) = P D P' + (P U) (I + R' D R)^-1 (P U)'.

So the estimate stays as exact and as cheap as that under D: one product with k columns is added to each apply.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from blue_solvers.contract.prepared import Info, Prepared
from constraint_builders import LowRankPlusDiagonal, Problem
from constraint_builders.arrays import Float


class SharedNoiseEstimate(Prepared):
    """The BLUE under D + U U' from that under D; see the module.

    Parameters
    ----------
    problem : Problem
    covariance : LowRankPlusDiagonal
        Of its noise.
    desired, observed : Prepared
        The BLUE under D of the desired and of the observed cells.
    """

    def __init__(
        self, problem: Problem, covariance: LowRankPlusDiagonal, desired: Prepared, observed: Prepared
    ) -> None:
        self.problem = problem
        self._desired = desired
        self._U = covariance.factor
        D = covariance.diagonal[:, None]
        weighted = np.divide(self._U, D, out=np.zeros_like(self._U), where=D > 0)
        self._R = weighted - observed.adjoint(weighted)
        noisy = np.where(np.isfinite(D), D, 0.0)
        self._factor = cho_factor(np.eye(self._U.shape[1]) + self._R.T @ (noisy * self._R), lower=True)
        sources = cho_solve(self._factor, -(weighted.T @ observed.offset))
        self.offset = desired.offset - desired.apply(self._U @ sources[:, None])[0][:, 0]
        self.info = self._corrected(desired.info)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._desired.apply(self._without_shared(Y))
        return X, self._corrected(info)

    def violation(self, Y: Float) -> float | None:
        return self._desired.violation(self._without_shared(Y))

    def _without_shared(self, Y: Float) -> Float:
        """The data less the best estimate of the shared noise."""
        return Y - self._U @ cho_solve(self._factor, self._R.T @ Y)

    def adjoint(self, V: Float) -> Float:
        weights = self._desired.adjoint(V)
        return weights - self._R @ cho_solve(self._factor, self._U.T @ weights)

    def variances(self) -> Float:
        own = self._desired.variances()
        return np.where(own > 0, own + self._shared_variances, 0.0)  # what is exact depends on exact cells alone

    @cached_property
    def _shared_variances(self) -> Float:
        """Diagonal of (P U) (I + R' D R)^-1 (P U)', (m,)."""
        moved = solve_triangular(self._factor[0], self._desired.apply(self._U)[0].T, lower=True)
        return np.einsum("ij,ij->j", moved, moved)

    def _corrected(self, own: Info) -> Info:
        sources = self._U.shape[1]
        reason = f"{own.reason}; corrected exactly for the noise of {sources} shared source{'s'[: sources != 1]}"
        return replace(own, reason=reason, error_bound=None)  # the sources have errors of their own

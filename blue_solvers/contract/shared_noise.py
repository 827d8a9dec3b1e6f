"""Noise that many cells share, a few sources of it, on top of any exact estimate that does without.

With noise e + U g, e independent of variances D and g of k independent units, let P be the estimate under D alone and
E = U - P U over the observed layout, what it leaves of the k sources. Given g the estimate is P (y - U g), and the
sources that make the fit best are

    g = (I + E' D^-1 E)^-1 E' D^-1 (y - P y - P.offset),    Cov(x) = P D P' + (P U) (I + E' D^-1 E)^-1 (P U)'.

So the estimate stays as exact as that under D, since residuals are what it gives best, and as cheap: k columns are
added to each apply, and the estimate of the observed cells where others are wanted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from blue_solvers.contract.prepared import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float


class SharedNoiseEstimate(Prepared):
    """The BLUE under D + U U' from that under D; see the module.

    Parameters
    ----------
    problem : Problem
        With noise that cells share.
    desired, observed : Prepared
        The BLUE under D of the desired and of the observed cells.
    """

    def __init__(self, problem: Problem, desired: Prepared, observed: Prepared) -> None:
        self.problem = problem
        self._desired, self._observed = desired, observed
        D = problem.noise.own.variances
        self._U = problem.noise.sources
        self._weights = np.divide(1.0, D, out=np.zeros_like(D), where=D > 0)[:, None]
        self._moved = desired.apply(self._U)[0]
        self._E = self._U - (self._moved if observed is desired else observed.apply(self._U)[0])
        self._factor = cho_factor(np.eye(self._U.shape[1]) + self._E.T @ (self._weights * self._E), lower=True)
        self.offset = desired.offset - self._moved @ self._sources(-observed.offset)
        self.info = self._corrected(desired.info)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._desired.apply(Y)
        estimate = X if self._observed is self._desired else self._observed.apply(Y)[0]
        return X - self._moved @ self._sources(Y - estimate), self._corrected(info)

    def violation(self, Y: Float) -> float | None:
        shared = self._sources(Y - self._observed.apply(Y)[0])
        return self._desired.violation(Y - self._U @ shared)

    def _sources(self, residuals: Float) -> Float:
        """The best estimate of the shared noise, from what the estimate without it leaves of the data."""
        return cho_solve(self._factor, self._E.T @ (self._weights[:, 0] * residuals.T).T)

    def adjoint(self, V: Float) -> Float:
        weights = self._desired.adjoint(V)
        return weights - self._pulled @ cho_solve(self._factor, self._U.T @ weights)

    @cached_property
    def _pulled(self) -> Float:
        """(I - P)' D^-1 E, (n, k)."""
        weighted = self._weights * self._E
        return weighted - self._observed.adjoint(weighted)

    def variances(self) -> Float:
        own = self._desired.variances()
        return np.where(own > 0, own + self._shared_variances, 0.0)  # what is exact depends on exact cells alone

    @cached_property
    def _shared_variances(self) -> Float:
        """Diagonal of (P U) (I + R' D R)^-1 (P U)', (m,)."""
        moved = solve_triangular(self._factor[0], self._moved.T, lower=True)
        return np.einsum("ij,ij->j", moved, moved)

    def _corrected(self, own: Info) -> Info:
        sources = self._U.shape[1]
        reason = f"{own.reason}; corrected exactly for the noise of {sources} shared source{'s'[: sources != 1]}"
        return replace(own, reason=reason, error_bound=None)  # the sources have errors of their own

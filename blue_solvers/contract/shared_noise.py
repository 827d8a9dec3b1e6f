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
from scipy.linalg import solve_triangular

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
        D, U = problem.noise.own.variances, problem.noise.sources
        weights = np.divide(1.0, D, out=np.zeros_like(D), where=D > 0)[:, None]
        moved = desired.apply(U)[0]
        E = U - (moved if observed is desired else observed.apply(U)[0])
        units = np.eye(U.shape[1])
        # of I + E' D^-1 E without its square, which loses I beside sources that are large
        root = np.linalg.qr(np.vstack([np.sqrt(weights) * E, units]), mode="r")
        inverse = solve_triangular(root, units)
        # what residuals tell of the sources, and what these make of measurements and of the estimate, (..., k)
        self._told, self._sources, self._moved = (X @ inverse for X in (weights * E, U, moved))
        self.offset = desired.offset - self._change(-observed.offset)
        self.info = self._corrected(desired.info)

    def _change(self, residuals: Float) -> Float:
        return self._moved @ (self._told.T @ residuals)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self._desired.apply(Y)
        estimate = X if self._observed is self._desired else self._observed.apply(Y)[0]
        return X - self._change(Y - estimate), self._corrected(info)

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        X, info = self.apply(Y)
        shared = self._sources @ (self._told.T @ (Y - self._observed.apply(Y)[0]))
        return X, replace(info, violation=self._desired.violation(Y - shared))

    def adjoint(self, V: Float) -> Float:
        return self._desired.adjoint(V) - self._pulled @ (self._moved.T @ V)

    @cached_property
    def _pulled(self) -> Float:
        """(I - P)' of what residuals tell of sources, (n, k)."""
        return self._told - self._observed.adjoint(self._told)

    def variances(self) -> Float:
        own, shared = self._desired.variances(), np.einsum("ij,ij->i", self._moved, self._moved)
        return np.where(own > 0, own + shared, 0.0)  # what is exact depends on exact cells alone

    def _corrected(self, own: Info) -> Info:
        sources = self._told.shape[1]
        reason = f"{own.reason}; corrected exactly for the noise of {sources} shared source{'s'[: sources != 1]}"
        return replace(own, reason=reason, error_bound=None)  # the sources have errors of their own

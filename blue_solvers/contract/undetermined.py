"""Estimates of what the measurements determine, and NaN for the rest, by a solver that needs everything determined."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blue_solvers.contract.prepared import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float


class WithUndetermined(Prepared):
    """An estimate with NaN in the desired cells that nothing determines.

    Parameters
    ----------
    problem : Problem
    lost : ndarray of bool, (m,)
    prepared : Prepared
        For ``problem.determined``.
    """

    def __init__(self, problem: Problem, lost: np.ndarray, prepared: Prepared) -> None:
        self.problem = problem
        self.offset = np.where(lost, 0.0, prepared.offset)
        self._lost = lost
        self._prepared = prepared
        self.info = prepared.info

    def apply(self, Y: Float) -> tuple[Float, Info]:
        estimate, info = self._prepared.apply(Y)
        X = np.array(estimate)
        X[self._lost] = np.nan
        return X, info

    def violation(self, Y: Float) -> float | None:
        return self._prepared.violation(Y)

    def adjoint(self, V: Float) -> Float:
        weights = np.array(self._prepared.adjoint(np.where(self._lost[:, None], 0.0, V)))
        weights[self.problem.assumed] = 0  # up to rounding already
        weights[:, V[self._lost].any(axis=0)] = np.nan
        return weights

    def variances(self) -> Float:
        return np.where(self._lost, np.nan, self._prepared.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        weighed = sparse.csr_array(W)
        known = sparse.csc_array(sparse.diags_array((~self._lost).astype(float)) @ weighed)
        covariance = np.array(self._prepared.functional_covariance(known))
        lost = abs(weighed[np.flatnonzero(self._lost)]).sum(axis=0) > 0
        covariance[lost] = covariance[:, lost] = np.nan
        return covariance

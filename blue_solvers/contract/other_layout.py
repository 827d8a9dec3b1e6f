"""The estimate of a problem whose cells another problem has too, at other places of its layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from blue_solvers.contract.prepared import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index


class InOtherLayout(Prepared):
    """An estimate read off that of a problem which has all of its cells; NaN in those that nothing determines.

    Parameters
    ----------
    problem : Problem
    prepared : Prepared
        Of the problem that has them, all of them determined.
    observed, desired : ndarray of int, (n,) and (m,)
        Where they are in its layouts.
    """

    def __init__(self, problem: Problem, prepared: Prepared, observed: Index, desired: Index) -> None:
        self.problem, self.info = problem, prepared.info
        self._prepared, self._observed, self._desired = prepared, observed, desired
        self._lost = np.flatnonzero(problem.lost)
        self.offset = prepared.offset[desired]
        self.offset[self._lost] = 0.0

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply(self._given(Y)))

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply_checked(self._given(Y)))

    def _told(self, X: Float, info: Info) -> tuple[Float, Info]:
        return self._wanted(X), replace(info, reason=self.info.reason)

    def _given(self, Y: Float) -> Float:
        return _spread(Y, self._observed, self._prepared.problem.observed.size)

    def _wanted(self, X: Float) -> Float:
        """Cells from the other layout, with NaN in those that nothing determines."""
        X = X.take(self._desired, axis=0)
        X[self._lost] = np.nan
        return X

    def adjoint(self, V: Float) -> Float:
        known = np.array(V)
        known[self._lost] = 0
        weights = self._prepared.adjoint(_spread(known, self._desired, self._prepared.problem.desired.size)).take(
            self._observed, axis=0
        )
        weights[self.problem.assumed] = 0  # up to rounding already
        weights[:, V[self._lost].any(axis=0)] = np.nan
        return weights

    def variances(self) -> Float:
        return self._wanted(self._prepared.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        lost, shape = self.problem.lost, (self._prepared.problem.desired.size, W.shape[1])
        known = np.where(lost[W.indices], 0.0, W.data), self._desired[W.indices], W.indptr
        covariance = np.array(self._prepared.functional_covariance(sparse.csc_array(known, shape=shape)))
        unknown = abs(W).T @ lost > 0
        covariance[unknown] = covariance[:, unknown] = np.nan
        return covariance


def _spread(X: Float, places: Index, size: int) -> Float:
    """Cells, (n, K), at their places among more, 0 elsewhere."""
    result = np.zeros((size, X.shape[1]))
    result[places] = X
    return result

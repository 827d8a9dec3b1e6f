"""The estimate of a problem whose cells another problem has too, at other places of its layouts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from blue_solvers.contract.prepared import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index


class Places:
    """Where the cells of a layout are in another one.

    Parameters
    ----------
    places : ndarray of int, (n,)
    size : int
        Of the other layout.
    """

    def __init__(self, places: Index, size: int) -> None:
        self.places, self.size = places, size
        self._is_same = np.array_equal(places, np.arange(size))
        self._inverse = np.argsort(places) if places.size == size else places[:0]

    def taken(self, X: Float) -> Float:
        """From the other layout, (size, ...) to (n, ...)."""
        return X if self._is_same else X.take(self.places, axis=0)

    def spread(self, X: Float) -> Float:
        """Into the other layout, (n, K) to (size, K), 0 elsewhere."""
        if self._is_same:
            return X
        if self._inverse.size == self.size:
            return X.take(self._inverse, axis=0)
        spread = np.zeros((self.size, X.shape[1]))
        spread[self.places] = X
        return spread


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
        self._prepared = prepared
        self._observed = Places(observed, prepared.problem.observed.size)
        self._desired = Places(desired, prepared.problem.desired.size)
        self._lost = np.flatnonzero(problem.lost)
        self.offset = np.array(self._desired.taken(prepared.offset))
        self.offset[self._lost] = 0.0

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply(self._observed.spread(Y)))

    def violation(self, Y: Float) -> float | None:
        return self._prepared.violation(self._observed.spread(Y))

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply_checked(self._observed.spread(Y)))

    def _told(self, X: Float, info: Info) -> tuple[Float, Info]:
        same = info.reason == self.info.reason
        return self._without_lost(self._desired.taken(X)), info if same else replace(info, reason=self.info.reason)

    def _without_lost(self, X: Float) -> Float:
        """Cells, with NaN in those that nothing determines."""
        if self._lost.size:
            X = np.array(X)
            X[self._lost] = np.nan
        return X

    def adjoint(self, V: Float) -> Float:
        if not self._lost.size:
            return self._observed.taken(self._prepared.adjoint(self._desired.spread(V)))
        known = np.array(V)
        known[self._lost] = 0
        weights = np.array(self._observed.taken(self._prepared.adjoint(self._desired.spread(known))))
        weights[self.problem.assumed] = 0  # up to rounding already
        weights[:, V[self._lost].any(axis=0)] = np.nan
        return weights

    def variances(self) -> Float:
        return self._without_lost(self._desired.taken(self._prepared.variances()))

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        entries = sparse.coo_array(W)
        lost = np.isin(entries.row, self._lost)
        pairs = self._desired.places[entries.row], entries.col
        known = sparse.csc_array((np.where(lost, 0.0, entries.data), pairs), shape=(self._desired.size, W.shape[1]))
        covariance = np.array(self._prepared.functional_covariance(known))
        unknown = entries.col[lost & (entries.data != 0)]
        covariance[unknown] = covariance[:, unknown] = np.nan
        return covariance

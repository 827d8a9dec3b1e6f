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
        self._from_observed = _numbers(observed, prepared.problem.observed.size)
        self._from_desired = _numbers(desired, prepared.problem.desired.size)
        self._lost = np.flatnonzero(problem.lost)
        self.offset = prepared.offset[desired]
        self.offset[self._lost] = 0.0

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply(_spread(Y, self._from_observed)))

    def apply_checked(self, Y: Float) -> tuple[Float, Info]:
        return self._told(*self._prepared.apply_checked(_spread(Y, self._from_observed)))

    def _told(self, X: Float, info: Info) -> tuple[Float, Info]:
        return self._wanted(X), replace(info, reason=self.info.reason)

    def violation(self, Y: Float) -> float | None:
        return self._prepared.violation(_spread(Y, self._from_observed))

    def _wanted(self, X: Float) -> Float:
        """Cells from the other layout, with NaN in those that nothing determines."""
        X = X.take(self._desired, axis=0)
        X[self._lost] = np.nan
        return X

    def adjoint(self, V: Float) -> Float:
        known = np.array(V)
        known[self._lost] = 0
        weights = self._prepared.adjoint(_spread(known, self._from_desired)).take(self._observed, axis=0)
        weights[self.problem.assumed] = 0  # up to rounding already
        weights[:, V[self._lost].any(axis=0)] = np.nan
        return weights

    def variances(self) -> Float:
        return self._wanted(self._prepared.variances())

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        entries = sparse.coo_array(W)
        lost = np.isin(entries.row, self._lost)
        pairs, shape = (self._desired[entries.row], entries.col), (self._prepared.problem.desired.size, W.shape[1])
        known = sparse.csc_array((np.where(lost, 0.0, entries.data), pairs), shape=shape)
        covariance = np.array(self._prepared.functional_covariance(known))
        unknown = entries.col[lost & (entries.data != 0)]
        covariance[unknown] = covariance[:, unknown] = np.nan
        return covariance


def _numbers(places: Index, size: int) -> Index:
    """For each of `size` cells which of the places it is, one more than the last for none."""
    numbers = np.full(size, places.size)
    numbers[places] = np.arange(places.size)
    return numbers


def _spread(X: Float, numbers: Index) -> Float:
    """Cells, (n, K), among more by their numbers, 0 elsewhere."""
    return np.concatenate([X, np.zeros((1, X.shape[1]))]).take(numbers, axis=0)

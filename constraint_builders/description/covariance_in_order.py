"""Covariance operators whose cells are at other positions."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Float, Index


class InOrder(LinearOperator):
    """A covariance whose cells are at other positions."""

    def __init__(self, covariance: LinearOperator, order: Index) -> None:
        super().__init__(np.dtype(np.float64), covariance.shape)
        self._covariance, self._order = covariance, order

    def _back(self, X: Float) -> Float:
        given = np.empty(X.shape)
        given[self._order] = X
        return given

    def _matmat(self, X: Float) -> Float:
        return self._covariance.matmat(self._back(X))[self._order]

    def _adjoint(self) -> InOrder:
        return self


class SolvedInOrder(InOrder):
    """The same of one that has its inverse too."""

    def solve(self, V: Float) -> Float:
        """The inverse times V, (n, K)."""
        return np.asarray(self._covariance.solve(self._back(V)))[self._order]

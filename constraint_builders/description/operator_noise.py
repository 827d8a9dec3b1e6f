"""Noise of a covariance that is known by its products only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import LinearOperator

from constraint_builders.arrays import Float, Index
from constraint_builders.description.covariance_in_order import InOrder, SolvedInOrder
from constraint_builders.description.noise import Noise


class OperatorNoise(Noise):
    """Noise of a covariance that is known by its products only, and by a method ``solve`` where it has one."""

    has_entries = False

    def __init__(self, law: str, covariance: LinearOperator, variances: Float) -> None:
        super().__init__(law, variances)
        self._covariance = covariance

    @property
    def covariance(self) -> LinearOperator:
        """The operator."""
        return self._covariance

    def __matmul__(self, X: Float) -> Float:
        return np.asarray(self._covariance @ X)

    @property
    def solve(self) -> Callable[[Float], Float] | None:
        """The operator's own method."""
        return getattr(self._covariance, "solve", None)

    def entries(self) -> None:
        """None: they are not known."""
        return None

    def at(self, cells: Index) -> OperatorNoise:
        """The noise of the same cells in another order."""
        solves = self.solve is not None
        turned = (SolvedInOrder if solves else InOrder)(self._covariance, cells)
        return OperatorNoise(self.law, turned, self.variances[cells])

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """Refused."""
        raise ValueError("correlated noise cannot be drawn from an operator: give the covariance as a sparse matrix")

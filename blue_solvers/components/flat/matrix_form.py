"""The exact estimate of few cells as one small matrix, worked out by another form.

A product with some hundred rows and columns takes less time than the calls of any other form; with many columns it
does not, and they go there.

Bytes that must move: the matrix, which stays in cache.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from constraint_builders.arrays import Float

MOST_PRODUCTS = 1 << 21  # of entries and columns: 70 microseconds


class Components(Protocol):
    """The exact estimate of a problem under assumptions A1 to A3."""

    def apply(self, Y: Float) -> Float:
        """P Y, (n, K) to (m, K)."""

    def adjoint(self, V: Float) -> Float:
        """P' V, (m, K) to (n, K)."""

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a marginal and the sums of a finer one in the estimate from Y."""


class MatrixForm:
    """The exact estimate through the entries of P.

    Parameters
    ----------
    form : Components
        That works them out, when the first estimate is made.
    cells : int
        Observed ones, n.

    Attributes
    ----------
    form : Components
        Which rounds less where variances differ by many decades, as iterations need.
    """

    def __init__(self, form: Components, cells: int) -> None:
        self.form, self._cells = form, cells

    @cached_property
    def _matrix(self) -> Float:
        return np.ascontiguousarray(self.form.apply(np.eye(self._cells)))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        if self._matrix.size * Y.shape[1] > MOST_PRODUCTS:
            return self.form.apply(Y)
        return self._matrix @ np.ascontiguousarray(Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        if self._matrix.size * V.shape[1] > MOST_PRODUCTS:
            return self.form.adjoint(V)
        return self._matrix.T @ np.ascontiguousarray(V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return self.form.variances()

    def violation(self, Y: Float) -> float:
        """Of the other form's estimate from Y the largest disagreement, and how far this one is from it."""
        return self.form.violation(Y) + float(abs(self.form.apply(Y) - self.apply(Y)).max(initial=0.0))

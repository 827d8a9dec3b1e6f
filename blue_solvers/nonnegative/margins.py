"""Plain margins of one array with equal variances: Newton systems with all cells free, solved in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float

SMALLEST_VARIANCE = 1e-3  # of a row's cells: stands for 0 in the preconditioner


@dataclass(frozen=True)
class PlainMargins:
    """Sums of a ``shape`` array over some of its axes, one block of rows for each table.

    An array with one slot more along every axis, which holds the sum over it, has a place for every cell of every
    margin. Along each axis vectors split into their mean and their contrasts; on each product of these the operators
    ``M' M`` are multiples of the identity.

    Attributes
    ----------
    shape : tuple of int
    kept : tuple of tuple of int
        For every table the axes that it keeps; the tables' cells follow one another in C order.
    """

    shape: tuple[int, ...]
    kept: tuple[tuple[int, ...], ...]

    @cached_property
    def places(self) -> NDArray[np.intp]:
        """Where every row sits in the flattened array with sums, (m,)."""
        longer = tuple(n + 1 for n in self.shape)
        numbers = np.arange(prod(longer)).reshape(longer)
        return np.concatenate(
            [
                numbers[tuple(slice(n) if axis in axes else n for axis, n in enumerate(self.shape))].ravel()
                for axes in self.kept
            ]
        )

    def inverse(self, variance: Float, weight: float) -> InverseSystem:
        """The inverse of ``M M' / weight + diag(variance)`` for one variance in each table.

        Parameters
        ----------
        variance : ndarray, (m,)
            Constant within each table; 0 is replaced by a thousandth of what its cells bring.
        weight : float
            Of every cell.
        """
        sizes = np.array([prod(self.shape[axis] for axis in axes) for axes in self.kept])
        folded = prod(self.shape) / sizes
        own = np.maximum(variance[np.cumsum(sizes) - sizes], SMALLEST_VARIANCE * folded / weight)
        curvature = np.full((2,) * len(self.shape), weight)
        for contrasts in product((0, 1), repeat=len(self.shape)):
            within = [all(axis in axes for axis, flag in enumerate(contrasts) if flag) for axes in self.kept]
            curvature[contrasts] += (folded / own)[within].sum()
        for axis, n in enumerate(self.shape):
            curvature = np.repeat(curvature[_along(axis, slice(None, None, -1))], [n, 1], axis=axis)
        return InverseSystem(self, np.repeat(1 / own, sizes), 1 / curvature)


@dataclass(frozen=True)
class InverseSystem:
    """``V^-1 - V^-1 M (weight + M' V^-1 M)^-1 M' V^-1``, applied by sums and broadcasts."""

    margins: PlainMargins
    precision: Float
    stiffness: Float

    def apply(self, rows: Float) -> Float:
        """Apply to (m,) rows."""
        shape, places = self.margins.shape, self.margins.places
        array = np.zeros([n + 1 for n in shape])
        array.ravel()[places] = rows * self.precision
        _spread(array)
        for axis in range(len(shape)):
            cells, last = array[_along(axis, slice(-1))], array[_along(axis, slice(-1, None))]
            cells.mean(axis=axis, keepdims=True, out=last)
            cells -= last
        array *= self.stiffness
        _spread(array)
        for axis in range(len(shape)):
            array[_along(axis, slice(-1))].sum(axis=axis, keepdims=True, out=array[_along(axis, slice(-1, None))])
        return self.precision * (rows - array.ravel()[places])


def _spread(array: Float) -> None:
    """Add every sum's slot to the cells that it is a sum of."""
    for axis in range(array.ndim):
        array[_along(axis, slice(-1))] += array[_along(axis, slice(-1, None))]


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)

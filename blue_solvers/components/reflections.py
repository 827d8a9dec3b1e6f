"""An orthonormal basis of contrasts and group sums along each axis, by reflections in place.

For a group of s levels the reflection that exchanges 1 / sqrt(s) with the last unit vector turns the last level
into the group's coordinate, sum / sqrt(s), and the others into orthonormal contrasts. It costs one sum and one
subtraction, and it is its own inverse and transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.axis_reflections import reflect_axes
from blue_solvers.components.grouping import Grouping
from constraint_builders.arrays import Float, Integers


class Basis:
    """Levels to slots and back along chosen axes of an array (G, ..., K), in place.

    Parameters
    ----------
    groupings : sequence of Grouping or None
        For every axis between the first and the last one; None leaves it as it is.
    """

    def __init__(self, groupings: Sequence[Grouping | None]) -> None:
        self._axes = [(axis, g) for axis, g in enumerate(groupings, 1) if g is not None]
        self._ordered = [(axis, np.array(g.order)) for axis, g in self._axes if not g.in_order]
        self._sizes = np.concatenate([np.zeros(0, dtype=np.int64), *(g.sizes for _, g in self._axes)])
        self._steps: dict[tuple[int, ...], Integers] = {}

    def to_slots(self, block: Float) -> None:
        """From cells along every level."""
        for axis, order in self._ordered:
            block[...] = np.take(block, order, axis=axis)
        self._reflect(block)

    def to_cells(self, block: Float) -> None:
        """The inverse, and the transpose."""
        self._reflect(block)
        for axis, order in self._ordered:
            block[...] = np.take(block, np.argsort(order), axis=axis)

    def _reflect(self, block: Float) -> None:
        assert block.flags.c_contiguous  # otherwise the reshape below would be a copy
        if block.size and self._axes:
            reflect_axes.fastest()(block.reshape(len(block), -1), self._steps_of(block.shape[1:]), self._sizes)

    def _steps_of(self, shape: tuple[int, ...]) -> Integers:
        """The axes of an array of a shape, as `reflect_axes` takes them."""
        if shape not in self._steps:
            counts = [g.sizes.size for _, g in self._axes]
            firsts = np.cumsum([0, *counts])
            self._steps[shape] = np.array(
                [
                    (prod(shape[: axis - 1]), shape[axis - 1], prod(shape[axis:]), first, count)
                    for (axis, _), first, count in zip(self._axes, firsts, counts, strict=False)
                ]
            )
        return self._steps[shape]

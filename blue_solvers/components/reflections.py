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
from blue_solvers.components.row_program import RowProgram
from constraint_builders.arrays import Float, Index, Integers


def reflected_rows(program: RowProgram, rows: Index, axis: int, grouping: Grouping) -> Index:
    """Reflections of numbered rows along one of their axes, levels in the grouping's order of slots."""
    flat = rows.reshape(prod(rows.shape[:axis]), rows.shape[axis], -1).copy()
    first_group = grouping.levels - grouping.sizes.size
    stop = 0
    for group, size in enumerate(grouping.sizes.tolist()):
        if size > 1:
            start, stop = stop, stop + size - 1
            others, last, scale = flat[:, start:stop], flat[:, first_group + group], 1 / np.sqrt(size)
            coordinate = program.new(*last.shape)
            if size == 2:
                program.combine(coordinate, [last, others[:, 0]], [scale, -scale])
                program.combine(last, [last, others[:, 0]], [scale, scale])
                flat[:, start] = coordinate
                continue
            program.combine(coordinate, [*others.swapaxes(0, 1), last], [scale] * size)
            rest = 1 / (np.sqrt(size) - 1)
            program.combine(last, [last, coordinate], [rest, -rest])
            program.combine(others, [others, last[:, None]], [1, 1])
            program.free(last)
            flat[:, first_group + group] = coordinate
    return flat.reshape(rows.shape)


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

    def slot_rows(self, program: RowProgram, rows: Index) -> Index:
        """`to_slots` of numbered rows (...), which are overwritten."""
        for axis, grouping in self._axes:
            rows = reflected_rows(program, np.take(rows, grouping.order, axis=axis - 1), axis - 1, grouping)
        return rows

    def cell_rows(self, program: RowProgram, rows: Index) -> Index:
        """`to_cells` of numbered rows (...), which are overwritten."""
        for axis, grouping in self._axes:
            reflected = reflected_rows(program, rows, axis - 1, grouping)
            rows = np.take(reflected, np.argsort(grouping.order), axis=axis - 1)
        return rows

"""An orthonormal basis of contrasts and group sums along each axis, by reflections in place.

For a group of s levels the reflection that exchanges 1 / sqrt(s) with the last unit vector turns the last level
into the group's coordinate, sum / sqrt(s), and the others into orthonormal contrasts. It costs one sum and one
subtraction, and it is its own inverse and transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.axis_sums import add_to_levels, sum_middle
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.row_program import RowProgram
from constraint_builders.arrays import Float, Index


def reflect(array: Float, axis: int, grouping: Grouping) -> None:
    """Change basis along one axis of a C-contiguous array, levels in the grouping's order of slots, in place."""
    assert array.flags.c_contiguous  # otherwise the reshape below would be a copy
    shape = array.shape
    flat = array.reshape(prod(shape[:axis]), shape[axis], -1)
    first_group = grouping.levels - grouping.sizes.size
    stop = 0
    for group, size in enumerate(grouping.sizes.tolist()):
        if size > 1:
            start, stop = stop, stop + size - 1
            _reflect(flat[:, start:stop], flat[:, first_group + group], size)


def _reflect(others: Float, last: Float, size: int) -> None:
    scale = 1 / np.sqrt(size)  # products, since divisions take several times as long
    if size == 2:
        difference = last - others[:, 0]
        last += others[:, 0]
        last *= scale
        np.multiply(difference, scale, out=others[:, 0])
        return
    coordinate = sum_middle(others)
    coordinate += last
    coordinate *= scale
    last -= coordinate
    last *= 1 / (np.sqrt(size) - 1)
    add_to_levels(others, last)
    last[...] = coordinate


def reflected_rows(program: RowProgram, rows: Index, axis: int, grouping: Grouping) -> Index:
    """`reflect` of numbered rows along one of their axes."""
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

    def to_slots(self, block: Float) -> None:
        """From cells along every level."""
        for axis, grouping in self._axes:
            if not grouping.in_order:
                block[...] = np.take(block, grouping.order, axis=axis)
            reflect(block, axis, grouping)

    def to_cells(self, block: Float) -> None:
        """The inverse, and the transpose."""
        for axis, grouping in self._axes:
            reflect(block, axis, grouping)
            if not grouping.in_order:
                block[...] = np.take(block, np.argsort(grouping.order), axis=axis)

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

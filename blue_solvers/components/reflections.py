"""An orthonormal basis of contrasts and group sums along each axis, by reflections in place.

For a group of s levels the reflection that exchanges 1 / sqrt(s) with the last unit vector turns the last level
into the group's coordinate, sum / sqrt(s), and the others into orthonormal contrasts. It costs one sum and one
subtraction, and it is its own inverse and transpose.

The loop takes one array at a time along all its axes. A row of `axes` is an axis: the cells before it, its levels, the
cells after it, where the sizes of its groups are listed, and how many there are. Of every group all levels but the last
lie together, groups in order, and after them all the last ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.grouping import Grouping
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled, in_any_order


class Basis:
    """Levels to slots and back along the axes of an array (G, ..., K), in place.

    Parameters
    ----------
    groupings : sequence of Grouping
        For every axis between the first and the last one; cells that each are a group by themselves stay as they are.
    """

    def __init__(self, groupings: Sequence[Grouping]) -> None:
        orders = [(axis, g.order) for axis, g in enumerate(groupings, 1)]
        self._ordered = [(axis, order) for axis, order in orders if (np.diff(order) < 0).any()]
        axes = [(axis, g) for axis, g in enumerate(groupings) if g.has_contrasts]
        self._sizes = np.concatenate([np.zeros(0, dtype=np.intp), *(g.sizes for _, g in axes)])
        levels, firsts = [g.levels for g in groupings], np.cumsum([0, *(g.sizes.size for _, g in axes)])
        steps = [
            (prod(levels[:axis]), g.levels, prod(levels[axis + 1 :]), first, g.sizes.size)
            for (axis, g), first in zip(axes, firsts, strict=False)
        ]
        self._steps = np.array(steps)  # of arrays of one column, as `reflect_axes` takes them

    def to_slots(self, block: Float) -> None:
        """From cells along every level, (G, ..., K), in their place."""
        for axis, order in self._ordered:
            block[...] = np.take(block, order, axis=axis)
        self._reflect(block)

    def to_cells(self, block: Float) -> None:
        """The inverse, and the transpose, of (G, ..., K)."""
        self._reflect(block)
        for axis, order in self._ordered:
            block[...] = np.take(block, np.argsort(order), axis=axis)

    def _reflect(self, block: Float) -> None:
        """Reflect along every axis of (G, ..., K), in its place."""
        assert block.flags.c_contiguous  # otherwise the reshape below would be a copy
        if block.size and len(self._steps):
            reflect_axes(block.reshape(len(block), -1), self._steps * (1, 1, block.shape[-1], 1, 1), self._sizes)


def reflect_axes_in_numpy(arrays: Float, axes: Integers, sizes: Integers) -> None:
    """Change basis along all axes in place.

    Parameters
    ----------
    arrays : ndarray, (G, cells)
    axes : ndarray of int, (axes, 5)
    sizes : ndarray of int
    """
    for before, levels, after, first, count in axes.tolist():
        flat = arrays.reshape(len(arrays) * before, levels, after)
        stop = 0
        for group, size in enumerate(sizes[first : first + count].tolist()):
            if size > 1:
                start, stop = stop, stop + size - 1
                others, last = flat[:, start:stop], flat[:, levels - count + group]
                coordinate = (others.sum(axis=1) + last) / np.sqrt(size)
                others += ((last - coordinate) / (np.sqrt(size) - 1))[:, None]
                last[...] = coordinate


@compiled(reference=reflect_axes_in_numpy, inline=False)
def reflect_axes(arrays: Float, axes: Integers, sizes: Integers) -> None:
    """See `reflect_axes_in_numpy`: arrays are (G, cells), axes (axes, 5)."""
    flat, cells, strip = arrays.ravel(), arrays.shape[1], np.empty(axes[:, 2].max())
    scales, rests = 1 / np.sqrt(sizes), 1 / (np.sqrt(sizes) - 1)
    for number in range(arrays.shape[0]):
        for i in range(axes.shape[0]):
            before, levels, after = axes[i, 0], axes[i, 1], axes[i, 2]
            for b in range(before):
                table = number * cells + b * levels * after
                start, last = table, table + (levels - axes[i, 4]) * after
                for group in range(axes[i, 3], axes[i, 3] + axes[i, 4]):
                    size, scale, rest = sizes[group], scales[group], rests[group]
                    if size > 1 and after == 1:
                        _reflect_cells(flat, start, last, size, scale, rest)
                    elif size > 1:
                        _reflect_runs(flat, start, last, after, size, scale, rest, strip)
                    start += (size - 1) * after
                    last += after


def _reflect_cells(flat: Float, start: int, last: int, size: int, scale: float, rest: float) -> None:
    """The same of one group of a flat array, (cells,), whose cells lie side by side."""
    coordinate = (flat[np.uint64(last)] + _sum_of_cells(flat, start, start + size - 1)) * scale
    moved = (flat[np.uint64(last)] - coordinate) * rest
    for i in range(start, start + size - 1):
        flat[np.uint64(i)] += moved
    flat[np.uint64(last)] = coordinate


@in_any_order
def _sum_of_cells(flat: Float, start: int, stop: int) -> float:
    """The sum of cells of a flat array, (cells,), side by side."""
    total = 0.0
    for i in range(start, stop):
        total += flat[np.uint64(i)]
    return total


def _reflect_runs(
    flat: Float, start: int, last: int, after: int, size: int, scale: float, rest: float, strip: Float
) -> None:
    """The same of groups of a flat array, (cells,), whose cells lie `after` apart, by a strip of memory."""
    strip[:after] = flat[last : last + after]
    for run in range(start, start + (size - 1) * after, after):
        for a in range(after):
            strip[a] += flat[np.uint64(run + a)]
    for a in range(after):
        coordinate = strip[a] * scale
        strip[a] = (flat[np.uint64(last + a)] - coordinate) * rest
        flat[np.uint64(last + a)] = coordinate
    for run in range(start, start + (size - 1) * after, after):
        for a in range(after):
            flat[np.uint64(run + a)] += strip[a]

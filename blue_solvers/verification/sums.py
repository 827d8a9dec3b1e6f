"""Summing tables to coarser ones, row by row of geounits, and spreading them over finer ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraint_builders import Schema
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import map_along


class Sum:
    """The cells of a fine table summed to those of a coarser one.

    Parameters
    ----------
    schema : Schema
    fine, coarse : Table
        Every cell of `coarse` is a sum of cells of `fine`.
    """

    def __init__(self, schema: Schema, fine: Table, coarse: Table) -> None:
        own = dict(zip(coarse.axes, coarse.factors, strict=True))
        self.fine = fine.shape  # a variable of one level may be in the coarse table alone
        self.coarse = tuple(n for n, axis in zip(coarse.shape, coarse.axes, strict=True) if axis in fine.axes)
        self.same = fine.name == coarse.name
        self._summed = [i for i, axis in enumerate(fine.axes, 1) if axis not in own]
        self._groups: list[tuple[int, NDArray[np.intp], int]] = []
        for i, (axis, factor) in enumerate(zip(fine.axes, fine.factors, strict=True), 1):
            if axis in own and own[axis] != factor:
                self._groups.append((i, map_along(schema, fine, coarse, axis), schema.size_of(own[axis])))
        self.ratio = fine.size / coarse.size
        axes = [*self._summed, *(axis for axis, _, _ in self._groups)]
        self.adds = 0 if self.same else sum(fine.shape[axis - 1] for axis in axes)  # one after another, at most

    def down(self, cells: NDArray, precision: type[np.floating] | None = None) -> NDArray:
        """(rows, fine cells) summed to (rows, coarse cells), in their own precision or another."""
        if self.same:
            return cells
        array = cells.reshape(-1, *self.fine)
        for axis, groups, count in self._groups:
            shape = list(array.shape)
            shape[axis] = count
            grouped = np.zeros(shape, dtype=precision or array.dtype)
            into, out_of = np.moveaxis(grouped, axis, 0), np.moveaxis(array, axis, 0)
            for level, group in enumerate(groups.tolist()):
                into[group] += out_of[level]
            array = grouped
        for axis in reversed(self._summed):
            array = array.sum(axis=axis, dtype=precision)
        return array.reshape(cells.shape[0], -1)

    def weights(self, each: NDArray) -> NDArray:
        """`down` of amounts that are the same for all cells of a row, (rows, 1), or of (rows, fine cells)."""
        if self.same or each.shape[1] > 1:
            return self.down(each)
        sizes = self.down(np.ones((1, int(np.prod(self.fine)))))
        return each * (sizes[:, :1] if (sizes == sizes[0, 0]).all() else sizes)

    def up(self, cells: NDArray) -> NDArray:
        """(rows, coarse cells) spread over (rows, *fine shape), each cell its whole value; it broadcasts."""
        lengths = list(self.coarse)
        for axis in self._summed:
            lengths.insert(axis - 1, 1)
        array = cells.reshape(-1, *lengths)
        for axis, groups, _ in self._groups:
            array = np.take(array, groups, axis=axis)
        return array

    def group_sizes(self) -> list[NDArray[np.intp]]:
        """Along every axis of the fine table that is in the coarse one, how many levels each of its cells sums."""
        groups = {axis: np.bincount(own, minlength=count) for axis, own, count in self._groups}
        kept = (axis for axis in range(1, len(self.fine) + 1) if axis not in self._summed)
        return [groups.get(axis, np.ones(self.fine[axis - 1], dtype=np.intp)) for axis in kept]

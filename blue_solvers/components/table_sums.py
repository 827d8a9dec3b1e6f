"""Tables of geounits from the cells of their finest one, each summed from the smallest at hand that refines it."""

from __future__ import annotations

import numpy as np

from blue_solvers.components.axis_sums import sum_axes
from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import map_along, refines


class TableSums:
    """Sums for a batch of geounits.

    Parameters
    ----------
    schema : Schema
    finest : Table
        It refines all of `tables`.
    tables : list of Table
    """

    def __init__(self, schema: Schema, finest: Table, tables: list[Table]) -> None:
        self._finest = finest.shape
        self._steps: list[tuple[int, int, _Sum]] = []
        at_hand = {-1: finest}
        for target in sorted(range(len(tables)), key=lambda i: -tables[i].size):
            fine = [i for i, table in at_hand.items() if refines(schema, table, tables[target])]
            source = min(fine, key=lambda i: at_hand[i].size)
            self._steps.append((target, source, _Sum(schema, at_hand[source], tables[target])))
            at_hand[target] = tables[target]

    def __call__(self, cells: Float) -> list[Float]:
        """All tables, (G, *shape, K) each, from cells (G, ..., K) of the finest one; a table equal to it is a view."""
        found = {-1: cells}
        for target, source, step in self._steps:
            found[target] = step(found[source])
        return [found[i] for i in range(len(self._steps))]

    def spread(self, tables: list[Float]) -> Float:
        """The transpose: cells (G, ..., K) of the finest table, each what all that it is summed to have together."""
        like = tables[0]
        found = {-1: np.zeros((len(like), *self._finest, like.shape[-1]))}
        found |= {i: np.array(table) for i, table in enumerate(tables)}
        for target, source, step in reversed(self._steps):
            found[source] += step.spread(found.pop(target))
        return found[-1]


class _Sum:
    """From one table to a coarser one."""

    def __init__(self, schema: Schema, fine: Table, coarse: Table) -> None:
        own = dict(zip(coarse.axes, coarse.factors, strict=True))
        self._shape = coarse.shape
        self._summed = tuple(i for i, axis in enumerate(fine.axes, 1) if axis not in own)
        kept = [(axis, factor) for axis, factor in zip(fine.axes, fine.factors, strict=True) if axis in own]
        self._sizes = tuple(schema.size_of(own[axis]) for axis, _ in kept)
        self._maps = [
            (i, map_along(schema, fine, coarse, axis), np.eye(size))
            for i, ((axis, factor), size) in enumerate(zip(kept, self._sizes, strict=True), 1)
            if own[axis] != factor
        ]

    def __call__(self, cells: Float) -> Float:
        sums = sum_axes(cells, self._summed) if self._summed else cells
        for axis, levels, identity in self._maps:
            sums = np.ascontiguousarray(along(identity[:, levels], sums, axis))
        return sums.reshape(len(cells), *self._shape, cells.shape[-1])

    def spread(self, cells: Float) -> Float:
        """The transpose, with an axis of 1 for every variable that is summed out."""
        found = cells.reshape(len(cells), *self._sizes, cells.shape[-1])
        for axis, levels, _ in self._maps:
            found = np.take(found, levels, axis=axis)
        return np.expand_dims(found, self._summed)


def along(matrix: Float, array: Float, axis: int) -> Float:
    """Multiply a matrix into one axis."""
    if matrix.shape == (1, 1):
        return array * matrix[0, 0]
    return np.moveaxis(np.tensordot(matrix, array, axes=(1, axis)), 0, axis)

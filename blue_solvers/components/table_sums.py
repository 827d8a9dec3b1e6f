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


class _Sum:
    """From one table to a coarser one."""

    def __init__(self, schema: Schema, fine: Table, coarse: Table) -> None:
        own = dict(zip(coarse.axes, coarse.factors, strict=True))
        self._shape = coarse.shape
        self._summed = tuple(i for i, axis in enumerate(fine.axes, 1) if axis not in own)
        kept = [(axis, factor) for axis, factor in zip(fine.axes, fine.factors, strict=True) if axis in own]
        self._indicators = []
        for i, (axis, factor) in enumerate(kept, 1):
            if own[axis] != factor:
                self._indicators.append(
                    (i, np.eye(schema.size_of(own[axis]))[:, map_along(schema, fine, coarse, axis)])
                )

    def __call__(self, cells: Float) -> Float:
        sums = sum_axes(cells, self._summed) if self._summed else cells
        for axis, indicator in self._indicators:
            sums = np.ascontiguousarray(along(indicator, sums, axis))
        return sums.reshape(len(cells), *self._shape, cells.shape[-1])


def along(matrix: Float, array: Float, axis: int) -> Float:
    """Multiply a matrix into one axis."""
    if matrix.shape == (1, 1):
        return array * matrix[0, 0]
    return np.moveaxis(np.tensordot(matrix, array, axes=(1, axis)), 0, axis)

"""Tables of geounits from the cells of their finest one, by the sums of the lattice sweeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.plan import SweepPlan
from blue_solvers.components.lattice.sweeps import go_down, go_up
from constraint_builders import Schema
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.table import Table

SIDE_BY_SIDE = 8  # geounits whose numbers a processor works on at once


class Lanes:
    """Tables of some geounits in one array, eight of them side by side, as the sweeps take them.

    Parameters
    ----------
    rows : int
        Cells of all tables of a geounit, and room for what is worked out on the way.
    count, columns : int
        How many geounits; and numbers of each cell, K.
    """

    def __init__(self, rows: int, count: int, columns: int) -> None:
        self._count, self._columns, self._eights = count, columns, -(-count // SIDE_BY_SIDE)
        self.cells = np.empty((rows * self._eights, SIDE_BY_SIDE * columns))

    def part(self, place: int, size: int) -> Float:
        """Where a table is that starts at a place, (eights, size, 8, K)."""
        own = self.cells[place * self._eights :][: size * self._eights]
        return own.reshape(self._eights, size, SIDE_BY_SIDE, self._columns)

    def put(self, table: Float, part: Float) -> None:
        """Set a part to a table, (G, size, K); to 0 where there are no more geounits."""
        whole = self._count // SIDE_BY_SIDE
        rest = self._count - whole * SIDE_BY_SIDE
        part[:whole] = table[: self._count - rest].reshape(whole, SIDE_BY_SIDE, *table.shape[1:]).swapaxes(1, 2)
        part[whole:, :, :rest] = table[self._count - rest :].swapaxes(0, 1)
        part[whole:, :, rest:] = 0

    def take(self, part: Float) -> Float:
        """A part as a table, (G, size, K)."""
        own = part.swapaxes(1, 2).reshape(-1, part.shape[1], self._columns)
        return np.ascontiguousarray(own[: self._count])

    def per_geounit(self, numbers: Float) -> Float:
        """Numbers (..., G) as they multiply parts, or (..., 1) one for all, (..., eights, 1, 8, 1)."""
        if numbers.shape[-1] == self._count:
            width = [(0, 0)] * (numbers.ndim - 1) + [(0, self._eights * SIDE_BY_SIDE - self._count)]
            numbers = np.pad(numbers, width)
        return numbers.reshape(*numbers.shape[:-1], -1, 1, min(SIDE_BY_SIDE, numbers.shape[-1]), 1)

    def go_up(self, steps: Integers, lists: Integers) -> None:
        """Steps between the tables of one geounit, going up."""
        go_up.fastest()(self.cells, self._for_all(steps), lists, np.ones(len(steps)), self.cells)

    def go_down(self, steps: Integers, lists: Integers) -> None:
        """The same going down."""
        go_down.fastest()(self.cells, self._for_all(steps), lists)

    def _for_all(self, steps: Integers) -> Integers:
        return steps * np.array([1, self._eights, self._eights, self._eights, 1, 1, 1])


class TableSums:
    """Sums for a batch of geounits: the first of a table's axes is theirs.

    Parameters
    ----------
    schema : Schema
    finest : Table
        It refines all of `tables`.
    tables : list of Table
    """

    def __init__(self, schema: Schema, finest: Table, tables: list[Table]) -> None:
        axes = SchemaAxes(schema, [finest, *tables])
        self._whole, self._own = axes.of(finest), [axes.of(table) for table in tables]
        self._plan = SweepPlan(axes, [self._whole], self._own)
        self._finest, self._shapes = finest.shape, [table.shape for table in tables]

    def __call__(self, cells: Float) -> list[Float]:
        """All tables, (G, *shape, K) each, from cells (G, ..., K) of the finest one."""
        cells = cells.reshape(len(cells), -1, cells.shape[-1])
        if not all(own == self._whole for own in self._own):
            lanes = self._lanes(cells)
            lanes.put(cells, self._part(lanes, self._whole))
            lanes.go_down(self._plan.sums, self._plan.lists)
        tables = [cells if own == self._whole else lanes.take(self._part(lanes, own)) for own in self._own]
        return [own.reshape(len(own), *shape, -1) for own, shape in zip(tables, self._shapes, strict=True)]

    def spread(self, tables: Sequence[Float]) -> Float:
        """The transpose: cells (G, ..., K) of the finest table, each what all that it is summed to have together."""
        lanes = self._lanes(tables[0])
        lanes.cells[...] = 0
        totals: dict[Axes, Float] = {}
        for own, table in zip(self._own, tables, strict=True):
            totals[own] = totals[own] + table if own in totals else table
        for own, table in totals.items():
            lanes.put(table.reshape(len(table), -1, table.shape[-1]), self._part(lanes, own))
        lanes.go_up(self._plan.shares, self._plan.lists)
        return lanes.take(self._part(lanes, self._whole)).reshape(len(tables[0]), *self._finest, -1)

    def _lanes(self, table: Float) -> Lanes:
        return Lanes(self._plan.cells + self._plan.most_room, len(table), table.shape[-1])

    def _part(self, lanes: Lanes, axes: Axes) -> Float:
        return lanes.part(self._plan.places[axes], self._plan.size_of(axes))

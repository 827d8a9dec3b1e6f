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


class Tables:
    """Tables of some geounits in one array as the sweeps take them: each of all geounits lies together.

    Parameters
    ----------
    rows : int
        Cells of all tables of a geounit, and room for what is worked out on the way.
    count, columns : int
        How many geounits; and numbers of each cell, K.
    """

    def __init__(self, rows: int, count: int, columns: int) -> None:
        self._count, self._columns = count, columns
        self.cells = np.empty((rows * count, columns))

    def part(self, place: int, size: int) -> Float:
        """Where a table is that starts at a place, (G, size, K)."""
        own = self.cells[place * self._count :][: size * self._count]
        return own.reshape(self._count, size, self._columns)

    def go_up(self, steps: Integers, lists: Integers) -> None:
        """Steps between the tables of one geounit, going up."""
        go_up.fastest()(self.cells, self._for_all(steps), lists, np.ones(len(steps)), self.cells)

    def go_down(self, steps: Integers, lists: Integers) -> None:
        """The same going down."""
        go_down.fastest()(self.cells, self._for_all(steps), lists)

    def _for_all(self, steps: Integers) -> Integers:
        """What comes before the first of a table's axes is the geounits."""
        return steps * np.array([1, *[self._count] * 3, *[1] * (steps.shape[1] - 4)])


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
        if all(own == self._whole for own in self._own):
            tables = [cells] * len(self._own)
        else:
            room = self._room(cells)
            self._part(room, self._whole)[...] = cells
            room.go_down(self._plan.sums, self._plan.lists)
            tables = [self._part(room, own) for own in self._own]
        return [own.reshape(len(own), *shape, -1) for own, shape in zip(tables, self._shapes, strict=True)]

    def spread(self, tables: Sequence[Float]) -> Float:
        """The transpose: cells (G, ..., K) of the finest table, each what all that it is summed to have together."""
        room = self._room(tables[0])
        room.cells[...] = 0
        for own, table in zip(self._own, tables, strict=True):
            part = self._part(room, own)
            part += table.reshape(part.shape)
        room.go_up(self._plan.shares, self._plan.lists)
        return self._part(room, self._whole).reshape(len(tables[0]), *self._finest, -1)

    def _room(self, table: Float) -> Tables:
        return Tables(self._plan.cells + self._plan.most_room, len(table), table.shape[-1])

    def _part(self, room: Tables, axes: Axes) -> Float:
        return room.part(self._plan.places[axes], self._plan.size_of(axes))

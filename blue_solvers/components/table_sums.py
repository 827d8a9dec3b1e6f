"""Tables of geounits from the cells of their finest one, by the sums of the lattice sweeps."""

from __future__ import annotations

import numpy as np

from blue_solvers.components.lattice.axes import SchemaAxes
from blue_solvers.components.lattice.plan import SweepPlan
from blue_solvers.components.lattice.sweeps import go_down, go_up
from constraint_builders import Schema
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.table import Table


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
        room = np.empty(((self._plan.cells + self._plan.most_room) * len(cells), cells.shape[-1]))
        self._part(room, len(cells), self._whole)[...] = cells.reshape(-1, cells.shape[-1])
        go_down.fastest()(room, self._steps(self._plan.sums, len(cells)), self._plan.lists)
        parts = [self._part(room, len(cells), own) for own in self._own]
        return [own.reshape(len(cells), *shape, -1) for own, shape in zip(parts, self._shapes, strict=True)]

    def spread(self, tables: list[Float]) -> Float:
        """The transpose: cells (G, ..., K) of the finest table, each what all that it is summed to have together."""
        count, columns = len(tables[0]), tables[0].shape[-1]
        room = np.zeros(((self._plan.cells + self._plan.most_room) * count, columns))
        for own, table in zip(self._own, tables, strict=True):
            self._part(room, count, own)[...] += table.reshape(-1, columns)
        steps = self._steps(self._plan.shares, count)
        go_up.fastest()(room, steps, self._plan.lists, np.ones(len(steps)), room)
        return self._part(room, count, self._whole).reshape(count, *self._finest, columns)

    def _part(self, room: Float, count: int, axes: tuple[int, ...]) -> Float:
        """A table of so many geounits, one after the other."""
        return room[self._plan.places[axes] * count :][: self._plan.size_of(axes) * count]

    def _steps(self, steps: Integers, count: int) -> Integers:
        return steps * np.array([1, count, count, count, 1, 1, 1])

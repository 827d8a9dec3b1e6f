"""Tables of many geounits through the lattice sweeps: sums of a finest one, and what others say beside it.

The cells of a leaf's finest table have one variance. So with y that table, z the others, B their sums, P their
precisions and C the covariance, the estimate is y + C B' P (z - B y): what others differ by from the sums of y goes
through the sweeps between them, in which the finest table says 0; what is found of each is spread evenly over the
finest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from blue_solvers.components.grouping import Axes, SchemaAxes, axes_in_use
from blue_solvers.components.lattice.groups import GroupMixing, Lines, mix_lines
from blue_solvers.components.lattice.plan import SweepPlan, information
from blue_solvers.components.lattice.sets import places
from blue_solvers.components.lattice.steps import StepList
from blue_solvers.components.lattice.sweeps import SUM, go_down, go_up, scale_tables
from constraint_builders import Schema
from constraint_builders.arrays import Float, Integers, not_read_only
from constraint_builders.description.table import Table

NO_VALUES = np.zeros((0, 1))
MATRIX_BYTES = 5e7  # of groups of leaves; 8e7, of 1,160 groups, take 1.2 s more than slots, which take these apart


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
        self.count, self._columns = count, columns
        self.cells = np.empty((rows * count, columns))

    def part(self, place: int, size: int) -> Float:
        """Where a table is that starts at a place, (G, size, K)."""
        return self.cells[place * self.count : (place + size) * self.count].reshape(self.count, size, self._columns)

    def go_up(self, own: StepList, lists: Integers, finest: Float = NO_VALUES) -> None:
        """Steps of one geounit going up, to a finest table too, (G, cells, K) without gaps, that lies elsewhere."""
        go_up(self.cells, own.of_several(self.count), lists, own.factors, finest.reshape(-1, self._columns))

    def go_down(self, own: StepList, lists: Integers, finest: Float = NO_VALUES) -> None:
        """The same going down, from that table, (G, cells, K)."""
        values = not_read_only(np.ascontiguousarray(finest)).reshape(-1, self._columns)
        go_down(self.cells, own.of_several(self.count), lists, values)

    def multiply(self, sizes: Integers, factors: Float) -> None:
        """Tables of so many cells, (tables,), those that come first, each by its factor, (tables,)."""
        scale_tables(self.cells, sizes * self.count, factors)


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
        axes = axes_in_use(schema, [finest, *tables])
        self._whole, *self._own = [axes.of(table) for table in (finest, *tables)]
        self._plan = plan = _sums_of(axes, self._whole, tuple(self._own))
        self._sums, self._shares = _from_elsewhere(plan.sums, plan.places[self._whole]), StepList.of(plan.shares)
        self._place = {own: (plan.places[own], plan.size_of(own)) for own in (self._whole, *self._own)}
        self._finest, self._shapes = finest.shape, [table.shape for table in tables]

    def __call__(self, cells: Float) -> list[Float]:
        """All tables, (G, *shape, K) each, from cells (G, ..., K) of the finest one."""
        cells = cells.reshape(len(cells), -1, cells.shape[-1])
        room = self._room(cells)
        room.go_down(self._sums, self._plan.lists, cells)
        tables = [cells if own == self._whole else room.part(*self._place[own]) for own in self._own]
        return [own.reshape(len(own), *shape, -1) for own, shape in zip(tables, self._shapes, strict=True)]

    def spread(self, tables: Sequence[Float]) -> Float:
        """The transpose: cells (G, ..., K) of the finest table, each what all that it is summed to have together."""
        room = self._room(tables[0])
        room.cells[...] = 0
        for own, table in zip(self._own, tables, strict=True):
            part = room.part(*self._place[own])
            part += table.reshape(part.shape)
        room.go_up(self._shares, self._plan.lists)
        return room.part(*self._place[self._whole]).reshape(len(tables[0]), *self._finest, -1)

    def _room(self, table: Float) -> Tables:
        """Memory for all tables beside one that is (G, ..., K)."""
        return Tables(self._plan.cells + self._plan.most_room, len(table), table.shape[-1])


@lru_cache(maxsize=4)
def _sums_of(axes: SchemaAxes, finest: Axes, tables: tuple[Axes, ...]) -> SweepPlan:
    """How tables are summed from one: levels of a spine have the same ones."""
    return SweepPlan(axes, [finest], tables)


@lru_cache(maxsize=4)
def _with_all_groups(axes: SchemaAxes, seen: tuple[Axes, ...]) -> tuple[SweepPlan, dict[int, Axes]]:
    """Sweeps between tables, where of all that keep the same variables whole one has all their groups, which this is.

    These are by the set of variables.
    """
    told = list(seen)
    while True:
        plan, found = SweepPlan(axes, told, []), dict[int, set[int]]()
        for mask, table in zip(plan.masks, plan.tables, strict=True):
            groups = {axes.groups[axis] for axis in plan.groups(table)}
            found.setdefault(mask, set(places(mask))).update(groups)
        joins = {mask: tuple(sorted(own)) for mask, own in found.items()}
        missing = [own for own in joins.values() if own not in plan.number]
        if not missing:
            return plan, joins
        told += missing


def _from_elsewhere(rows: Integers, place: int) -> StepList:
    """Steps, (rows, 10), of which the finer table at a place is one of values."""
    is_finest = rows[:, 1] == place
    rows = rows.copy()
    rows[is_finest, :2] = SUM, 0
    return StepList.of(rows)


class SameCellsError(Exception):
    """Two tables of a leaf have the same cells."""


class LeafPlan:
    """Estimates of leaves that measured a finest table and some others alike.

    Parameters
    ----------
    schema : Schema
    tables : list of Table
        The finest one first.
    precisions : ndarray, (tables,)

    Raises
    ------
    SameCellsError
        If two of the tables, or what they lead to and the finest one, have the same cells.
    TooManyCellsError
        If recodes make too many groups.
    """

    def __init__(self, schema: Schema, tables: list[Table], precisions: Float) -> None:
        axes = axes_in_use(schema, tables)
        whole, *self._seen = [axes.of(table) for table in tables]
        plan, self._joins = self._plan, _ = _with_all_groups(axes, tuple(self._seen))
        if len(set(self._seen)) < len(self._seen) or whole in plan.number:
            raise SameCellsError
        self._spread = spread = _sums_of(axes, whole, tuple(plan.tables))  # which lie as in `plan`, the finest behind
        self._rows = spread.cells + max(plan.most_room, spread.most_room)
        self._sums, self._shares = (_from_elsewhere(own, plan.cells) for own in (spread.sums, spread.shares))
        self._numbers = [plan.number[own] for own in self._seen]
        self._precisions = np.zeros(len(plan.tables))
        self._precisions[self._numbers] = precisions[1:]
        room = Tables(self._rows, 1, 1)
        room.go_down(self._sums, self._spread.lists, np.ones((axes.size(whole), 1)))
        share = 1 / room.cells[: plan.cells, 0]  # of a table's cell for each of the finest one's
        if axes.has_groups:
            self._weigh_groups(precisions, share)
        else:
            others, _ = information(plan, self._seen, precisions[1:])
            self._scales = share[plan.offsets] / (others + precisions[0] * plan.sizes / axes.size(whole))

    def _weigh_groups(self, precisions: Float, share: Float) -> None:
        """What multiplies what is known of tables, (tables,); and what mixes groups."""
        plan, self._scales = self._plan, np.ones(len(self._plan.tables))
        _, found = information(plan, self._seen, precisions[1:])
        for join in self._joins.values():
            groups = tuple(slice(None) if axis in plan.groups(join) else 0 for axis in join)
            each = share[plan.places[join] :][: plan.size_of(join)].reshape([plan.axes.sizes[axis] for axis in join])
            found[join] = found.get(join, 0.0) + precisions[0] * each[groups].ravel()
        self._lay_lines(GroupMixing(plan, found, [], MATRIX_BYTES), share)
        for i, (mask, table) in enumerate(zip(plan.masks, plan.tables, strict=True)):
            if not plan.groups(self._joins[mask]):
                self._scales[i] = share[plan.places[table]] / found[table][0]

    def _lay_lines(self, mixing: GroupMixing, share: Float) -> None:
        """Lines, their tables, and matrices that leave of components what finest groups say; `share` is (cells,)."""
        plan, (ends, heads, places, parts, matrices) = self._plan, mixing.lines
        is_join = np.array([self._joins[mask] == own for mask, own in zip(plan.masks, plan.tables, strict=True)])
        wanted, heads, matrices = is_join[np.searchsorted(plan.offsets, ends[:, 0])], heads.copy(), matrices.copy()
        for row in heads:
            first, lines, runs, _, start, tables, numbers, listed, entry = row.tolist()
            own = parts[listed:][: tables * numbers].reshape(tables, numbers)
            join = int(np.flatnonzero(wanted[first + own[:, 0]])[0])
            row[5], row[7] = 1, listed + join * numbers
            firsts = ends[first + own[join], 0] + places[start:][: lines * runs : runs][own[join]]
            matrices[entry:][: numbers * lines].reshape(numbers, lines)[...] *= share[firsts][:, None]
        self._lines: Lines = ends, heads, places, parts, matrices

    def estimate(self, cells: Float, others: Sequence[Float], total: Float) -> None:
        """Add estimates of some leaves from their tables.

        Parameters
        ----------
        cells : ndarray, (G, cells, K)
            Of the finest one.
        others : sequence of ndarray, (G, size, K)
        total : ndarray, (G, cells, K)
            What they are added to, without gaps.
        """
        room, parts = self._room(cells)
        room.go_down(self._sums, self._spread.lists, cells)
        for part, table in zip(parts, others, strict=True):
            np.subtract(table, part, out=part)
        room.multiply(self._plan.sizes, self._precisions)
        room.go_up(self._plan.up, self._plan.lists)
        self._weigh(room, False)
        total += cells
        room.go_up(self._shares, self._spread.lists, total)

    def transpose(self, cells: Float) -> list[Float]:
        """The transpose of `estimate`: of the finest table, (G, cells, K), in place of cells without gaps; others."""
        room, parts = self._room(cells)
        room.go_down(self._sums, self._spread.lists, cells)
        self._weigh(room, True)
        room.go_down(self._plan.down, self._plan.lists)
        room.multiply(self._plan.sizes, -self._precisions)
        others = [-part for part in parts]
        room.go_up(self._shares, self._spread.lists, cells)
        return others

    def _room(self, cells: Float) -> tuple[Tables, list[Float]]:
        """Room for some leaves, whose finest table is (G, cells, K), and where the others are in it."""
        plan, room = self._plan, Tables(self._rows, *cells.shape[::2])
        return room, [room.part(plan.offsets[i], plan.sizes[i]) for i in self._numbers]

    def _weigh(self, room: Tables, transpose: bool) -> None:
        """What all tables say of each of their finest cells, from the information about their own."""
        room.multiply(self._plan.sizes, self._scales)
        if self._plan.axes.has_groups:
            mix_lines(room.cells, room.count, self._lines, transpose)

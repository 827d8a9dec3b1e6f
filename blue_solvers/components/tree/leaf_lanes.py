"""`LeafForm`'s corrections of many geounits at once, compiled: see `lanes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from blue_solvers.components.boxes import Box
from blue_solvers.components.lanes import map_lanes
from blue_solvers.components.row_program import RowProgram, RowSums
from blue_solvers.components.table_access import TableAccess
from blue_solvers.components.table_sums import TableSums
from constraint_builders import Schema
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.description.table import Table, make_table

WHOLE = 128  # cells of a finest table that go through the tile with all else
RUN = 32  # cells that are worth a loop
PlacedTable = tuple[int, Table]  # where a table starts in its layout, in cells


@dataclass(frozen=True)
class Lanes:
    """What some lanes add up, and what they are.

    Attributes
    ----------
    firsts, members : ndarray of int, (N + 1,) and (members,)
    classes : ndarray of int, (N,)
    part_of : ndarray of int, (N,)
    rows_out : ndarray of int, (N,)
    """

    firsts: Integers
    members: Integers
    classes: Integers
    part_of: Integers
    rows_out: Integers


class LeafLanes:
    """The map from what geounits measured, and their part of what their parents learnt, to their estimates.

    Parameters
    ----------
    schema : Schema
    finest : tuple of (start, Table)
        Measured by all of them.
    others : list of (start, Table)
        Measured besides.
    readers : list of TableAccess
        Of these.
    boxes : list of Box
    classes : int
    desired : list of (start, Table)
        What is wanted of them.
    """

    def __init__(
        self,
        schema: Schema,
        finest: PlacedTable,
        others: list[PlacedTable],
        readers: list[TableAccess],
        boxes: list[Box],
        classes: int,
        desired: list[PlacedTable],
    ) -> None:
        self._schema, self._finest, self._cells = schema, finest, finest[1].size
        self.tabulates = self._cells <= WHOLE
        program = RowProgram(classes)
        inputs = [program.new(*table.shape) for _, table in others]
        starts = [(start, table.size, int(own.flat[0])) for (start, table), own in zip(others, inputs, strict=True)]
        cells, part = None, None
        if self.tabulates:
            cells, part = program.new(*finest[1].shape), program.new(*finest[1].shape)
            starts.append((finest[0], self._cells, int(cells.flat[0])))
        self._inputs = _integers(starts, 3)
        self._line = np.array([finest[0], 0 if self.tabulates else self._cells])
        self._margins = np.zeros((0, 5), dtype=np.int64)
        margins = self._sums(program, cells, [table for _, table in others])
        for own, margin in zip(inputs, margins, strict=True):
            program.combine(own, [own, margin], [1, -1])
        kept = np.concatenate([np.zeros(0, dtype=np.intp), *([] if cells is None else [cells.ravel()])])
        if margins:
            program.free(np.setdiff1d(np.concatenate([own.ravel() for own in margins]), kept))
        differences = [reader.coordinate_rows(program, own) for reader, own in zip(readers, inputs, strict=True)]
        found = [box.rows(program, differences, np.arange(classes)) for box in boxes]
        self._written, self._first_part = _Written(), -1
        self._boxes, self._runs = _integers([], 3), np.zeros((0, 1), dtype=np.int64)
        self._outputs, self._alone = _integers([], 3), _integers([], 3)
        if cells is not None and part is not None:
            estimates = program.new(*cells.shape)
            program.combine(estimates, [cells, part, *found], [1] * (2 + len(found)))
            self._first_part = int(part.flat[0])
            self._alone = _integers([(0, self._cells, self._written.add(estimates))], 3)
            sums = TableSums(schema, finest[1], [table for _, table in desired]).rows(program, estimates)
            tables = [(start, own.size, self._written.add(own)) for (start, _), own in zip(desired, sums, strict=True)]
            self._outputs = _integers(tables, 3)
        else:
            self._spread(found)
        self._rows_written = self._written.rows
        self._program: RowSums = program.finished()
        self._rows = program.count

    @staticmethod
    def can(schema: Schema, finest: Table, others: list[Table]) -> bool:
        """Whether margins of a finest table of many cells are all that is needed of it."""
        return finest.size <= WHOLE or all(len(_whole(schema, table).axes) < len(finest.axes) for table in others)

    def _sums(self, program: RowProgram, cells: Index | None, tables: list[Table]) -> list[Index]:
        """Rows of the finest table's sums."""
        finest = self._finest[1]
        if cells is not None:
            return TableSums(self._schema, finest, tables).rows(program, cells)
        distinct = {table.name: table for own in tables for table in (own, _whole(self._schema, own))}
        sums = TableSums(self._schema, finest, list(distinct.values()))
        every = list(distinct.values())
        known = {number: self._margin(program, every[number]) for number in sums.from_finest}
        found = dict(zip(distinct, sums.rows(program, None, known), strict=True))
        return [found[table.name] for table in tables]

    def _margin(self, program: RowProgram, table: Table) -> Index:
        """Rows of a margin of the line, by sums over axes that lie side by side, the longest first."""
        shape = list(self._finest[1].shape)
        summed = [axis not in table.axes for axis in self._finest[1].axes]
        steps = [list(own) for own in self._margins]
        source = 0
        rows = program.new(*table.shape)
        while any(summed):
            runs = [i for i, own in enumerate(summed) if own and not (i and summed[i - 1])]
            stops = [next((j for j in range(i, len(summed)) if not summed[j]), len(summed)) for i in runs]
            first, stop = max(zip(runs, stops, strict=True), key=lambda own: prod(shape[own[0] : own[1]]))
            before, levels, after = prod(shape[:first]), prod(shape[first:stop]), prod(shape[stop:])
            del shape[first:stop], summed[first:stop]
            steps.append([source, before, levels, after, -1 if any(summed) else int(rows.flat[0])])
            source = self._cells + sum(own[1] * own[3] for own in steps[:-1])
        self._margins = _integers(steps, 5)
        return rows

    def _spread(self, found: list[Index]) -> None:
        """How boxes, whose axes are of 1 or whole, are added to the line."""
        shape = self._finest[1].shape
        start = _run_axis(shape, [own.shape for own in found])
        run = prod(shape[start:])
        boxes, runs = [], []
        for own in found:
            each = any(n > 1 for n in own.shape[start:])
            within = shape[start:] if each else own.shape[start:]
            rows = np.broadcast_to(own, (*own.shape[:start], *within))
            places = np.arange(rows.size).reshape(-1, prod(within))[:, 0].reshape(own.shape[:start])
            boxes.append((rows.size, self._written.add(rows), int(each)))
            runs.append(np.broadcast_to(places, shape[:start]).ravel())
        self._boxes = _integers(boxes, 3)
        self._runs = np.array(runs, dtype=np.int64).reshape(len(boxes), self._cells // run)

    def estimate(self, Y: Float, lanes: Lanes, parts: Float | None, result: Float) -> None:
        """Estimates of lanes into a finest table (G, ..., K).

        Parameters
        ----------
        Y : ndarray, (n, K)
        lanes : Lanes
        parts : ndarray, (P, ..., K), optional
        result : ndarray
        """
        self._map(Y, lanes, parts, self._alone, result)

    def tabulate(self, Y: Float, lanes: Lanes, parts: Float | None, X: Float) -> None:
        """All that is desired of lanes into X, (m, K), where `tabulates`."""
        self._map(Y, lanes, parts, self._outputs, X)

    def _map(self, Y: Float, lanes: Lanes, parts: Float | None, outputs: Integers, result: Float) -> None:
        K, steps = Y.shape[1], self._program
        given = np.empty((0, self._cells * K)) if parts is None else parts.reshape(len(parts), -1)
        map_lanes.fastest()(
            Y.reshape(-1), K, lanes.firsts, lanes.members, lanes.classes, self._inputs, self._line, self._margins,
            given, lanes.part_of, self._first_part, steps.targets, steps.lengths, steps.firsts, steps.sources,
            steps.factors, outputs, self._rows_written, self._boxes, self._runs, 0, result.reshape(-1),
            lanes.rows_out, self._rows,
        )  # fmt: skip


class _Written:
    """Rows that are written, one table after the other."""

    def __init__(self) -> None:
        self._tables: list[Index] = []

    def add(self, rows: Index) -> int:
        """Where they start."""
        start = sum(own.size for own in self._tables)
        self._tables.append(rows.ravel())
        return start

    @property
    def rows(self) -> Integers:
        """All of them."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._tables])


def _whole(schema: Schema, table: Table) -> Table:
    """The table of the same variables without recodes."""
    return make_table(schema, tuple(schema.names[axis] for axis in table.axes))


def _run_axis(shape: tuple[int, ...], boxes: list[tuple[int, ...]]) -> int:
    """From which axis on cells of the line are a run, of which every box has one cell or all."""
    start = len(shape)
    while start and all(len({n > 1 for n, m in zip(own[start - 1 :], shape[start - 1 :], strict=True) if m > 1}) <= 1
                        for own in boxes):  # fmt: skip
        start -= 1
    while start and prod(shape[start:]) < RUN:
        start -= 1
    return start


def _integers(rows: Sequence[Sequence[int]], width: int) -> Integers:
    return np.array(rows, dtype=np.int64).reshape(-1, width)

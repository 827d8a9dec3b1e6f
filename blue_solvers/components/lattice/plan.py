"""The operations of the sweeps between tables.

Means that go from a large table to many small ones are taken by sums of sums beside it, none of which changes it: what
it has along small tables is found among copies of theirs. So what it has beside that is never laid out: going down, it
gets what the copies lack. Only where others mix it in between, or take it for a small table themselves, it loses what
the copies have, as tables do from which means go one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from math import prod

import numpy as np

from blue_solvers.components.grouping import Axes, SchemaAxes
from blue_solvers.components.lattice.sets import tree_of_sums
from blue_solvers.components.lattice.sweeps import ADD, EXPAND, LAND, MOVE, PUT, REDUCE, sums
from blue_solvers.components.lattice.tables import LatticeTables
from constraint_builders.arrays import Flags, Float, Index, Integers

Row = tuple[int, ...]
Stage = tuple[int, int, int, int]  # cells before, levels, cells after, the list
TABLE, TARGET, KEEPS_FIRST = 7, 8, 9  # places of a row
SUMMED, KEPT = -1, -2  # in the place of a list
COPIES = 6  # times that a table is larger than all inside it, copies of which then pay


@dataclass(frozen=True)
class StepList:
    """Rows of a list of operations.

    Attributes
    ----------
    steps : ndarray of int, (rows, 10)
        As the sweeps take them; then whose work each is, which table it leads to, as the plan numbers them, and whether
        that has the same first axis.
    factors : ndarray, (rows,)
    beside : slice
        What is cleared before.
    """

    steps: Integers
    factors: Float
    beside: slice = field(default_factory=lambda: slice(0))

    @classmethod
    def of(cls, rows: Sequence[Row], factors: Float | float = 1.0) -> StepList:
        """Rows without what is cleared."""
        return cls(_rows(rows), np.ones(len(rows)) * factors)

    @property
    def table(self) -> Integers:
        """Whose work each row is."""
        return self.steps[:, TABLE]

    def at(self, rows: Index | slice | Flags) -> StepList:
        """Some rows."""
        return StepList(self.steps[rows], self.factors[rows])

    def followed_by(self, other: StepList) -> StepList:
        """Both, one after the other."""
        return StepList(np.concatenate([self.steps, other.steps]), np.concatenate([self.factors, other.factors]))

    def turned(self) -> StepList:
        """With the two places of every row exchanged."""
        return replace(self, steps=self.steps[:, [0, 2, 1, *range(3, 10)]])


class SweepPlan(LatticeTables):
    """The tables and operations.

    Parameters
    ----------
    axes, observed, desired, most_cells
        As `LatticeTables` takes them; copies are within the cells.
    with_copies : bool, optional
        Whether small tables may be copied beside large ones.

    Attributes
    ----------
    cells : int
        Of all tables and copies.
    copied : slice
        Where copies lie.
    cells_of_copies : ndarray
        Of the large table for each cell of its copies; 0 where it loses what they have.
    up, down : StepList
        Operations between the tables.
    sums, shares : ndarray of int, (rows, 10)
        Going down, those that lead to margins; and going up, those that lead from them.
    most_room : int
        Cells that one operation needs after all tables.
    """

    def __init__(
        self,
        axes: SchemaAxes,
        observed: Sequence[Axes],
        desired: Sequence[Axes],
        most_cells: float = np.inf,
        with_copies: bool = False,
    ) -> None:
        super().__init__(axes, observed, desired, most_cells)
        self._lists: list[int] = []
        self._list = cache(self._lay_list)
        self._trees: dict[Axes, dict[Axes, Axes]] = {}  # of each its sums, each with what it is a sum of, in order
        self._copies: dict[Axes, dict[Axes, int]] = {}  # where they lie
        self._is_left: dict[Axes, bool] = {}  # whether it keeps what the copies have
        self._lay_copies(most_cells if with_copies else 0.0)
        self._lay_steps()

    def disagreement(self, cells: Float) -> float:
        """Largest difference between a table and the sums of one that it is a part or a margin of."""
        worst = 0.0
        pairs = [(own, other) for own, inside in zip(self.tables, self.coarser, strict=True) for other in inside]
        for fine, coarse in [*pairs, *((source, own) for own, source in self.margins.items())]:
            found = cells[self.places[fine] :][: self.size_of(fine)]
            for before, levels, after, listed in self._stages(fine, coarse):
                own = np.zeros(levels, np.int64) if listed < 0 else self.lists[listed + 1 : listed + 1 + levels]
                found = sums(found.reshape(before, levels, after * cells.shape[1]), own, 1 + int(own.max()))
            difference = found.reshape(-1, cells.shape[1]) - cells[self.places[coarse] :][: self.size_of(coarse)]
            worst = max(worst, float(abs(difference).max(initial=0.0)))
        return worst

    def _lay_copies(self, most_cells: float) -> None:
        """Which tables are large beside all that their means go to, and their copies."""
        start, counts = self.cells, [np.zeros(0)]
        mixed = {mask for mask, own in zip(self.masks, self.tables, strict=True) if self.groups(own)}
        for mask, table, inside in zip(self.masks, self.tables, self.coarser, strict=True):
            size = self.size_of(table)
            is_easy = len(inside) < 3 or mask in self.lattice.regular
            if is_easy or size < COPIES * sum(map(self.size_of, inside)):
                continue
            below = self.lattice.below(mask)[1:]
            if size < COPIES * sum([self.size_of(self.within(table, own)) for own in below]):
                continue
            tree = self._tree_of_sums(table, mask, below)
            if self.cells + sum(map(self.size_of, tree)) > most_cells:
                continue
            is_inside = any(mask & ~self.mask_of(other) == 0 for other in self._trees)
            self._is_left[table] = mask not in mixed and not is_inside
            self._trees[table], self._copies[table] = tree, {}
            for own in tree:
                self._copies[table][own] = self.cells
                self.cells += self.size_of(own)
                counts.append(self._is_left[table] * self._cells_of_sums(table, own))
        self.copied, self.cells_of_copies = slice(start, self.cells), np.concatenate(counts)

    def _tree_of_sums(self, table: Axes, mask: int, below: list[int]) -> dict[Axes, Axes]:
        shares = {axis: self.size_of((axis,)) / self.size_of(self.within((axis,), 0)) for axis in table}
        least = self.size_of(self.within(table, 0))
        size = cache(lambda own: size(own & (own - 1)) * shares[(own & -own).bit_length() - 1] if own else least)
        edges = tree_of_sums(mask, self.lattice.covers[mask], size)
        found = {own for own, _ in edges}
        for own in below:
            if own not in found:
                edges.append((own, min([other for other, _ in edges if not own & ~other], key=size)))
        edges.sort(key=lambda edge: edge[1] != mask)
        return {self.within(table, own): self.within(table, source) for own, source in edges}

    def _cells_of_sums(self, fine: Axes, coarse: Axes) -> Float:
        """How many of a table's cells each of a coarser one is a sum of."""
        axes, of_variable = self.axes, {self.axes.variable[axis]: axis for axis in fine}
        found = np.ones([axes.sizes[axis] for axis in coarse])
        for place, axis in enumerate(coarse):
            if axis not in fine:
                count = np.bincount(axes.between(of_variable[axes.variable[axis]], axis))
                found *= count.reshape(-1, *[1] * (len(coarse) - place - 1))
        return (found * (self.size_of(fine) / found.sum())).ravel()

    def _lay_steps(self) -> None:
        self.most_room = 0
        self._moves, back = self._between(
            [
                (fine, coarse)
                for fine, inside in zip(self.tables, self.coarser, strict=True)
                for coarse in inside
                if fine not in self._trees
            ]
        )
        self._losses: dict[Axes, Integers] = {}  # of tables with copies, what leaves them only what no copy has
        up, down, first, factors = [self._moves], [back], [_rows([])], [np.ones(len(back))]
        for table in reversed(self._trees):  # those that others have copies of before these
            found, lands, loses, spread = self._beside(table)
            self._losses[table] = np.concatenate([found, loses])
            up += [found, lands, *([] if self._is_left[table] else [loses])]
            factors += [np.zeros(len(found)), np.ones(len(lands)), np.ones(0 if self._is_left[table] else len(loses))]
            down.append(spread)
            first.append(lands)
        steps, later = np.concatenate(up), np.concatenate(down)
        order = np.argsort(steps[:, TABLE], kind="stable")
        self.up = StepList(steps[order], np.concatenate(factors)[order])
        later = np.concatenate([*first, later[np.argsort(-later[:, TABLE], kind="stable")]])
        self.down = StepList(later, np.ones(len(later)))
        margins = [(source, own, self.places[source], self.places[own]) for own, source in self.margins.items()]
        self.sums = _rows([(*row, 0, 0, 1) for own in margins for row in self._sum(*own)])
        self.shares = self.sums[::-1].copy()  # the transpose: rows between room, and those that change tables
        self.shares[:, 0] = np.where(self.shares[:, 1] < self.cells, ADD, EXPAND)
        self.lists = np.array(self._lists, dtype=np.int64)

    def _between(self, pairs: list[tuple[Axes, Axes]]) -> tuple[Integers, Integers]:
        """Rows that move means between tables, and the same going down."""
        if not pairs:
            return _rows([]), _rows([])
        count = len(self.axes.sizes)
        has = np.zeros((len(self.tables), count), dtype=bool)
        has[np.repeat(np.arange(len(self.tables)), [*map(len, self.tables)]), [*chain.from_iterable(self.tables)]] = (
            True
        )
        fine, coarse = np.array([(self.number[own], self.number[other]) for own, other in pairs]).T
        own, other = has[fine], has[coarse]
        keeps = other[np.arange(len(fine)), own.argmax(axis=1)]
        order = np.lexsort((~keeps, fine))  # large tables are worked on in parts along their first axis
        fine, coarse, own, other, keeps = (each[order] for each in (fine, coarse, own, other, keeps))
        summed, cells = own & ~other, np.where(has, self.axes.sizes, 1).cumprod(axis=1)
        first, last = summed.argmax(axis=1), count - 1 - summed[:, ::-1].argmax(axis=1)
        before, through = np.where(first > 0, cells[fine, first - 1], 1), cells[fine, last]
        pair = np.arange(len(fine))
        ranks = own.cumsum(axis=1)
        is_run = (ranks[pair, last] - ranks[pair, first] + 1 == summed.sum(axis=1)) & ~(other & ~own).any(axis=1)
        after, ends = self.sizes[fine] // through, (self.offsets[fine], self.offsets[coarse])
        whole = (0 * pair + MOVE, *ends, before, through // before, after, 0 * pair + SUMMED, fine, coarse, keeps)
        apart = [
            ((*row, fine[i], coarse[i], keeps[i]), i)
            for i in np.flatnonzero(~is_run).tolist()
            for row in self._move(self.tables[fine[i]], self.tables[coarse[i]])
        ]
        steps = np.concatenate([np.column_stack(whole)[is_run], _rows([row for row, _ in apart])])
        number = np.concatenate([pair[is_run], np.array([i for _, i in apart], dtype=np.int64)])
        return steps[np.argsort(number, kind="stable")], steps[np.argsort(-number, kind="stable")]

    def _beside(self, table: Axes) -> tuple[Integers, Integers, Integers, Integers]:
        """Rows that find what a table has along its copies, add this to what is copied, take it away, and spread it."""
        number, start, copies = self.number[table], self.places[table], self._copies[table]
        places, found, spread, seen = copies | {table: start}, list[Row](), list[Row](), set(self.number)
        tree = self._trees[table].items()
        edges = [(own, source, self._sum(source, own, places[source], places[own])) for own, source in tree]
        for own, source, rows in edges:
            found += [(*row, number, number, source == table and table[0] in own) for row in rows]
        for own, source, rows in reversed(edges):
            back = [(EXPAND, *row[1:], number, number, source == table and table[0] in own) for row in reversed(rows)]
            if source in seen:  # otherwise nothing is there yet
                back[-1] = (ADD, *back[-1][1:])
            seen.add(source)
            spread += back
        inside = [own for own in self.tables if own in copies]
        ends = np.searchsorted(self._moves[:, TABLE], [self.number[own] for own in inside], side="left")
        stops = np.searchsorted(self._moves[:, TABLE], [self.number[own] for own in inside], side="right")
        parts = [
            self._losses[own] if own in self._trees else self._moves[first:stop]
            for own, first, stop in zip(inside, ends.tolist(), stops.tolist(), strict=True)
        ]
        among = np.concatenate([_rows([]), *parts])
        among = among[among[:, 0] != LAND]
        originals = np.array([self.places[own] for own in inside])
        order = np.argsort(originals)
        at = np.minimum(np.searchsorted(originals[order], among[:, 1:3]), len(inside) - 1)
        moved = np.array([copies[own] for own in inside])[order][at]
        among[:, 1:3] = np.where(originals[order][at] == among[:, 1:3], moved, among[:, 1:3])
        among[:, TABLE], among[:, KEEPS_FIRST] = number, 0
        lands = [
            (LAND, copies[own], self.places[own], 1, 1, self.size_of(own), SUMMED, number, self.number[own], 0)
            for own in inside
        ]
        spread_rows = _rows(spread)
        loses = spread_rows.copy()
        loses[loses[:, 1] == start, 0] = PUT
        return np.concatenate([_rows(found), among]), _rows(lands), loses, spread_rows

    def _move(self, fine: Axes, coarse: Axes) -> list[Row]:
        start, end, stages = self.places[fine], self.places[coarse], self._stages(fine, coarse)
        if len(stages) == 1 and stages[0][3] < 0:
            return [(MOVE, start, end, *stages[0])]
        reduce, last = self._reductions(start, stages, self.cells)
        size = self.size_of(coarse)
        land = (size, 1, 1) if coarse[:1] == fine[:1] else (1, 1, size)
        back = [(PUT if row[1] == start else EXPAND, *row[1:]) for row in reversed(reduce)]
        return [*reduce, (LAND, last, end, *land, -1), *back]

    def _sum(self, fine: Axes, coarse: Axes, start: int, end: int) -> list[Row]:
        rows, _ = self._reductions(start, self._stages(fine, coarse), self.cells)
        return [*rows[:-1], (*rows[-1][:2], end, *rows[-1][3:])]

    def _reductions(self, start: int, stages: list[Stage], room: int) -> tuple[list[Row], int]:
        rows: list[Row] = []
        for before, levels, after, listed in stages:
            rows.append((REDUCE, start, room, before, levels, after, listed))
            start, room = room, room + before * after * (1 if listed < 0 else self._lists[listed])
        self.most_room = max(self.most_room, room - self.cells)
        return rows, start

    def _stages(self, fine: Axes, coarse: Axes) -> list[Stage]:
        """One reduction after the other, the longest first: cells before, levels, cells after, the list."""
        sizes, variable = self.axes.sizes, self.axes.variable
        if len(coarse) + 1 == len(fine) and not self.axes.has_groups:  # nearly all, where all tables are measured
            axis = sum(fine) - sum(coarse)
            ahead = self.size_of(fine[: fine.index(axis)]) * sizes[axis]
            return [(ahead // sizes[axis], sizes[axis], self.size_of(fine) // ahead, SUMMED)]
        targets = {variable[axis]: axis for axis in coarse}
        runs: list[tuple[int, int, int]] = []  # levels, what stays of them, the list
        for axis in fine:
            target = targets.get(variable[axis], -1)
            listed = KEPT if target == axis else SUMMED if target < 0 else self._list(axis, target)
            levels, stay = sizes[axis], 1 if target < 0 else sizes[target]
            if listed < 0 and runs and runs[-1][2] == listed:
                before = runs.pop()
                levels, stay = before[0] * levels, before[1] * stay
            runs.append((levels, stay, listed))
        stages = []
        lengths = [levels for levels, _, _ in runs]
        for i in sorted(range(len(runs)), key=lambda i: -runs[i][0] / runs[i][1]):
            levels, stay, listed = runs[i]
            if listed != KEPT:
                stages.append((prod(lengths[:i]), levels, prod(lengths[i + 1 :]), listed))
                lengths[i] = stay
        return stages

    def _lay_list(self, fine: int, coarse: int) -> int:
        """Where the cells of the coarser axis are listed that levels of the finer one go to."""
        self._lists += [self.axes.sizes[coarse], *self.axes.between(fine, coarse).tolist()]
        return len(self._lists) - 1 - self.axes.sizes[fine]


def _rows(rows: Sequence[Row]) -> Integers:
    return np.fromiter(chain.from_iterable(rows), np.int64, 10 * len(rows)).reshape(-1, 10)

"""Which tables the sweeps hold, where they lie in one vector, and the operations between them.

Of every table contrasts along its variables, and sums over groups of levels, go to the largest intersections with other
tables inside it; these are tables of their own. A desired table that is no intersection is a margin of the smallest
table that refines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import chain
from math import prod
from operator import or_

import numpy as np

from blue_solvers.components.grouping import Axes, SchemaAxes
from blue_solvers.components.lattice.sets import IntersectionLattice, tree_of_sums
from blue_solvers.components.lattice.sweeps import ADD, EXPAND, LAND, MOVE, PUT, REDUCE, sums
from constraint_builders.arrays import Flags, Float, Index, Integers

Row = tuple[int, ...]
Stage = tuple[int, int, int, int]  # cells before, levels, cells after, the list
TABLE, TARGET, KEEPS_FIRST = 7, 8, 9  # places of a row
SUMMED, KEPT = -1, -2  # in the place of a list
COPIES = 6  # times that a table is larger than all inside it, copies of which then pay


class TooManyCellsError(Exception):
    """Tables that would take more cells than were allowed."""


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


class SweepPlan:
    """The tables and operations.

    Parameters
    ----------
    axes : SchemaAxes
    observed, desired : sequence of tuple of int
        Tables by their axes; of observed ones those that tell something.
    most_cells : float
        That all tables may have together.
    with_copies : bool, optional
        Whether small tables may be copied beside large ones.

    Attributes
    ----------
    lattice : IntersectionLattice
        Of the variables that tables keep whole, by `mask_of`.
    tables : list of tuple of int
        Those of the sweeps, those of more variables first.
    offsets, sizes : ndarray of int, (tables,)
    places : dict
        Where every table lies, of the sweeps or desired.
    cells : int
        Of all of them and of copies.
    copied : slice
        Where sums of large tables lie, beside the tables that they are copies of.
    cells_of_copies : ndarray
        Of the large table for each of its sums.
    up, down : StepList
        Operations between the tables.
    margins : dict
        Desired tables that are not of the sweeps, each with the one that it is a sum of.
    sums, shares : ndarray of int, (rows, 10)
        Going down, those that lead to margins; and going up, those that lead from them.
    most_room : int
        Cells that one operation needs after all tables.

    Raises
    ------
    TooManyCellsError
        If there are more.
    """

    def __init__(
        self,
        axes: SchemaAxes,
        observed: Sequence[Axes],
        desired: Sequence[Axes],
        most_cells: float = np.inf,
        with_copies: bool = False,
    ) -> None:
        self.axes = axes
        self.size_of = cache(axes.size)
        self.mask_of = cache(self._mask_of)
        self._provides = cache(lambda table: reduce(or_, [axes.provides[axis] for axis in table], 0))
        generators: dict[Axes, None] = dict.fromkeys(observed)
        finest_first = sorted(generators, key=self.size_of, reverse=True)
        for table in desired:
            if table not in generators and not any(self._holds(other, table) for other in finest_first):
                generators[table] = None
        generators = generators or {(): None}
        self.lattice = IntersectionLattice({self.mask_of(table) for table in generators}, axes.sizes)
        self._lists: list[int] = []
        self._list = cache(self._lay_list)
        self._lay_tables(generators, most_cells)
        self.margins = self._sources([table for table in dict.fromkeys(desired) if table not in self.number])
        self._lay_places(desired)
        self._lay_copies(most_cells if with_copies else 0.0)
        self._lay_steps()

    def _mask_of(self, table: Axes) -> int:
        """The variables that a table keeps whole, as bits of their axes."""
        return sum([1 << axis for axis in table if self.axes.is_whole[axis]])

    def groups(self, table: Axes) -> Axes:
        """A table's axes of groups and recodes."""
        return tuple(axis for axis in table if not self.axes.is_whole[axis])

    def source_of(self, table: Axes) -> int:
        """The number of a table of the sweeps, or of the one that a margin is a sum of."""
        while table in self.margins:
            table = self.margins[table]
        return self.number[table]

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

    def within(self, table: Axes, mask: int) -> Axes:
        """What a table leads to that keeps only some of its variables whole, and groups of others."""
        if not self.axes.has_groups:
            return tuple([axis for axis in table if mask >> axis & 1])
        whole, groups = self.axes.is_whole, self.axes.groups
        kept = [groups[axis] if whole[axis] and not mask >> axis & 1 else axis for axis in table]
        return tuple([axis for axis in kept if axis >= 0])

    def _holds(self, fine: Axes, coarse: Axes) -> bool:
        return all(self._provides(fine) >> axis & 1 for axis in coarse)

    def _lay_tables(self, generators: Iterable[Axes], most_cells: float) -> None:
        classes: dict[int, dict[Axes, int]] = {}
        for table in generators:
            mask = self.mask_of(table)
            classes.setdefault(mask.bit_count(), {})[table] = mask
        self.tables: list[Axes] = []
        self.number: dict[Axes, int] = {}
        self.masks: list[int] = []
        self.coarser: list[list[Axes]] = []
        cells = 0
        for size in range(max(classes), -1, -1):
            for table, mask in classes.get(size, {}).items():
                inside = {self.within(table, own): own for own in self.lattice.covers[mask]}
                for other, own in inside.items():
                    classes.setdefault(own.bit_count(), {})[other] = own
                self.number[table] = len(self.tables)
                self.tables.append(table)
                self.masks.append(mask)
                self.coarser.append(sorted(inside, key=lambda other: table[0] not in other))
                cells += self.size_of(table)
                if cells > most_cells:
                    raise TooManyCellsError
        self.sizes = np.array([self.size_of(table) for table in self.tables], dtype=np.int64)

    def _sources(self, wanted: list[Axes]) -> dict[Axes, Axes]:
        """For every table that is a margin the one that it is a sum of, itself a table or a margin before it."""
        found: dict[Axes, Axes] = {}
        smallest_first = sorted(self.tables, key=self.size_of) if wanted else []
        for table in sorted(wanted, key=self.size_of, reverse=True):
            source = next(own for own in smallest_first if self._holds(own, table))
            for axis in range(len(self.axes.sizes)):
                told = self.axes.provides[axis]
                finer = tuple(sorted([axis, *(own for own in table if not told >> own & 1)]))
                if finer in found and self.size_of(finer) < self.size_of(source):
                    source = finer
            found[table] = source
        return found

    def _lay_places(self, desired: Sequence[Axes]) -> None:
        self.places: dict[Axes, int] = {}
        self.cells = 0
        for table in [*desired, *self.tables]:
            if table not in self.places:
                self.places[table] = self.cells
                self.cells += self.size_of(table)
        self.offsets = np.array([self.places[table] for table in self.tables], dtype=np.int64)

    def _lay_copies(self, most_cells: float) -> None:
        """The large tables whose sums are worked out beside, and where these lie.

        Means that go from a large table to many small ones are taken by sums of sums, none of which changes it. What it
        has without them is never laid out: its contrasts along small tables are found among their copies, and going
        down it gets what these lack.
        """
        start, mixed = self.cells, {mask for mask, own in zip(self.masks, self.tables, strict=True) if self.groups(own)}
        self.trees: dict[Axes, dict[Axes, Axes]] = {}  # of each its sums, each with what it is a sum of, in order
        self.copy_of: dict[tuple[Axes, Axes], int] = {}  # where they lie
        self.left_whole: set[Axes] = set()
        counts = [np.zeros(0)]
        for mask, table, inside in zip(self.masks, self.tables, self.coarser, strict=True):
            size = self.size_of(table)
            if len(inside) < 2 or size < COPIES * sum(map(self.size_of, inside)):
                continue
            below = self.lattice.below(mask)[1:]
            if size < COPIES * sum([self.size_of(self.within(table, own)) for own in below]):
                continue
            edges = self._tree_of_sums(table, mask, below)
            if self.cells + sum(map(self.size_of, edges)) > most_cells:
                continue
            is_alone = mask not in mixed and not any(self.mask_of(other) | mask == self.mask_of(other) for other in self.trees)
            self.trees[table] = edges
            self.left_whole |= {table} if is_alone else set()
            for own in edges:
                self.copy_of[table, own] = self.cells
                self.cells += self.size_of(own)
                counts.append(is_alone * self._cells_of_sums(table, own))
        self.copied, self.cells_of_copies = slice(start, self.cells), np.concatenate(counts)

    def _tree_of_sums(self, table: Axes, mask: int, below: list[int]) -> dict[Axes, Axes]:
        size = cache(lambda own: self.size_of(self.within(table, own)))
        edges = tree_of_sums(mask, self.lattice.covers[mask], size)
        known = {own for own, _ in edges}
        for own in below:
            if own not in known:
                edges.append((own, min([other for other, _ in edges if own & ~other == 0], key=size)))
        edges.sort(key=lambda edge: edge[1] != mask)
        return {self.within(table, own): self.within(table, source) for own, source in edges}

    def _cells_of_sums(self, fine: Axes, coarse: Axes) -> Float:
        """How many of a table's cells each of a coarser one is a sum of."""
        axes, targets = self.axes, {self.axes.variable[axis]: axis for axis in coarse}
        found = np.ones(1)
        for axis in fine:
            target = targets.get(axes.variable[axis], -1)
            own = np.full(1, axes.sizes[axis]) if target < 0 else np.bincount(axes.between(axis, target))
            found = np.outer(found, own).ravel()
        return found

    def _lay_steps(self) -> None:
        self.most_room = 0
        up: list[tuple[Row, float]] = []
        first: list[Row] = []
        blocks: list[list[Row]] = []
        for number, (own, inside) in enumerate(zip(self.tables, self.coarser, strict=True)):
            if own in self.trees:
                gathered, copies, taken, spread = self._beside(number)
                up += [*gathered, *((row, 1.0) for row in [*copies, *taken])]
                first += copies
                blocks.append(spread)
                continue
            for other in inside:
                moves = self._move(own, other, self.places[own], self.places[other])
                blocks.append([(*row, number, self.number[other], own[0] in other) for row in moves])
                up += [(row, 1.0) for row in blocks[-1]]
        self.up = StepList.of([row for row, _ in up], np.array([factor for _, factor in up]))
        self.down = StepList.of([*first, *chain.from_iterable(reversed(blocks))])
        self.sums = _rows(
            [
                (*row, 0, 0, 1)
                for own, source in self.margins.items()
                for row in self._sum(source, own, self.places[source], self.places[own])
            ]
        )
        self.shares = self.sums[::-1].copy()  # the transpose: rows between room, and those that change tables
        self.shares[:, 0] = np.where(self.shares[:, 1] < self.cells, ADD, EXPAND)
        self.lists = np.array(self._lists, dtype=np.int64)

    def _beside(self, number: int) -> tuple[list[tuple[Row, float]], list[Row], list[Row], list[Row]]:
        """What a large table says of small ones: rows and factors that find it, what takes it, and what spreads it."""
        table, place = self.tables[number], self.copy_of
        tree, gathered, spread, seen = self.trees[table], list[tuple[Row, float]](), list[list[Row]](), set(self.number)
        for own, source in tree.items():
            start, keeps = self.places[table] if source == table else place[table, source], source == table
            rows = [
                (*row, number, number, keeps and table[0] in own)
                for row in self._sum(source, own, start, place[table, own])
            ]
            gathered += [(row, 1.0) for row in rows]
            spread.append([(EXPAND if row[1] >= self.cells else ADD, *row[1:]) for row in reversed(rows)])
        for steps, source in zip(reversed(spread), reversed(tree.values()), strict=True):
            if source not in seen:  # nothing is there yet
                steps[-1] = (EXPAND, *steps[-1][1:])
                seen.add(source)
        copies = []
        for own in sorted(tree.keys() & self.number.keys(), key=self.number.__getitem__):
            for other in self.coarser[self.number[own]]:
                rows = self._move(own, other, place[table, own], place[table, other])
                gathered += [((*row, number, self.number[other], 0), 0.0) for row in rows if row[0] != LAND]
            size, end = self.size_of(own), self.places[own]
            copies.append((LAND, place[table, own], end, 1, 1, size, -1, number, self.number[own], 0))
        back = list(chain.from_iterable(reversed(spread)))
        start = self.places[table]
        taken = [] if table in self.left_whole else [(PUT if row[1] == start else row[0], *row[1:]) for row in back]
        return gathered, copies, taken, back

    def _move(self, fine: Axes, coarse: Axes, start: int, end: int) -> list[Row]:
        stages = self._stages(fine, coarse)
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


def information(plan: SweepPlan, observed: Sequence[Axes], precisions: Float) -> dict[Axes, Float]:
    """What some tables say of every one of the sweeps that they lead to, by cell of its groups and recodes."""
    if plan.axes.has_groups:
        return _information_by_group(plan, observed, precisions)
    values: dict[int, float] = {}
    for table, precision in zip(observed, precisions.tolist(), strict=True):
        mask = plan.mask_of(table)
        values[mask] = values.get(mask, 0.0) + precision / plan.size_of(table)
    above = dict(zip(plan.lattice.members, plan.lattice.sums_above(values).tolist(), strict=True))
    told = plan.sizes * np.array([above[mask] for mask in plan.masks])
    return {table: own for table, own in zip(plan.tables, told[:, None], strict=True) if own[0] > 0}


def _information_by_group(plan: SweepPlan, observed: Sequence[Axes], precisions: Float) -> dict[Axes, Float]:
    found: dict[Axes, Float] = {}
    for table, precision in zip(observed, precisions.tolist(), strict=True):
        for mask in plan.lattice.below(plan.mask_of(table)):
            density = np.full((), precision)
            for axis in table:
                if not plan.axes.is_whole[axis]:
                    density = np.repeat(density[..., None], plan.axes.sizes[axis], axis=-1)
                elif not mask >> axis & 1:
                    density = density[..., None] / np.bincount(plan.axes.told[axis])
            own = plan.within(table, mask)
            found[own] = found.get(own, 0.0) + density.ravel()
    return found

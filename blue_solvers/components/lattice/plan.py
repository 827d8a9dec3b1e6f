"""Which tables the sweeps hold, where they lie in one vector, and the operations between them.

Of every table contrasts along its variables, and sums over groups of levels, go to the largest intersections with other
tables inside it; these are tables of their own. A desired table that is no intersection is a margin of the smallest
table that refines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import chain
from operator import or_

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.operations import ADD, EXPAND, LAND, MOVE, PUT, REDUCE, sums
from blue_solvers.components.lattice.sets import IntersectionLattice
from constraint_builders.arrays import Flags, Float, Index, Integers

Row = tuple[int, int, int, int, int, int, int]
Stage = tuple[int, int, int, int]  # cells before, levels, cells after, the list


class TooManyCellsError(Exception):
    """Tables that would take more cells than were allowed."""


@dataclass(frozen=True)
class StepList:
    """Rows of a list of operations.

    Attributes
    ----------
    steps : ndarray of int, (rows, 7)
    table : ndarray of int, (rows,)
        Whose work each is, as the plan numbers tables.
    keeps_first : ndarray of bool, (rows,)
        Whether it is part of what leads to a table with the same first axis.
    factors : ndarray, (rows,)
    beside : slice or None
        What is cleared before.
    """

    steps: Integers
    table: Index
    keeps_first: Flags
    factors: Float
    beside: slice | None = None

    @classmethod
    def of(cls, rows: Sequence[Row], table: Index | int = 0, factors: Float | float = 1.0) -> StepList:
        """Rows that keep all axes of their tables."""
        whole = np.ones(len(rows))
        return cls(_rows(rows), whole.astype(np.intp) * table, whole > 0, whole * factors)

    def at(self, rows: Index | slice) -> StepList:
        """Some rows."""
        return StepList(self.steps[rows], self.table[rows], self.keeps_first[rows], self.factors[rows])

    def of_tables(self, members: Flags) -> StepList:
        """Those of some tables."""
        return self.at(np.flatnonzero(members[self.table]))

    def followed_by(self, other: StepList) -> StepList:
        """Both, one after the other."""
        return StepList(
            np.concatenate([self.steps, other.steps]),
            np.concatenate([self.table, other.table]),
            np.concatenate([self.keeps_first, other.keeps_first]),
            np.concatenate([self.factors, other.factors]),
        )

    def turned(self) -> StepList:
        """With the two places of every row exchanged."""
        return replace(self, steps=self.steps[:, [0, 2, 1, 3, 4, 5, 6]])


class SweepPlan:
    """The tables and operations.

    Parameters
    ----------
    axes : SchemaAxes
    observed, desired : sequence of tuple of int
        Tables by their axes; of observed ones those that tell something.
    most_cells : float
        That all tables may have together.

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
        Of all of them.
    up, down : StepList
        Operations between the tables.
    margins : dict
        Desired tables that are not of the sweeps, each with the one that it is a sum of.
    sums, shares : ndarray of int, (rows, 7)
        Going down, those that lead to margins; and going up, those that lead from them.
    number_at : dict
        The number of the table of the sweeps that lies at a place.
    most_room : int
        Cells that one operation needs after all tables.

    Raises
    ------
    TooManyCellsError
        If there are more.
    """

    def __init__(
        self, axes: SchemaAxes, observed: Sequence[Axes], desired: Sequence[Axes], most_cells: float = np.inf
    ) -> None:
        self.axes = axes
        self.size_of = cache(axes.size)
        self.mask_of = cache(self._mask_of)
        self._provides = cache(lambda table: reduce(or_, [axes.provides[axis] for axis in table], 0))
        self._numbers = {axis: i for i, axis in enumerate(a for a, own in enumerate(axes.groups_of) if own >= -1)}
        generators: dict[Axes, None] = dict.fromkeys(observed)
        finest_first = sorted(generators, key=self.size_of, reverse=True)
        for table in desired:
            if table not in generators and not any(self._holds(other, table) for other in finest_first):
                generators[table] = None
        generators = generators or {(): None}
        self.lattice = IntersectionLattice(
            {self.mask_of(table) for table in generators}, [axes.sizes[axis] for axis in self._numbers]
        )
        self._lists: list[int] = []
        self._listed: dict[tuple[int, int], int] = {}
        self._lay_tables(generators, most_cells)
        self.margins = self._sources([table for table in dict.fromkeys(desired) if table not in self.number])
        self._lay_places(desired)
        self._lay_steps()

    def _mask_of(self, table: Axes) -> int:
        """The variables that a table keeps whole, as bits."""
        return sum([1 << self._numbers[axis] for axis in table if axis in self._numbers])

    def groups(self, table: Axes) -> Axes:
        """A table's axes of groups and recodes."""
        return tuple(axis for axis in table if axis not in self._numbers)

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

    def whole(self, mask: int) -> list[int]:
        """The axes of levels of some variables."""
        return [axis for axis, number in self._numbers.items() if mask >> number & 1]

    def within(self, table: Axes, mask: int) -> Axes:
        """What a table leads to that keeps only some of its variables whole, and groups of others."""
        if not self.axes.group_sizes:
            return tuple([axis for axis in table if mask >> axis & 1])
        kept = []
        for axis in table:
            number = self._numbers.get(axis)
            if number is None or mask >> number & 1:
                kept.append(axis)
            elif self.axes.groups_of[axis] >= 0:
                kept.append(self.axes.groups_of[axis])
        return tuple(kept)

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
                covers = self.lattice.covers[mask]
                inside = [self.within(table, own) for own in covers]
                if len(covers) > 1:  # what keeps the first axis first
                    order = sorted(range(len(covers)), key=lambda i: table[0] not in inside[i])
                    covers, inside = [covers[i] for i in order], [inside[i] for i in order]
                for own, other in zip(covers, inside, strict=True):
                    classes.setdefault(own.bit_count(), {})[other] = own
                self.number[table] = len(self.tables)
                self.tables.append(table)
                self.masks.append(mask)
                self.coarser.append(inside)
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

    def _lay_steps(self) -> None:
        self.most_room = 0
        rows: list[Row] = []
        moves: list[tuple[int, bool, int]] = []
        for number, (own, inside) in enumerate(zip(self.tables, self.coarser, strict=True)):
            for other in inside:
                move = self._move(own, other)
                rows += move
                moves.append((number, own[0] in other, len(move)))
        numbers, keeps, counts = np.array(moves, dtype=np.int64).reshape(-1, 3).T
        self.up = StepList(_rows(rows), np.repeat(numbers, counts), np.repeat(keeps > 0, counts), np.ones(len(rows)))
        back, firsts = counts[::-1], (np.cumsum(counts) - counts)[::-1]
        order = np.repeat(firsts - np.cumsum(back) + back, back) + np.arange(len(rows))
        self.down = self.up.at(order)
        self.sums = _rows([row for own, source in self.margins.items() for row in self._sum(source, own)])
        self.shares = _rows([row for own, source in reversed(self.margins.items()) for row in self._add(source, own)])
        self.lists = np.array(self._lists, dtype=np.int64)
        self.number_at = dict(zip(self.offsets.tolist(), range(len(self.tables)), strict=True))

    def _move(self, fine: Axes, coarse: Axes) -> list[Row]:
        start, end = self.places[fine], self.places[coarse]
        if len(coarse) + 1 == len(fine) and not self.axes.group_sizes:
            return [(MOVE, start, end, *self._without_one(fine, coarse), -1)]
        stages = self._stages(fine, coarse)
        if len(stages) == 1 and stages[0][3] < 0:
            return [(MOVE, start, end, *stages[0])]
        reduce, last = self._reductions(start, stages, self.cells)
        size = self.size_of(coarse)
        back: list[Row] = [(EXPAND, *row[1:]) for row in reversed(reduce[1:])]
        land = (size, 1, 1) if coarse[:1] == fine[:1] else (1, 1, size)
        return [*reduce, (LAND, last, end, *land, -1), *back, (PUT, *reduce[0][1:])]

    def _without_one(self, fine: Axes, coarse: Axes) -> tuple[int, int, int]:
        """Cells before the one axis that is summed out, its levels, and cells after it."""
        axis = sum(fine) - sum(coarse)
        before, levels = self.size_of(fine[: fine.index(axis)]), self.axes.sizes[axis]
        return before, levels, self.size_of(fine) // (before * levels)

    def _sum(self, fine: Axes, coarse: Axes) -> list[Row]:
        rows, _ = self._reductions(self.places[fine], self._stages(fine, coarse), self.cells)
        return [*rows[:-1], (*rows[-1][:2], self.places[coarse], *rows[-1][3:])]

    def _add(self, fine: Axes, coarse: Axes) -> list[Row]:
        """The transpose of `_sum`, going up."""
        rows = self._sum(fine, coarse)
        return [*((EXPAND, *row[1:]) for row in reversed(rows[1:])), (ADD, *rows[0][1:])]

    def _reductions(self, start: int, stages: list[Stage], room: int) -> tuple[list[Row], int]:
        rows: list[Row] = []
        for before, levels, after, listed in stages:
            rows.append((REDUCE, start, room, before, levels, after, listed))
            start, room = room, room + before * after * (1 if listed < 0 else self._lists[listed])
        self.most_room = max(self.most_room, room - self.cells)
        return rows, start

    def _stages(self, fine: Axes, coarse: Axes) -> list[Stage]:
        """One reduction after the other, the longest first: cells before, levels, cells after, the list."""
        lengths: list[int] = []
        outs: list[int] = []
        lists: list[int] = []
        place, before = 0, 0
        for axis in fine:
            size = self.axes.sizes[axis]
            following = coarse[place] if place < len(coarse) else -1
            kind = 0
            if following == axis:
                kind, place = 1, place + 1
            elif following >= 0 and self.axes.are_of_one_variable(axis, following):
                kind, place = 2, place + 1
            if kind == before and kind < 2 and lengths:
                lengths[-1] *= size
                outs[-1] *= size if kind else 1
            else:
                lengths.append(size)
                outs.append([1, size, self.axes.sizes[following]][kind])
                lists.append(self._list(axis, following) if kind == 2 else -1 if kind == 0 else -2)
            before = kind
        removed = [i for i, listed in enumerate(lists) if listed > -2]
        removed.sort(key=lambda i: (-lengths[i] / outs[i], i))
        stages = []
        for i in removed:
            ahead = behind = 1
            for j in range(i):
                ahead *= lengths[j]
            for j in range(i + 1, len(lengths)):
                behind *= lengths[j]
            stages.append((ahead, lengths[i], behind, lists[i]))
            lengths[i] = outs[i]
        return stages

    def _list(self, fine: int, coarse: int) -> int:
        """Where the cells of the coarser axis are listed that levels of the finer one go to."""
        found = self._listed.get((fine, coarse))
        if found is None:
            found = self._listed[fine, coarse] = len(self._lists)
            self._lists += [self.axes.sizes[coarse], *self.axes.between(fine, coarse).tolist()]
        return found


def _rows(rows: Sequence[Row]) -> Integers:
    return np.fromiter(chain.from_iterable(rows), np.int64, 7 * len(rows)).reshape(-1, 7)


def densities(plan: SweepPlan, observed: Sequence[Axes], precisions: Float) -> Float:
    """Information about every table of the sweeps, a cell of it, where variables have one group, (tables,)."""
    if not observed:
        return np.zeros(len(plan.tables))
    values: dict[int, float] = {}
    for table, precision in zip(observed, precisions.tolist(), strict=True):
        mask = plan.mask_of(table)
        values[mask] = values.get(mask, 0.0) + precision / plan.size_of(table)
    above = dict(zip(plan.lattice.members, plan.lattice.sums_above(values).tolist(), strict=True))
    return plan.sizes * np.array([above[mask] for mask in plan.masks])

"""Which tables the sweeps hold, where they lie in one vector, and the operations between them.

Of every table contrasts along its variables, and sums over groups of levels, go to the largest intersections with other
tables inside it; these are tables of their own. A desired table that is no intersection is a margin of the smallest
table that refines it.

Means that go from a large table to many small ones are taken by sums of sums beside it, none of which changes it: what
it has along small tables is found among copies of theirs, and going down it gets what these lack. Only where others mix
it in between, or have a copy of it, it loses going up what its copies have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache, reduce
from itertools import accumulate, chain
from math import prod
from operator import or_

import numpy as np

from blue_solvers.components.grouping import Axes, SchemaAxes
from blue_solvers.components.lattice.operations import ADD, EXPAND, LAND, MOVE, PUT, READ, REDUCE
from blue_solvers.components.lattice.sets import IntersectionLattice, tree_of_sums
from blue_solvers.components.lattice.sets import places as bit_places
from blue_solvers.components.lattice.steps import TABLE, Row, StepList, as_rows, in_order_of_tables, rows_of_columns
from blue_solvers.components.lattice.sweeps import look_at_gaps
from constraint_builders.arrays import Float, Integers

Stage = tuple[int, int, int, int]  # cells before, levels, cells after, the list
SUMMED, KEPT = -1, -2  # in the place of a list
LARGE = 1 << 17  # cells of a table that does not stay in cache
COPIES = 6  # times that a table is larger than all inside it, copies of which then pay


class TooManyCellsError(Exception):
    """Tables that would take more cells than were allowed."""


class SweepPlan:
    """The tables and operations.

    Parameters
    ----------
    axes : SchemaAxes
    observed, desired : sequence of tuple of int
        Tables by their axes; of observed ones those that tell something. If none is desired, none is copied.
    most_cells : float
        That all tables may have together, without copies.

    Attributes
    ----------
    lattice : IntersectionLattice
        Of the variables that tables keep whole, as bits of their axes.
    mask_of : callable
        These variables of a table.
    groups : callable
        A table's axes of groups and recodes.
    tables : list of tuple of int
        Those of the sweeps, those of more variables first.
    offsets, sizes : ndarray of int, (tables,)
    places : dict
        Where every table lies, of the sweeps or desired.
    cells : int
        Of all of them and of copies.
    copied : slice
        Where copies lie.
    cells_of_copies : ndarray
        Of the large table for each cell of its copies; 0 where it loses what they have.
    up, down : StepList
        Operations between the tables.
    margins : dict
        Desired tables that are not of the sweeps, each with the one that it is a sum of.
    sums, shares : ndarray of int, (rows, 10)
        Going down, those that lead to margins; and going up, those that lead from them.
    most_room : int
        Cells that one operation needs after all tables.
    moved : int
        Cells of tables, as often as an operation going up takes them.

    Raises
    ------
    TooManyCellsError
        If there are more.
    """

    def __init__(
        self, axes: SchemaAxes, observed: Sequence[Axes], desired: Sequence[Axes], most_cells: float = np.inf
    ) -> None:
        self.axes = axes
        self._sizes: dict[Axes, int] = {}
        whole = [1 << axis if is_whole else 0 for axis, is_whole in enumerate(axes.is_whole)]
        self.mask_of = lambda table: sum(map(whole.__getitem__, table))
        self.groups = cache(lambda table: tuple([axis for axis in table if not axes.is_whole[axis]]))
        keeping = cache(lambda mask: tuple(bit_places(mask)))
        self.within = cache(self._with_groups) if axes.has_groups else lambda table, mask: keeping(mask)
        self._provides = cache(lambda table: reduce(or_, [axes.provides[axis] for axis in table], 0))
        self._keeps = cache(lambda table: sum([1 << axis for axis in table]))
        generators, wanted = dict(zip(observed, map(self.mask_of, observed), strict=True)), dict.fromkeys(desired)
        others = [table for table in wanted if table not in generators]
        finest_first = sorted(generators, key=self.size_of, reverse=True) if others else []
        for table in others:
            if all(self._keeps(table) & ~self._provides(other) for other in finest_first):
                generators[table] = self.mask_of(table)
        generators = generators or {(): 0}
        self.lattice = IntersectionLattice(set(generators.values()), axes.sizes)
        self.coarser = cache(self._lay_coarser)
        self._lists: list[int] = []
        self._list = cache(self._lay_list)
        if axes.has_groups:
            self._lay_tables(generators, most_cells)
        else:
            self._lay_members(generators, most_cells)
            self._sizes |= zip(self.tables, self.sizes.tolist(), strict=True)
        self.margins = self._sources([table for table in others if table not in self.number])
        self._source = dict(self.number)  # of every table, or of the one that a margin is a sum of
        for own, source in self.margins.items():
            self._source[own] = self._source[source]
        laid = list(wanted | dict.fromkeys(self.tables))
        starts = list(accumulate(map(self._sizes.__getitem__, laid), initial=0))
        self.cells = starts.pop()
        self.places = dict(zip(laid, starts, strict=True))
        self.offsets = np.array([self.places[table] for table in self.tables], dtype=np.intp)
        self._lay_copies(len(desired) > 0)
        self._lay_steps()

    def reads(self, tables: Sequence[Axes], starts: Integers) -> StepList:
        """What reads tables at starts, (tables,), each with the number of the table that it is, or is a margin of."""
        lengths = np.array([self.axes.sizes[own[0]] if own else 1 for own in tables], dtype=np.intp)
        own = self.places, self._source, self._sizes
        places, numbers, sizes = (np.array([of[table] for table in tables], dtype=np.intp) for of in own)
        return StepList.of(rows_of_columns(READ, places, starts, lengths, 1, sizes // lengths, SUMMED, numbers, 0, 1))

    def size_of(self, table: Axes) -> int:
        """Cells of a table."""
        if table not in self._sizes:
            self._sizes[table] = self.axes.size(table)
        return self._sizes[table]

    def disagreement(self, cells: Float) -> float:
        """Largest difference between a table of cells, (rooms, K), and sums of one that it is a part or a margin of.

        Sums are found where they are going up: in copies and behind all tables. Tables of one component, which are sums
        of the same numbers (`GroupMixing`), are not compared with one another.
        """
        (kind, target), sums = self.up.steps[:, [0, 2]].T, self.sums.copy()
        up = self.up.steps[(kind == REDUCE) | ((kind == MOVE) | (kind == LAND)) & (target < self.copied.start)]
        sums[sums[:, 2] < self.cells, 0] = LAND
        steps = np.concatenate([up, sums])
        gaps = np.zeros(len(steps))
        look_at_gaps(cells, steps, self.lists, gaps)
        return float(gaps.max(initial=0.0))

    def _with_groups(self, table: Axes, mask: int) -> Axes:
        """What a table leads to that keeps only some of its variables whole, and groups of others."""
        whole, groups = self.axes.is_whole, self.axes.groups
        kept = [groups[axis] if whole[axis] and not mask >> axis & 1 else axis for axis in table]
        return tuple([axis for axis in kept if axis >= 0])

    def _lay_members(self, generators: dict[Axes, int], most_cells: float) -> None:
        """Without groups every set of variables is a table."""
        sizes = np.where(self.lattice.has, self.axes.sizes, 1.0).prod(axis=1)
        if sizes.sum() > most_cells:
            raise TooManyCellsError
        told = dict(zip(generators.values(), generators, strict=True))
        self.masks, self.sizes = self.lattice.members, sizes.astype(np.intp)
        self.tables: list[Axes] = [told[mask] if mask in told else tuple(bit_places(mask)) for mask in self.masks]
        self.number = dict(zip(self.tables, range(len(self.tables)), strict=True))

    def _lay_tables(self, generators: dict[Axes, int], most_cells: float) -> None:
        classes: dict[int, dict[Axes, int]] = {}
        for table, mask in generators.items():
            classes.setdefault(mask.bit_count(), {})[table] = mask
        self.tables, self.number, self.masks, cells = [], {}, [], 0
        for size in range(max(classes), -1, -1):
            for table, mask in classes.get(size, {}).items():
                for other in self.coarser(table):
                    own = self.mask_of(other)
                    classes.setdefault(own.bit_count(), {})[other] = own
                self.number[table] = len(self.tables)
                self.tables.append(table)
                self.masks.append(mask)
                cells += self.size_of(table)
                if cells > most_cells:
                    raise TooManyCellsError
        self.sizes = np.array([self.size_of(table) for table in self.tables], dtype=np.intp)

    def _lay_coarser(self, table: Axes) -> list[Axes]:
        """The largest intersections with other tables inside a table; those that keep its first axis first."""
        inside = dict.fromkeys([self.within(table, own) for own in self.lattice.covers(self.mask_of(table))])
        return sorted(inside, key=lambda other: table[0] not in other)

    def _sources(self, wanted: list[Axes]) -> dict[Axes, Axes]:
        """For every table that is a margin the one that it is a sum of, itself a table or a margin before it."""
        found: dict[Axes, Axes] = {}
        smallest_first = sorted(self.tables, key=self.size_of) if wanted else []
        for table in sorted(wanted, key=self.size_of, reverse=True):
            source = next(own for own in smallest_first if not self._keeps(table) & ~self._provides(own))
            for axis, told in enumerate(self.axes.provides if found else []):
                finer = tuple(sorted([axis, *(own for own in table if not told >> own & 1)]))
                if finer in found and self.size_of(finer) < self.size_of(source):
                    source = finer
            found[table] = source
        return found

    def _lay_copies(self, is_wanted: bool) -> None:
        """Which tables are large beside all that is inside them, and where their sums lie."""
        self._copies: dict[Axes, dict[Axes, tuple[Axes, int]]] = {}  # with what each is a sum of, that first
        start, size = self.cells, cache(self.lattice.size)
        is_regular = self.lattice.is_regular[[self.lattice.number[mask] for mask in self.masks]]
        for number in np.flatnonzero(~is_regular | (self.sizes >= LARGE)).tolist() if is_wanted else []:
            mask, table = self.masks[number], self.tables[number]
            below = self.lattice.below(mask)[1:]
            inside = sum([self.size_of(self.within(table, own)) for own in below])
            if len(self.coarser(table)) < 3 or self.size_of(table) < COPIES * inside:
                continue
            edges = dict(tree_of_sums(mask, self.lattice.covers(mask), size))
            for own in below:
                if own not in edges:
                    edges[own] = min([other for other in edges if not own & ~other], key=size)
            copies = self._copies[table] = {}
            # From the large one first, before others those that are taken in the same slices of its first axis:
            for own, source in sorted(edges.items(), key=lambda e: 2 * (e[1] != mask) or not e[0] >> table[0] & 1):
                copies[self.within(table, own)] = self.within(table, source), self.cells
                self.cells += self.size_of(self.within(table, own))
        self.copied = slice(start, self.cells)

    def _lay_steps(self) -> None:
        self.most_room = 0
        up, first, blocks, left = list[Row](), list[Row](), list[list[Row]](), list[Axes]()
        with_groups = self.tables if self.axes.has_groups and self._copies else []
        mixed = {self.mask_of(own) for own in with_groups if self.groups(own)}
        regular, others = self._regular_moves(), np.ones(len(self.tables), dtype=bool)
        others[regular[:, TABLE]] = False
        others[[self.number[table] for table in self._copies]] = True
        regular = regular[~others[regular[:, TABLE]]]
        for number in np.flatnonzero(others).tolist():
            own = self.tables[number]
            if own in self._copies:
                found, lands, spread = self._beside(own)
                up, first, blocks = [*up, *found, *lands], [*first, *lands], [*blocks, spread]
                if self.masks[number] in mixed or any(own in other for other in self._copies.values()):
                    up += [(PUT if row[1] == self.places[own] else row[0], *row[1:]) for row in spread]
                else:
                    left.append(own)
                continue
            for other in self.coarser(own):
                moves = self._move(own, other, self.places[own], self.places[other])
                blocks.append([(*row, number, self.number[other], own[0] in other) for row in moves])
                up += blocks[-1]
        self.up = StepList.of(in_order_of_tables(regular, as_rows(up), 1))
        back = in_order_of_tables(regular[::-1], as_rows(list(chain.from_iterable(reversed(blocks)))), -1)
        self.down = StepList.of(np.concatenate([as_rows(first), back]))
        self.moved = int(self.up.steps[:, 3:6].prod(axis=1).sum())
        margins = [(source, own, self.places[source], self.places[own]) for own, source in self.margins.items()]
        self.sums = as_rows([(*row, 0, 0, 1) for own in margins for row in self._sum(*own)])
        self.shares = self.sums[::-1].copy()  # the transpose: rows between room, and those that change tables
        self.shares[:, 0] = np.where(self.shares[:, 1] < self.cells, ADD, EXPAND)
        self.lists = np.array(self._lists, dtype=np.intp)
        self.cells_of_copies = np.zeros((self.copied.stop - self.copied.start, 1))
        for table in left:
            for own, (_, place) in self._copies[table].items():
                each = self.cells_of_copies[place - self.copied.start :][: self.size_of(own), 0]
                each[:] = self._cells_for_each(table, own)

    def _cells_for_each(self, fine: Axes, coarse: Axes) -> Float | float:
        """Cells of a table for each cell of a coarser one, (cells,), or for all alike."""
        if not self.groups(coarse):
            return self.size_of(fine) / self.size_of(coarse)
        of = self.axes.variable
        counts = [np.bincount(self.axes.between(axis, own)) for own in coarse for axis in fine if of[axis] == of[own]]
        each = reduce(np.multiply.outer, counts, np.ones(1)).ravel()
        return each * (self.size_of(fine) / each.sum())

    def _regular_moves(self) -> Integers:
        """Of tables whose margins are all tables, moves to those of one variable less, without the first one last."""
        lattice = self.lattice
        if self.axes.has_groups or not lattice.inside.size:
            return as_rows([])
        lengths = np.where(lattice.has, self.axes.sizes, 1)
        ahead = np.cumprod(lengths, axis=1) // lengths
        firsts, size = np.flatnonzero(np.diff(lattice.inside, prepend=-1)), lattice.inside.size
        order = np.arange(1, size + 1)
        order[np.append(firsts[1:], size) - 1] = firsts
        keeps = (order > np.arange(size)).astype(np.intp)
        inside, axis, without = lattice.inside[order], lattice.axis[order], lattice.without[order]
        before, levels = ahead[inside, axis], lengths[inside, axis]
        after, (start, end) = self.sizes[inside] // (before * levels), self.offsets[np.array([inside, without])]
        return rows_of_columns(MOVE, start, end, before, levels, after, SUMMED, inside, without, keeps)

    def _beside(self, table: Axes) -> tuple[list[Row], list[Row], list[Row]]:
        """Rows that find what a large table has along its copies, that add it to what they copy, and that spread it."""
        number, copies = self.number[table], self._copies[table]
        places = {table: self.places[table]} | {own: place for own, (_, place) in copies.items()}
        found, spread, empty = list[Row](), list[Row](), copies.keys() - self.number.keys()
        sums: dict[Axes, list[Row]] = {}
        for own, (source, place) in copies.items():
            work = number, number, source == table and table[0] in own
            sums[own] = [(*row, *work) for row in self._sum(source, own, places[source], place)]
            found += sums[own]
        for own, (source, _) in reversed(copies.items()):
            kinds = [EXPAND if source in empty else ADD, *[EXPAND] * len(sums[own])]
            spread += [(kind, *row[1:]) for kind, row in zip(kinds, sums[own], strict=False)][::-1]
            empty.discard(source)
        inside = sorted(copies.keys() & self.number.keys(), key=self.number.__getitem__)
        for own in inside:
            for other in self.coarser(own):
                rows = self._move(own, other, places[own], places[other])
                found += [(*row, number, self.number[other], 0) for row in rows if row[0] != LAND]
        ends = [(places[own], self.places[own], 1, 1, self.size_of(own), SUMMED) for own in inside]
        lands: list[Row] = [(LAND, *end, number, self.number[own], 0) for own, end in zip(inside, ends, strict=True)]
        return found, lands, spread

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
        *first, last = self._stages(fine, coarse)
        rows, start = self._reductions(start, first, self.cells)
        return [*rows, (REDUCE, start, end, *last)]

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
        lengths, stages = [levels for levels, _, _ in runs], list[Stage]()
        summed = [i for i, run in enumerate(runs) if run[2] != KEPT]
        for i in sorted(summed, key=lambda i: -runs[i][0] / runs[i][1]) if len(summed) > 1 else summed:
            levels, stay, listed = runs[i]
            stages.append((prod(lengths[:i]), levels, prod(lengths[i + 1 :]), listed))
            lengths[i] = stay
        return stages

    def _lay_list(self, fine: int, coarse: int) -> int:
        """Where the cells of the coarser axis are listed that levels of the finer one go to."""
        self._lists += [self.axes.sizes[coarse], *self.axes.between(fine, coarse).tolist()]
        return len(self._lists) - 1 - self.axes.sizes[fine]


def information(plan: SweepPlan, observed: Sequence[Axes], precisions: Float) -> tuple[Float, dict[Axes, Float]]:
    """What tables of precisions (observed,) say of the first cell of every table, (tables,), and of more with groups.

    Then of all tables that they lead to, by cell of groups and recodes.
    """
    if plan.axes.has_groups:
        found = _information_by_group(plan, observed, precisions)
        return np.array([found[table][0] if table in found else 0.0 for table in plan.tables]), found
    numbers = np.array([plan.number[table] for table in observed], dtype=np.intp)
    values = np.bincount(numbers, precisions / plan.sizes[numbers], len(plan.tables)).astype(float)
    return plan.sizes * plan.lattice.sums_above(values), {}


def _information_by_group(plan: SweepPlan, observed: Sequence[Axes], precisions: Float) -> dict[Axes, Float]:
    """The same where variables have groups: of precisions, (observed,), arrays (cells of groups,)."""
    axes, shares = plan.axes, defaultdict[tuple[Axes, Axes], float](float)  # by axes along which a table differs
    for table, share in zip(observed, (precisions / [plan.size_of(own) for own in observed]).tolist(), strict=True):
        grouped = [(axis, axes.is_whole[axis] << axis) for axis in table if axes.groups[axis] >= 0]
        for mask in plan.lattice.below(plan.mask_of(table)):
            shares[plan.within(table, mask), tuple([axis for axis, bit in grouped if not bit & mask])] += share
    outer = cache(lambda seen: reduce(np.multiply.outer, [axes.even_shares[axis] for axis in seen], np.ones(1)).ravel())
    found: dict[Axes, Float] = {}
    for (own, seen), share in shares.items():
        found[own] = found.get(own, 0.0) + plan.size_of(own) * share * outer(seen)
    return found

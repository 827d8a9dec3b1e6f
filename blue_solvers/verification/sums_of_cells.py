"""Sums that hold some of the leaves' cells: those of tables of leaves and areas, equalities, and what tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse

from blue_solvers.verification.placed_tables import Leaves, Level, LevelTable, PlacedTables, by_cells
from blue_solvers.verification.reaches import NO_MAP, NO_WEIGHTS, Cells, Reach, add, finite, ranges
from constraint_builders.arrays import Float, Index, distinct_numbers

LAST = 2**60  # in rank
Sought = dict[int, tuple[Index, Index]]  # by leaves' numbers rows and columns of cells
Entries = tuple[Index, Index, Float]  # of a matrix: rows, columns, weights
Picked = tuple[LevelTable, Index, Index, Float]  # for sums by their numbers cells of a table, with weights
Claimed = Callable[[LevelTable], Float]  # of a table, (G, 1) or (G, cells)


class SumsOfCells:
    """Sums that hold cells of leaves that are sought: first those of tables.

    Parameters
    ----------
    places : PlacedTables
    cells : dict of int to (ndarray of int, ndarray of int)
        What is sought.
    given : callable
        Of a table: finite where its cells may be used.
    of_part : bool
        Whether those of a part's root may be used.

    Attributes
    ----------
    holds : csr_array, (sums, sought cells)
        Weights of the cells in the sums.
    ranks : ndarray of int, (sums,)
        Of what lies in leaves first, then of the smallest areas, and of the root last.
    at_root : ndarray of bool, (sums,)
    """

    def __init__(self, places: PlacedTables, cells: Sought, given: Claimed, of_part: bool) -> None:
        levels, self._places = places.levels, places
        self.root = LevelTable("", 0, levels[0].tables[0], np.zeros((1, 1)))
        self._tables = [*places.level_tables, *[self.root] * of_part]
        ends = np.cumsum([0, *(levels[placed.level].rows * placed.table.size for placed in self._tables)]).tolist()
        self._cuts, self._end = [slice(*own) for own in pairwise(ends)], ends[-1]
        self._beside, self._equal_to = _said_beside(places, cells)
        ends = np.cumsum([0, *(row.size for row, _ in cells.values())]).tolist()
        found: list[Entries] = [(NO_MAP, NO_MAP, NO_WEIGHTS)]
        for (number, (row, column)), first in zip(cells.items(), ends, strict=False):
            some, cell = places.leaves[number], np.arange(first, first + row.size)
            held = {some.level: (some.rows[row], column, cell, np.ones(row.size))}
            for above, reach in some.reach.items():
                into = reach.into[column] if reach.into.size else column
                counts, areas, weights = reach.of_rows(row)
                held[above] = areas, np.repeat(into, counts), np.repeat(cell, counts), weights
            for placed, cut in zip(self._tables, self._cuts, strict=True):
                is_own = placed is self.root or (some.told is None and placed is levels[some.level].own[placed.cover])
                if placed.level not in held or (placed.level == some.level and is_own):
                    continue
                place, own_column, own_cell, weight = held[placed.level]
                inside, own = _cells_of(levels[placed.level], placed, own_column)
                usable = np.isfinite(_at(given(placed), place[inside], own))
                inside, own = inside[usable], own[usable]
                found.append((cut.start + place[inside] * placed.table.size + own, own_cell[inside], weight[inside]))
        among = [places.cuts[i][0].start + np.ravel_multi_index(at, places.cuts[i][1]) for i, at in cells.items()]
        if self._equal_to.size:
            beside = self._beside[:, np.concatenate(among)].tocoo()
            found.append((self._end + beside.coords[0], beside.coords[1], beside.data))
        rows, columns, weights = (np.concatenate(own) for own in zip(*found, strict=True))
        self._numbers, rows = distinct_numbers(rows)
        shape = self._numbers.size, ends[-1]
        self.holds = sparse.csr_array((weights, (rows, columns)), shape=shape)
        self.holds.eliminate_zeros()  # leaves that count for nothing in an area, or as much as against it
        self.ranks, self.at_root = np.full(shape[0], -LAST), np.zeros(shape[0], dtype=bool)
        for placed, some_sums, *_ in self.of_tables():
            self.ranks[some_sums], self.at_root[some_sums] = -levels[placed.level].rows, placed is self.root
        self.ranks[self.at_root] = LAST

    def of_tables(self) -> Iterator[tuple[LevelTable, slice, Index, Index]]:
        """Of every table where its sums are among all, and their places and cells."""
        for placed, cut in zip(self._tables, self._cuts, strict=True):
            own = slice(*np.searchsorted(self._numbers, [cut.start, cut.stop]).tolist())
            if own.start < own.stop:
                yield placed, own, *np.divmod(self._numbers[own] - cut.start, placed.table.size)

    def _said(self, of_tables: Callable[[LevelTable, Index, Index], Float], beside: Float) -> Float:
        """Numbers of all sums, (sums,), from those of tables' cells and of all others."""
        found = np.zeros(self._numbers.size)
        for placed, own, place, cell in self.of_tables():
            found[own] = of_tables(placed, place, cell)
        last = int(np.searchsorted(self._numbers, self._end))
        found[last:] = beside[self._numbers[last:] - self._end]
        return found

    def values(self, claimed: Claimed) -> Float:
        """What is claimed of all sums, (sums,)."""
        return self._said(lambda placed, place, cell: _at(claimed(placed), place, cell), self._equal_to)

    def besides(self) -> Float:
        """Variances of the sums with those of the measured cells in them, (sums,)."""
        own = []
        for some, (_, shape) in zip(self._places.leaves, self._places.cuts, strict=True):
            variance = np.broadcast_to(finite(variances_of(self._places.levels[some.level], some)), shape)
            own.append(np.where(some.empty, 0.0, variance) if some.empty.size else variance)
        tables = list(level_sums(self._places, own, 2))

        def of_table(placed: LevelTable, place: Index, cell: Index) -> Float:
            """Of some cells, (k,)."""
            level, vector = tables[placed.level]
            return level.of(placed, vector, level.rows)[0][place, cell] + _at(placed.variance, place, cell)

        return self._said(of_table, self._beside.power(2) @ np.concatenate([cells.ravel() for cells in own]))

    def in_leaves(self, number: int, chosen: Index) -> sparse.csr_array:
        """By how much some leaves' cells count in chosen sums, (leaves * cells, k), as `taken_by` takes it."""
        numbers, cut, picks = self._numbers[chosen], self._places.cuts[number][0], list[Picked]()
        for placed, own in zip(self._tables, self._cuts, strict=True):
            used = np.flatnonzero((numbers >= own.start) & (numbers < own.stop))
            picks.append((placed, used, numbers[used] - own.start, np.ones(used.size)))
        entries = list(cells_in_sums(self._places, number, picks))
        if (used := np.flatnonzero(numbers >= self._end)).size:
            beside = self._beside[numbers[used] - self._end, cut].tocoo()
            entries.append((used[beside.coords[0]], beside.coords[1], beside.data))
        return by_cells(matrix_of(entries, (chosen.size, cut.stop - cut.start)))


def _said_beside(places: PlacedTables, cells: Sought) -> tuple[sparse.csr_array, Float]:
    """Common margins of two tables of leaves that cells lie in, which say nothing, and equalities: (k, N), and (k,)."""
    found, end, known = list[Entries](), 0, places.known
    for number, (row, _) in cells.items():
        margins, (cut, (_, width)), used = places.leaves[number].margins, places.cuts[number], np.unique(row)
        if margins is None:
            continue
        for pair, both, size in margins.pairs():
            for k, into, sign in zip(pair, both, (1.0, -1.0), strict=True):
                free = np.flatnonzero(margins.free[margins.columns[k]])
                rows = end + np.arange(used.size)[:, None] * size + into[free]
                columns = cut.start + used[:, None] * width + margins.columns[k].start + free
                found.append((rows.ravel(), columns.ravel(), np.full(rows.size, sign)))
            end += used.size * size
    if known is not None:
        rows = known.equal.tocoo()
        found.append((end + rows.coords[0], rows.coords[1], rows.data))
    equal_to = np.concatenate([np.zeros(end), *([] if known is None else [known.equal_to])])
    return matrix_of(found, (equal_to.size, places.cuts[-1][0].stop)), equal_to


def _cells_of(level: Level, placed: LevelTable, column: Index) -> tuple[Index, Index]:
    """Which columns of a level, (k,), a table's cells are sums of, and the cells."""
    columns = level.columns[placed.cover]
    inside = np.flatnonzero((column >= columns.start) & (column < columns.stop))
    return inside, placed.of_cover[column[inside] - columns.start]


def _at(values: Float, place: Index, cell: Index) -> Float:
    """Of values of a table, (G, 1) or (G, cells), those of some places' cells, (k,)."""
    found: Float = values[place, cell if values.shape[1] > 1 else 0]
    return found


def variances_of(level: Level, some: Leaves) -> Float:
    """Of the tables of some leaves that hold all others, (leaves, cells)."""
    if some.told is None:
        return level.variances(some.here)
    return np.broadcast_to(some.told.variance, some.told.share.shape)


def cells_in_sums(places: PlacedTables, number: int, picks: Iterable[Picked]) -> Iterator[Entries]:
    """By how much some leaves' cells count in sums that tables' cells make up: numbers of sums and cells, weights."""
    some, (_, (_, width)) = places.leaves[number], places.cuts[number]
    reaches = {some.level: Reach.of_sets(some.rows, NO_MAP), **some.reach}
    in_areas = {own: _grouped(reach.areas, places.levels[own].rows) for own, reach in reaches.items()}
    for placed, sums, cells, weights in picks:
        if not sums.size or placed.level not in reaches:
            continue
        level, reach, (entries, first) = places.levels[placed.level], reaches[placed.level], in_areas[placed.level]
        inside, into = _cells_of(level, placed, reach.into if reach.into.size else np.arange(width))
        order, start = _grouped(into, placed.table.size)
        place, cell = np.divmod(cells, placed.table.size)
        columns = np.diff(start)[cell]
        counts = np.diff(first)[place] * columns
        pick, at = np.repeat(np.arange(sums.size), counts), ranges(np.zeros(sums.size, dtype=np.intp), counts)
        leaf, column = np.divmod(at, columns[pick])
        entry, column = entries[first[place[pick]] + leaf], inside[order[start[cell[pick]] + column]]
        yield sums[pick], reach.rows[entry] * width + column, weights[pick] * reach.counts_of(entry)


def matrix_of(entries: Sequence[Entries], shape: tuple[int, int]) -> sparse.csr_array:
    """Of all entries together."""
    rows, columns, weights = (np.concatenate(own) for own in zip((NO_MAP, NO_MAP, NO_WEIGHTS), *entries, strict=True))
    return sparse.csr_array((weights, (rows, columns)), shape=shape)


def _grouped(numbers: Index, count: int) -> tuple[Index, Index]:
    """The order of entries by so many numbers, (entries,), and where those of each begin, (count + 1,)."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=count))])
    return np.argsort(numbers, kind="stable"), starts


def level_sums(places: PlacedTables, cells: Sequence[Float], power: int | None = None) -> Iterator[tuple[Level, Cells]]:
    """Of all levels the vector of their tables, as sums of the leaves' cells, (leaves, cells) of each of the leaves.

    Their weights are raised to a power.
    """
    total = [level.room() for level in places.levels]
    for own, some in zip(cells, places.leaves, strict=True):
        total[some.level][0, some.rows] = own
        for above, reach in some.reach.items() if own.any() else ():
            add(own[None], reach if power is None else reach.to_power(power), total[above])
    for level, whole in zip(places.levels, total, strict=True):
        vector = level.vector(level.rows)
        level.held(vector, level.rows)[:] = whole
        level.sum_up(vector, level.rows)
        yield level, vector

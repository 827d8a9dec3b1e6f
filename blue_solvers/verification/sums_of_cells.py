"""Sums that hold some of the leaves' cells: those of tables of leaves and areas, equalities, and what tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from scipy import sparse

from blue_solvers.verification.placed_tables import Leaves, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import NO_MAP, Cells, Reach, add, finite
from constraint_builders.arrays import Float, Index, as_slice, distinct_numbers

LAST = 2**60  # in rank
Sought = dict[int, tuple[Index, Index]]  # by leaves' numbers rows and columns of cells
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
        rows, columns, weights = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)], [np.zeros(0)]
        for (number, (row, column)), first in zip(cells.items(), ends, strict=False):
            some, cell = places.leaves[number], np.arange(first, first + row.size)
            held = {some.level: (some.rows[row], column, cell, np.ones(row.size))}
            for above, reach in some.reach.items():
                part, into = reach.of_rows(row), reach.into[column] if reach.into.size else column
                counts = np.diff(part.starts)
                held[above] = part.areas, np.repeat(into, counts), np.repeat(cell, counts), part.weights
            for placed, cut in zip(self._tables, self._cuts, strict=True):
                is_own = placed is self.root or (some.told is None and placed is levels[some.level].own[placed.cover])
                if placed.level not in held or (placed.level == some.level and is_own):
                    continue
                place, own_column, own_cell, weight = held[placed.level]
                inside, own = _cells_of(levels[placed.level], placed, own_column)
                usable = np.isfinite(_at(given(placed), place[inside], own))
                inside, own = inside[usable], own[usable]
                rows.append(cut.start + place[inside] * placed.table.size + own)
                columns.append(own_cell[inside])
                weights.append(weight[inside])
        among = [places.cuts[i][0].start + np.ravel_multi_index(at, places.cuts[i][1]) for i, at in cells.items()]
        beside = self._beside[:, np.concatenate(among)].tocoo()
        entries = [
            np.concatenate([*own, more])
            for own, more in zip((rows, columns), (self._end + beside.coords[0], beside.coords[1]), strict=True)
        ]
        self._numbers, of_entry = distinct_numbers(entries[0])
        shape = self._numbers.size, ends[-1]
        self.holds = sparse.csr_array((np.concatenate([*weights, beside.data]), (of_entry, entries[1])), shape=shape)
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
            level, rows, vector = tables[placed.level]
            beside = np.zeros((level.rows, placed.table.size))
            beside[rows] = level.of(placed, vector, rows.size)[0]
            return beside[place, cell] + _at(placed.variance, place, cell)

        return self._said(of_table, self._beside.power(2) @ np.concatenate([cells.ravel() for cells in own]))

    def in_leaves(self, number: int, chosen: Index) -> sparse.csr_array:
        """By how much some leaves' cells count in chosen sums, (k, leaves * cells)."""
        picks, numbers = list[tuple[LevelTable, sparse.coo_array]](), self._numbers[chosen]
        for placed, cut in zip(self._tables, self._cuts, strict=True):
            own = np.flatnonzero((numbers >= cut.start) & (numbers < cut.stop))
            entries = np.ones(own.size), (own, numbers[own] - cut.start)
            picks.append((placed, sparse.coo_array(entries, shape=(chosen.size, cut.stop - cut.start))))
        own = np.flatnonzero(numbers >= self._end)
        pick = sparse.csr_array(
            (np.ones(own.size), (own, numbers[own] - self._end)), (chosen.size, self._equal_to.size)
        )
        beside = pick @ self._beside[:, self._places.cuts[number][0]]
        return sparse.csr_array(cells_in_sums(self._places, number, picks, chosen.size) + beside)


def _said_beside(places: PlacedTables, cells: Sought) -> tuple[sparse.csr_array, Float]:
    """Common margins of two tables of leaves that cells lie in, which say nothing, and equalities: (k, N), and (k,)."""
    size, blocks = places.cuts[-1][0].stop, list[sparse.csr_array]()
    for number, (row, _) in cells.items():
        some, (cut, (_, width)), used = places.leaves[number], places.cuts[number], np.unique(row)
        for pair, margin in some.margins.pairs.items() if some.margins is not None else ():
            for_columns = _in_common(some, pair)
            columns, into, signs = (np.concatenate(own) for own in zip(*for_columns, strict=True))
            where = (np.arange(used.size)[:, None] * margin.size + into).ravel()
            entries = np.tile(signs, used.size), (where, (cut.start + used[:, None] * width + columns).ravel())
            blocks.append(sparse.csr_array(entries, shape=(used.size * margin.size, size)))
    blocks.append(sparse.csr_array((0, size)) if places.known is None else places.known.equal)
    equal_to = np.zeros(sum(own.shape[0] for own in blocks))
    if places.known is not None:
        equal_to[equal_to.size - places.known.equal_to.size :] = places.known.equal_to
    return sparse.csr_array(sparse.vstack(blocks, format="csr")), equal_to


def _in_common(some: Leaves, pair: tuple[int, int]) -> list[tuple[Index, Index, Float]]:
    """Of two tables of some leaves their columns, the cells of their common margin, and 1 or -1 of each column."""
    margins, found = some.margins, list[tuple[Index, Index, Float]]()
    if margins is not None:
        for k, into, sign in zip(pair, margins.pairs[pair].into, (1.0, -1.0), strict=True):
            free = np.flatnonzero(margins.free[margins.columns[k]])
            found.append((free + margins.columns[k].start, into[free], np.full(free.size, sign)))
    return found


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


def cells_in_sums(
    places: PlacedTables, number: int, sums: Iterable[tuple[LevelTable, sparse.coo_array]], count: int
) -> sparse.csr_array:
    """By how much some leaves' cells count in sums of tables' cells, (count, cells): (count, leaves * cells)."""
    some, (_, (leaves, width)) = places.leaves[number], places.cuts[number]
    areas_of = {some.level: Reach.of_sets(some.rows, NO_MAP), **some.reach}
    found = sparse.csr_array((count, leaves * width))
    for placed, own in sums:
        if not own.nnz or placed.level not in areas_of:
            continue
        level, reach = places.levels[placed.level], areas_of[placed.level]
        place, cell = np.divmod(own.coords[1], placed.table.size)
        used, place = np.unique(place, return_inverse=True)
        entries = own.data, (own.coords[0], place * placed.table.size + cell)
        few = sparse.csr_array(entries, shape=(count, used.size * placed.table.size))
        inside, into = _cells_of(level, placed, reach.into if reach.into.size else np.arange(width))
        of_cells = sparse.csr_array((np.ones(inside.size), (into, inside)), shape=(placed.table.size, width))
        found += few @ sparse.kron(reach.matrix(level.rows)[used], of_cells, format="csr")
    return found


def level_sums(
    places: PlacedTables, cells: Sequence[Float], power: int | None = None
) -> Iterator[tuple[Level, Index, Cells]]:
    """Of all levels the places with a cell other than 0, and the vector of their tables, sums of the leaves' cells.

    Cells are (leaves, cells) of each of the leaves; their weights are raised to a power.
    """
    total = [level.room() for level in places.levels]
    for own, some in zip(cells, places.leaves, strict=True):
        here = np.flatnonzero(own.any(axis=1))
        given = own[None, as_slice(here)]
        total[some.level][0][some.rows[here]] = given[0]
        for above, reach in some.reach.items() if here.size else ():
            inside = reach if here.size == len(own) else reach.of_rows(here)
            add(given, inside if power is None else inside.to_power(power), total[above])
    for level, whole in zip(places.levels, total, strict=True):
        used = np.flatnonzero(whole[0].any(axis=1))
        vector = level.vector(used.size)
        level.held(vector, used.size)[0] = whole[0, as_slice(used)]
        level.sum_up(vector, used.size)
        yield level, used, vector

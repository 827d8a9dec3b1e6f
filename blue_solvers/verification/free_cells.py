"""Cells of leaves that were not measured: residuals have to vanish in them, so sums take what is left of it there.

Cell by cell a measured sum is chosen that contains it and else only cells that were measured, or have a sum already:
what is said of the cell is moved to that sum, and off the other cells in it. So each cell costs as much as its sum and
all that is beside it there; where sums contain one another's cells in a circle, some are solved for together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from blue_solvers.verification.placed_tables import Leaves, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import Cells, add, finite, plus, side_by_side
from constraint_builders.arrays import Float, Index

MOST_TOGETHER = 400  # cells that are solved for together
CLEAR, ZERO = 1e-8, 1e-12  # of the largest singular value: larger ones count, and smaller ones are none
LEAST = 1e-12  # of variances of sums, beside one another, where some are known exactly
GAUGE, ROOT = "common margin", "root"
LAST = 2**60


@dataclass
class SumsOfCells:
    """Sums of one kind: of a table at all places of a level, of the common margin of two, or of a part's root.

    Attributes
    ----------
    kind : str
        Empty of a table.
    level : int
        Or the number of leaves, of common margins.
    placed : LevelTable or None
    pair : tuple of int
        Which tables of the leaves have the margin.
    width : int
        Cells of a place.
    first, last : int
        Of their numbers, place by place.
    """

    kind: str
    level: int
    placed: LevelTable | None
    pair: tuple[int, int]
    width: int
    first: int
    last: int


class Step(NamedTuple):
    """Cells that sums take at one time, by (sums, cells), and what these sums contain, (sums, all cells)."""

    cells: Index
    rows: Index
    takes: sparse.csr_array
    holds: sparse.csr_array


@dataclass
class Taken:
    """What sums take of residuals: it is taken off the cells in them.

    Attributes
    ----------
    by_level : list of Cells
        What is taken off the tables that hold all others, of all places of levels; of no places where nothing is.
    shares : dict of int to ndarray, (G, cells)
        By `id` of tables what they take.
    margins : dict of int to list
        By leaves' numbers what is moved between two of their tables: which, and (leaves, cells of the common margin).
    of_root : ndarray, (cells,)
        What is left to the tree above.
    """

    by_level: list[Cells]
    shares: dict[int, Float] = field(default_factory=dict)
    margins: dict[int, list[tuple[tuple[int, int], Float]]] = field(default_factory=dict)
    of_root: Float = field(default_factory=lambda: np.zeros(0))

    def of(self, placed: LevelTable, rows: slice | Index, other: Float | None) -> Float | None:
        """What a table takes at some places, (rows, cells), with what it takes other than that; None of nothing."""
        share = self.shares.get(id(placed))
        if share is None:
            return other
        return share[rows] if other is None else share[rows] + other


class FreeCells:
    """Cells of leaves that were not measured, and the sums that take what is said of them.

    Parameters
    ----------
    places : PlacedTables
    of_part : bool
        Whether a tree above takes what no sum does.
    claimed : callable, optional
        Of a table what is claimed of it, (G, cells): the cells are those of leaves of which nothing is claimed then,
        and the sums those of which something is.

    Attributes
    ----------
    size : int
    cells : dict of int to (ndarray of int, ndarray of int)
        By leaves' numbers their rows and columns.
    parts : dict of int to slice
        Where these are among all.
    variance, cost, to_root : ndarray, (size,)
        About the variance of what takes a unit; by how many standard errors it is at most, and how much of it the
        tree above takes; infinite where nothing does.
    left_to_root : ndarray of int
        Cells of the root under which there are any.
    """

    def __init__(
        self, places: PlacedTables, of_part: bool = False, claimed: Callable[[LevelTable], Float] | None = None
    ) -> None:
        self._places, self._of_part, self._claimed = places, of_part, claimed
        self.cells, self.parts = dict[int, tuple[Index, Index]](), dict[int, slice]()
        self.size = 0
        for number, some in enumerate(places.leaves):
            found = self._lacking(places.levels[some.level], some)
            if found is not None:
                self.cells[number] = found
                self.parts[number] = slice(self.size, self.size + found[0].size)
                self.size += found[0].size
        self.variance, self.cost, self.to_root = np.full((3, self.size), np.inf)
        self.left_to_root = np.zeros(0, dtype=np.intp)
        self._sums, self._steps = list[SumsOfCells](), list[Step]()
        if self.size:
            self._choose(*self._entries())

    @classmethod
    def of(cls, places: PlacedTables, of_part: bool = False) -> FreeCells:
        """Those that were not measured, which places keep."""
        if of_part not in places.kept:
            places.kept[of_part] = cls(places, of_part)
        found: FreeCells = places.kept[of_part]
        return found

    def _lacking(self, level: Level, some: Leaves) -> tuple[Index, Index] | None:
        """Rows and columns of cells of some leaves that are sought, and may be other than 0; None without any."""
        if self._claimed is not None:
            own = [some.told.total] if some.told is not None else [self._claimed(own)[some.here] for own in level.own]
            lacking = [~np.isfinite(cells) for cells in own]
        else:
            own = (
                [some.told.variance] if some.told is not None else [placed.variance[some.here] for placed in level.own]
            )
            lacking = [np.isinf(variance) for variance in own]
        if not any(flags.any() for flags in lacking):
            return None
        columns = level.columns if len(lacking) > 1 else [slice(0, level.width)]
        lacks = side_by_side(lacking, columns) > 0
        row, column = np.nonzero(lacks & ~some.empty if some.empty.size else lacks)
        return (row, column) if row.size else None

    def solved(self, rest: Callable[[SumsOfCells], Float]) -> Float:
        """Cells, (size,), that make sums what is left of these, (places, cells) of each kind; NaN of some."""
        found, left = np.full(self.size, np.nan), np.zeros(self._rows.size)
        for sums in self._sums:
            cut = slice(*np.searchsorted(self._rows, [sums.first, sums.last]))
            if sums.kind != ROOT:
                left[cut] = rest(sums).ravel()[self._rows[cut] - sums.first]
        found[self._follows] = 0.0
        for step in self._steps:
            found[step.cells] = step.takes.T @ left[step.rows]
            left -= self._holds[:, step.cells] @ found[step.cells]
        return found

    def filled(self, number: int, variance: Float) -> Float:
        """Variances of leaves' cells, (leaves, cells), with those of what takes a unit where nothing was measured."""
        if number not in self.cells:
            return variance
        found = np.array(variance)
        found[self.cells[number]] = self.variance[self.parts[number]]
        return found

    def taken(self, said: Float) -> Taken:
        """What sums take of residuals that are said of the cells, (size,)."""
        left, amounts = said.copy(), np.zeros(self._rows.size)
        for step in reversed(self._steps):
            amount = step.takes @ left[step.cells]
            amounts[step.rows] += amount
            left -= step.holds.T @ amount
        inner = zip(self._places.levels, self._places.inner, strict=True)
        found = Taken([level.room(level.rows * bool(own.size)) for level, own in inner])
        vectors = dict[int, Float]()
        for sums in self._sums:
            own = slice(*np.searchsorted(self._rows, [sums.first, sums.last]))
            if own.start == own.stop or not amounts[own].any():
                continue
            dense = np.zeros(sums.last - sums.first)
            dense[self._rows[own] - sums.first] = amounts[own]
            share = dense.reshape(-1, sums.width)
            if sums.kind == GAUGE:
                found.margins.setdefault(sums.level, []).append((sums.pair, share))
                continue
            level = self._places.levels[sums.level]
            vector = vectors.setdefault(sums.level, level.vector(level.rows))
            if sums.placed is None:
                found.of_root = share[0]
                plus(level.held(vector, level.rows), share)
            else:
                found.shares[id(sums.placed)] = share
                plus(level.of(sums.placed, vector, level.rows), share)
        for number, vector in vectors.items():
            level = self._places.levels[number]
            level.spread_out(vector, level.rows)
            found.by_level[number] = -level.held(vector, level.rows)
        return found

    def taken_in(self, number: int, taken: Taken) -> Cells:
        """What is taken of some leaves' cells, (2, leaves, cells), by what their own tables take or have in common."""
        some = self._places.leaves[number]
        own = taken.by_level[some.level]
        said = own[:, some.rows] if own.size else self._places.levels[some.level].room(some.rows.size)
        for pair, share in taken.margins.get(number, []):
            for columns, into, sign in self.in_common(number, pair):
                plus(said[:, :, columns], -sign * share[:, into])
        return said

    def in_common(self, number: int, pair: tuple[int, int]) -> list[tuple[Index, Index, int]]:
        """Of two tables of some leaves their columns, the cells of their common margin, and 1 or -1."""
        margins, found = self._places.leaves[number].margins, list[tuple[Index, Index, int]]()
        if margins is not None:
            for k, into, sign in zip(pair, margins.pairs[pair].into, (1, -1), strict=True):
                free = margins.free[margins.columns[k]]
                found.append((np.flatnonzero(free) + margins.columns[k].start, into[free], sign))
        return found

    def _entries(self) -> tuple[Index, Index, Float]:
        """Of all sums the cells in them and their weights: numbers of sums, and of cells, and (entries,)."""
        self._ends = 0
        found, blocks = list[tuple[Index, Index, Float]](), dict[tuple[str, int, int], SumsOfCells]()
        levels = self._places.levels

        def sums_of(
            own: int, kind: str, level: int, places: int, width: int, placed: Any = None, pair: Any = ()
        ) -> SumsOfCells:
            key = kind, level, own
            if key not in blocks:
                last = self._ends + places * width
                blocks[key] = SumsOfCells(kind, level, placed, pair, width, self._ends, last)
                self._ends = last
            return blocks[key]

        def of_tables(number: int, held: list[LevelTable], place: Index, column: Index, cell: Index, w: Float) -> None:
            level = levels[number]
            for placed in held:
                columns = level.columns[placed.cover]
                inside = np.flatnonzero((column >= columns.start) & (column < columns.stop))
                own = placed.of_cover[column[inside] - columns.start]
                given = placed.variance if self._claimed is None else self._claimed(placed)
                usable = np.isfinite(given[place[inside], own if given.shape[1] > 1 else 0])
                inside, own = inside[usable], own[usable]
                if inside.size:
                    sums = sums_of(id(placed), "", number, level.rows, placed.table.size, placed)
                    found.append((sums.first + place[inside] * sums.width + own, cell[inside], w[inside]))

        for number, (row, column) in self.cells.items():
            some = self._places.leaves[number]
            level, cell = levels[some.level], np.arange(row.size) + self.parts[number].start
            beside = [own for own in level.level_tables if some.told is not None or own is not level.own[own.cover]]
            of_tables(some.level, beside, some.rows[row], column, cell, np.ones(row.size))
            for above, reach in some.reach.items():
                counts = np.diff(reach.starts)[row]
                entry = _ranges(reach.starts[row], counts)
                into = reach.into[column] if reach.into.size else column
                of_areas = reach.areas[entry], np.repeat(into, counts), np.repeat(cell, counts), reach.weights[entry]
                of_tables(above, levels[above].level_tables, *of_areas)
                if self._of_part and above == 0:
                    sums = sums_of(0, ROOT, 0, 1, levels[0].width)
                    found.append((sums.first + of_areas[1], of_areas[2], of_areas[3]))
                    self.left_to_root = np.union1d(self.left_to_root, of_areas[1])
            for pair, margin in some.margins.pairs.items() if some.margins is not None else ():
                own = pair[0] * len(level.tables) + pair[1]
                sums = sums_of(own, GAUGE, number, some.rows.size, margin.size, pair=pair)
                for columns, into, sign in self.in_common(number, pair):
                    of_column = np.full(level.width, -1)
                    of_column[columns] = into
                    inside = np.flatnonzero(of_column[column] >= 0)
                    place = row[inside] * margin.size + of_column[column[inside]]
                    found.append((sums.first + place, cell[inside], np.full(inside.size, float(sign))))
        self._sums = sorted(blocks.values(), key=lambda own: own.first)
        rows, cells, weights = (np.concatenate(own) for own in zip(*found, strict=True)) if found else _NOTHING
        return rows[weights != 0], cells[weights != 0], weights[weights != 0]

    def _besides(self) -> Float:
        """Variances of all sums in use, with those of the measured cells in them, (sums,)."""
        levels, found = self._places.levels, np.zeros(self._rows.size)
        used = {sums.level for sums in self._sums if not sums.kind}
        squares = {number: levels[number].room() for number in used}
        of_leaves = dict[int, Float]()
        for number, some in enumerate(self._places.leaves):
            own = finite(_variances(levels[some.level], some))
            own = np.where(some.empty, 0.0, own) if some.empty.size else own
            if number in self.cells:
                of_leaves[number] = own
            if some.level in used:
                squares[some.level][0][some.rows] += own
            for above in used & some.reach.keys():
                add(np.ascontiguousarray(own)[None], some.reach[above].to_power(2), squares[above])
        vectors = dict[int, Float]()
        for number, square in squares.items():
            level = levels[number]
            vectors[number] = level.vector(level.rows)
            level.held(vectors[number], level.rows)[:] = square
            level.sum_up(vectors[number], level.rows)
        for sums in self._sums:
            cut = slice(*np.searchsorted(self._rows, [sums.first, sums.last]))
            place, cell = np.divmod(self._rows[cut] - sums.first, sums.width)
            if sums.placed is not None:
                level, variance = levels[sums.level], sums.placed.variance
                beside = level.of(sums.placed, vectors[sums.level], level.rows)[0]
                found[cut] = beside[place, cell] + variance[place, cell if variance.shape[1] > 1 else 0]
            elif sums.kind == GAUGE:
                own = of_leaves[sums.level]
                beside = np.zeros((len(own), sums.width))
                for columns, into, _ in self.in_common(sums.level, sums.pair):
                    np.add.at(beside.T, into, own[:, columns].T)
                found[cut] = beside[place, cell]
        return found

    def _choose(self, rows: Index, cells: Index, weights: Float) -> None:
        """Choose the sums, from entries as of `_entries`: those of leaves first, then of the smallest areas."""
        self._rows, rows = np.unique(rows, return_inverse=True)
        first = _first_alike(sparse.csc_array((weights, (rows, cells)), shape=(self._rows.size, self.size)))
        follows = first != np.arange(self.size)
        self.variance[follows] = self.cost[follows] = self.to_root[follows] = 0.0
        rows, cells, weights = (own[~follows[cells]] for own in (rows, cells, weights))
        holds = sparse.csr_array((weights, (rows, cells)), shape=(self._rows.size, self.size))
        within, besides = sparse.csc_array(holds), np.ones(self._rows.size)
        if self._claimed is None:
            besides = self._besides()
        self._follows, self._holds = follows, within
        ranks = np.empty(self._rows.size, dtype=np.intp)
        for sums in self._sums:
            own = slice(*np.searchsorted(self._rows, [sums.first, sums.last]))
            ranks[own] = LAST if sums.kind == ROOT else -LAST if sums.kind else -self._places.levels[sums.level].rows
        open_, count = ~follows, np.diff(holds.indptr)
        last = np.bincount(_rows_of(holds), weights=holds.indices, minlength=count.size).astype(np.int64)
        squares, sizes, to_root = besides.copy(), np.sqrt(besides), (ranks == LAST).astype(float)
        pending = np.flatnonzero(count == 1)
        while open_.any():
            if not pending.size:
                step = self._together(holds, open_, count, squares, sizes, to_root)
                if step is None:
                    break
            else:
                own = pending[ranks[pending] == ranks[pending].min()]
                weight = _weights_at(holds, own, last[own])
                order_ = np.lexsort((squares[own] / weight**2, last[own]))
                chosen, first = np.unique(last[own][order_], return_index=True)
                row, weight = own[order_][first], weight[order_][first]
                self.variance[chosen], self.cost[chosen] = squares[row] / weight**2, sizes[row] / abs(weight)
                self.to_root[chosen] = to_root[row] / abs(weight)
                takes = sparse.csr_array((1 / weight, (np.arange(row.size),) * 2), shape=(row.size,) * 2)
                step = Step(chosen, row, takes, holds[row])
            self._steps.append(step)
            open_[step.cells] = False
            entry = _ranges(within.indptr[step.cells], np.diff(within.indptr)[step.cells])
            row, cell = within.indices[entry], np.repeat(step.cells, np.diff(within.indptr)[step.cells])
            weight = abs(within.data[entry])
            np.subtract.at(count, row, 1)
            np.subtract.at(last, row, cell)
            np.add.at(squares, row, weight**2 * self.variance[cell])
            np.add.at(sizes, row, weight * self.cost[cell])
            np.add.at(to_root, row, weight * self.to_root[cell])
            pending = np.concatenate([pending, row])
            pending = np.unique(pending[count[pending] == 1])

    def _together(
        self, holds: sparse.csr_array, open_: Float, count: Index, squares: Float, sizes: Float, to_root: Float
    ) -> Step | None:
        """Cells, of those that are `open_`, that sums determine together; None where there are none."""
        cells, rows = np.flatnonzero(open_), np.flatnonzero(count > 1)
        inside = holds[rows][:, cells]
        _, labels = connected_components(sparse.block_array([[None, inside], [inside.T, None]]), directed=False)
        for label in np.unique(labels[rows.size :]):
            cell, row = np.flatnonzero(labels[rows.size :] == label), np.flatnonzero(labels[: rows.size] == label)
            if cell.size > MOST_TOGETHER or not row.size:
                continue
            A, scale = inside[row][:, cell].toarray(), 1 / np.sqrt(np.maximum(squares[rows[row]], LEAST))
            U, values, V = np.linalg.svd(A * scale[:, None], full_matrices=False)
            rank = int(np.count_nonzero(values > CLEAR * values[0]))
            if rank < values.size and values[rank] > ZERO * values[0]:
                continue  # it is not clear what they determine
            takes = ((U[:, :rank] / values[:rank]) @ V[:rank]) * scale[:, None]
            apart = float(abs(A.T @ takes - V[:rank].T @ V[:rank]).sum(axis=0).max())
            if apart > CLEAR:
                continue
            own = cells[cell]
            most = (sizes[rows[row]] @ abs(takes), to_root[rows[row]] @ abs(takes))
            self.variance[own] = squares[rows[row]] @ takes**2
            self.cost[own], self.to_root[own] = (part + 2 * apart * part.max() for part in most)
            return Step(own, rows[row], sparse.csr_array(takes), holds[rows[row]])
        return None


_NOTHING = np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), np.zeros(0)


def _variances(level: Level, some: Leaves) -> Float:
    """Of the tables of some leaves that hold all others, (leaves, cells)."""
    return (
        level.variances(some.here) if some.told is None else np.broadcast_to(some.told.variance, some.told.share.shape)
    )


def _first_alike(within: sparse.csc_array) -> Index:
    """For every cell the first of which sums hold the same share: what residuals say of it follows, (cells,).

    Shares are compared by random sums of these; cells in no sum are each their own.
    """
    starts, counts = within.indptr[:-1], np.diff(within.indptr)
    used, found = counts > 0, np.arange(counts.size)
    if not used.any():
        return found
    units = np.where(used, within.data[np.minimum(starts, within.nnz - 1)], 1.0)
    random = np.random.default_rng(0).uniform(1, 2, (within.shape[0], 2))[within.indices]
    shares = np.add.reduceat(random * (within.data / np.repeat(units, counts))[:, None], starts[used])
    keys = np.column_stack([counts[used], within.indices[starts[used]], shares])
    _, first, own = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    cells = np.flatnonzero(used)
    found[cells] = cells[first[own.ravel()]]
    return found


def _rows_of(holds: sparse.csr_array) -> Index:
    """The row of every entry."""
    return np.repeat(np.arange(holds.shape[0]), np.diff(holds.indptr))


def _ranges(starts: Index, counts: Index) -> Index:
    """Numbers from each start on, so many of each, one after another."""
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if ends.size else 0)


def _weights_at(holds: sparse.csr_array, rows: Index, cells: Index) -> Float:
    """Entries at rows and cells, (k,) each."""
    return np.asarray(holds[rows, cells]).ravel()

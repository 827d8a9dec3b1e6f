"""Sums that hold some of the leaves' cells: tables of leaves and areas, equalities, what tables share, a root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from blue_solvers.verification.placed_tables import Leaves, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import add, finite
from constraint_builders.arrays import Float, Index

GAUGE, ROOT, EQUALITY = "common margin", "root", "equality"
Entries: TypeAlias = tuple[Index, Index, Float]  # numbers of sums, and of cells, and the cells' weights in these


@dataclass
class SumsOfCells:
    """Sums of one kind: a table at all places of a level, common margins of two, equalities, or those of a part's root.

    Attributes
    ----------
    kind : str
        Empty of a table.
    level : int
        Or the number of leaves, of common margins.
    width : int
        Cells of a place.
    first, last : int
        Of their numbers, place by place.
    placed : LevelTable or None
    pair : tuple of int
        Which tables of the leaves have the margin.
    """

    kind: str
    level: int
    width: int
    first: int
    last: int
    placed: LevelTable | None = None
    pair: tuple[int, int] = (0, 0)

    def among(self, rows: Index) -> slice:
        """Where these are among sums, by their numbers in order, (k,)."""
        return slice(*np.searchsorted(rows, [self.first, self.last]).tolist())


@dataclass
class Sought:
    """Cells of leaves that are sought, and what sums of these may say of them.

    Attributes
    ----------
    places : PlacedTables
    cells : dict of int to (ndarray of int, ndarray of int)
        By leaves' numbers their rows and columns.
    parts : dict of int to slice
        Where these are among all.
    given : callable
        Of a table, (G, 1) or (G, cells): finite where its cells may be used.
    of_part : bool
        Whether the root of a part may be used.
    """

    places: PlacedTables
    cells: dict[int, tuple[Index, Index]]
    parts: dict[int, slice]
    given: Callable[[LevelTable], Float]
    of_part: bool

    def sums(self) -> tuple[list[SumsOfCells], Index, Index, Float]:
        """All sums, and of every cell in one the numbers of the sum and the cell, and its weight, (entries,) each."""
        found: list[Entries] = [(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp), np.zeros(0))]
        blocks, levels = dict[tuple[str, int, int], SumsOfCells](), self.places.levels

        def sums_of(own: int, kind: str, level: int, places: int, width: int, **more: Any) -> SumsOfCells:
            """Sums of a kind and level, of so many places and cells each."""
            key, first = (kind, level, own), max((block.last for block in blocks.values()), default=0)
            if key not in blocks:
                blocks[key] = SumsOfCells(kind, level, width, first, first + places * width, **more)
            return blocks[key]

        def of_tables(number: int, held: list[LevelTable], place: Index, column: Index, cell: Index, w: Float) -> None:
            """Add the cells of tables at places, of columns there, that hold sought cells so often, (k,) each."""
            level = levels[number]
            for placed in held:
                columns = level.columns[placed.cover]
                inside = np.flatnonzero((column >= columns.start) & (column < columns.stop))
                own = placed.of_cover[column[inside] - columns.start]
                given = self.given(placed)
                usable = np.isfinite(given[place[inside], own if given.shape[1] > 1 else 0])
                inside, own = inside[usable], own[usable]
                if inside.size:
                    sums = sums_of(id(placed), "", number, level.rows, placed.table.size, placed=placed)
                    found.append((sums.first + place[inside] * sums.width + own, cell[inside], w[inside]))

        for number, (row, column) in self.cells.items():
            some = self.places.leaves[number]
            level, cell = levels[some.level], np.arange(row.size) + self.parts[number].start
            beside = [own for own in level.level_tables if some.told is not None or own is not level.own[own.cover]]
            of_tables(some.level, beside, some.rows[row], column, cell, np.ones(row.size))
            for above, reach in some.reach.items():
                part, into = reach.of_rows(row), reach.into[column] if reach.into.size else column
                counts = np.diff(part.starts)
                of_areas = part.areas, np.repeat(into, counts), np.repeat(cell, counts), part.weights
                of_tables(above, levels[above].level_tables, *of_areas)
                if self.of_part and above == 0:
                    sums = sums_of(0, ROOT, 0, 1, levels[0].width)
                    found.append((sums.first + of_areas[1], of_areas[2], of_areas[3]))
            for pair, margin in some.margins.pairs.items() if some.margins is not None else ():
                own = pair[0] * len(level.tables) + pair[1]
                sums = sums_of(own, GAUGE, number, some.rows.size, margin.size, pair=pair)
                for columns, into, sign in in_common(some, pair):
                    of_column = np.full(level.width, -1)
                    of_column[columns] = into
                    inside = np.flatnonzero(of_column[column] >= 0)
                    place = row[inside] * margin.size + of_column[column[inside]]
                    found.append((sums.first + place, cell[inside], np.full(inside.size, float(sign))))
        if self.places.known is not None:
            cuts, rows = self.places.cuts, self.places.known.equal
            among = [cuts[i][0].start + np.ravel_multi_index(at, cuts[i][1]) for i, at in self.cells.items()]
            held = rows[:, np.concatenate(among)].tocoo()
            if held.nnz:
                sums = sums_of(0, EQUALITY, 0, rows.shape[0], 1)
                found.append((sums.first + held.coords[0], held.coords[1], held.data))
        rows, cells, weights = (np.concatenate(own) for own in zip(*found, strict=True))
        used = weights != 0
        return list(blocks.values()), rows[used], cells[used], weights[used]

    def besides(self, kinds: Sequence[SumsOfCells], rows: Index) -> Float:
        """Variances of sums by their numbers, with those of the measured cells in them, (sums,)."""
        levels, found = self.places.levels, np.zeros(rows.size)
        used = {sums.level for sums in kinds if sums.kind not in (GAUGE, EQUALITY)}
        squares = {number: levels[number].room() for number in used}
        of_leaves = dict[int, Float]()
        for number, some in enumerate(self.places.leaves):
            own = finite(variances_of(levels[some.level], some))
            own = np.where(some.empty, 0.0, own) if some.empty.size else own
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
        for sums in kinds:
            cut = sums.among(rows)
            place, cell = np.divmod(rows[cut] - sums.first, sums.width)
            if sums.placed is not None:
                level, variance = levels[sums.level], sums.placed.variance
                beside = level.of(sums.placed, vectors[sums.level], level.rows)[0]
                found[cut] = beside[place, cell] + variance[place, cell if variance.shape[1] > 1 else 0]
            elif sums.kind == ROOT:
                found[cut] = squares[0][0][place, cell]
            elif sums.kind == GAUGE:
                own = of_leaves[sums.level]
                beside = np.zeros((len(own), sums.width))
                for columns, into, _ in in_common(self.places.leaves[sums.level], sums.pair):
                    np.add.at(beside.T, into, own[:, columns].T)
                found[cut] = beside[place, cell]
            else:
                of_cells = zip(of_leaves.values(), self.places.cuts, strict=True)
                own = np.concatenate([np.broadcast_to(variance, shape).ravel() for variance, (_, shape) in of_cells])
                found[cut] = (self.places.known.equal.power(2) @ own)[place]
        return found


def variances_of(level: Level, some: Leaves) -> Float:
    """Of the tables of some leaves that hold all others, (leaves, cells)."""
    if some.told is None:
        return level.variances(some.here)
    return np.broadcast_to(some.told.variance, some.told.share.shape)


def in_common(some: Leaves, pair: tuple[int, int]) -> list[tuple[Index, Index, int]]:
    """Of two tables of some leaves their columns, the cells of their common margin, and 1 or -1."""
    margins, found = some.margins, list[tuple[Index, Index, int]]()
    if margins is not None:
        for k, into, sign in zip(pair, margins.pairs[pair].into, (1, -1), strict=True):
            free = margins.free[margins.columns[k]]
            found.append((np.flatnonzero(free) + margins.columns[k].start, into[free], sign))
    return found

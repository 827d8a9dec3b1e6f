"""Tables of places, as a proof by sums takes them: leaves whose tables hold all others, and the areas that they are in.

A spine is the case where areas nest; a part of one is a spine whose leaves may stand for branches that were cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.compensated_sums import Lists, walk
from blue_solvers.verification.reaches import NO_MAP, NO_WEIGHTS, Cells, Reach, run_of, side_by_side
from blue_solvers.verification.weighed_noise import EXTENDED, reciprocal
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index, Long, as_slice, read_only
from constraint_builders.description.table import Table

TableAtLevel = tuple[int, Table]
NOTHING, NONE_EMPTY = np.zeros((0, 0)), np.zeros((0, 0), dtype=bool)


@dataclass(frozen=True)
class Unread:
    """A table that is read when rows of it are asked for, each time anew."""

    read: Callable[[], Float]

    def __getitem__(self, rows: slice | Index) -> Float:
        """Some rows, (rows, cells)."""
        return self.read()[rows]


@dataclass(frozen=True)
class Figures:
    """What was measured and what is claimed.

    Attributes
    ----------
    tables : mapping of str to (x, y)
        By the keys of tables what is claimed, NaN where nothing is, and what was measured, (G, cells) each, or what
        gives rows of it when they are asked for.
    rho, left : ndarray, (n,), optional
        The weighted residuals of all observed cells, where they are not (y - x) / variance, and where what is left of
        them goes.
    pulled : Cells, (2, n), optional
        What of these is taken by what is known exactly.
    slack : ndarray, (N,), optional
        By how much what that says of the leaves' cells may be off.
    """

    tables: Mapping[str, tuple[Float | Unread, Float | Unread]]
    rho: Float | None = None
    left: Float | None = None
    pulled: Cells | None = None
    slack: Float | None = None

    def of(self, placed: LevelTable) -> tuple[Float, Float]:
        """What is claimed and was measured of a table in all places."""
        x, y = self.tables[placed.key]  # both read-only, as variances are, so that kernels are compiled once
        return read_only(np.ascontiguousarray(x[:], dtype=float)), read_only(np.ascontiguousarray(y[:], dtype=float))

    @staticmethod
    def part(vector: NDArray[Any] | None, placed: LevelTable) -> NDArray[Any] | None:
        """A table's part of a vector, (..., n), as a view, (..., G, cells); None where it has none."""
        if vector is None or not 0 < placed.place.stop <= vector.shape[-1]:
            return None
        return vector[..., placed.place].reshape(*vector.shape[:-1], -1, placed.table.size)


def taken_by(cells: sparse.csr_array, multipliers: Float) -> tuple[Cells, Float]:
    """What multipliers, (k,), take of every cell, (2, n), and by how much that may be off, (n,), of `by_cells`."""
    taken, adds = cells @ multipliers, 4 + int(np.diff(cells.indptr).max(initial=0))
    high = taken.astype(float)
    off = (abs(cells) @ abs(multipliers)).astype(float)
    return np.stack([high, (taken - high).astype(float)]), adds * EXTENDED * off


def by_cells(rows: sparse.csr_array) -> sparse.csr_array:
    """Rows, (k, n), cell by cell, (n, k), in the arithmetic in which multiples of them are taken."""
    return sparse.csr_array(rows.T, dtype=np.longdouble)


def added(one: Long, two: Long) -> Long:
    """Shares of combinations, (k, 3), or (1, 3) of none, put together."""
    found: Long = one + two
    found[:, 1] += 2 * EXTENDED * found[:, 2]
    return found


@dataclass
class LevelTable:
    """A table of a level of places.

    Attributes
    ----------
    key : str
        Tells it from all others; empty of one of which nothing is said.
    level : int
    table : Table
    variance : ndarray, (G, 1) or (G, cells)
        0 exact, ``inf`` not measured.
    least : ndarray
        Of the same shape as `variance`, which it is by default: a diagonal below the covariance.
    place : slice
        Of its figures among all of a problem.
    cover : int
        Which of the tables that hold all others it is summed from.
    through : LevelTable or None
        A smaller one that it is summed from, which is summed from the same.
    into : ndarray of int
        For every cell of that table, or of `through`, the cell that it is summed to; empty where they are the same.
    """

    key: str
    level: int
    table: Table
    variance: Float
    least: Float = field(default_factory=lambda: NOTHING)
    place: slice = field(default_factory=lambda: slice(0))
    cover: int = 0
    through: LevelTable | None = None
    into: Index = field(default_factory=lambda: NO_MAP)

    def __post_init__(self) -> None:
        least = self.least if self.least.size else self.variance
        self.variance, self.least = (read_only(np.ascontiguousarray(own)) for own in (self.variance, least))

    @classmethod
    def unmeasured(cls, level: int, table: Table, rows: int, cover: int = 0) -> LevelTable:
        """Of which nothing is said."""
        return cls("", level, table, np.full((rows, 1), np.inf), cover=cover)

    @cached_property
    def of_cover(self) -> Index:
        """For every cell of the table that holds it its own."""
        if self.through is None:
            return self.into if self.into.size else np.arange(self.table.size)
        return self.into[self.through.of_cover] if self.into.size else self.through.of_cover

    @cached_property
    def unjudged(self) -> Float:
        """What is known of it without its figures, of leaves that count once: as `CertificateSums` have it, (4,)."""
        return np.array([0.0, -1.0, reciprocal(self.least).max(initial=0.0), not self.variance.all()])


@dataclass
class Level:
    """Places of a level, and their tables.

    For some of its places the cells of all tables lie in one vector: those that hold all others, place by place, and
    then every other table from the finest on.

    Attributes
    ----------
    name : str
    rows : int
    tables : tuple of Table
        Those that hold all others of the level.
    level_tables : list of LevelTable
    places : ndarrays, (rows,) each, or (1,) where all are alike
        The largest weight of a leaf in every place; 1 for those that may be all of the one above, since they have no
        siblings.
    squares : float
        The most that squared weights of a leaf come to.
    above : dict of int to Reach
        By level the places that those are in to which sums of the leaves are handed on; see `Leaves.above`.
    own, helpers : list of LevelTable
        Those that hold all others, and those that others are summed from, of which nothing is said.
    """

    name: str
    number: int
    rows: int
    tables: tuple[Table, ...]
    level_tables: list[LevelTable]
    places: tuple[Float, Float]
    squares: float
    above: dict[int, Reach] = field(default_factory=dict)
    helpers: list[LevelTable] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.level_tables.sort(key=lambda placed: placed.table.size)
        by_name = {placed.table.name: placed for placed in reversed(self.level_tables)}
        self.own = [
            by_name.get(table.name) or LevelTable.unmeasured(self.number, table, self.rows, cover)
            for cover, table in enumerate(self.tables)
        ]
        ends = [0, *accumulate(table.size for table in self.tables)]
        self.columns, self.width = [slice(a, b) for a, b in pairwise(ends)], ends[-1]  # of its tables in a row
        both = (*self.level_tables, *self.helpers)
        self.others = sorted((own for own in both if own is not self.own[own.cover]), key=lambda own: own.table.size)
        self._starts, self._cells, steps, first = dict[int, int](), self.width, list[list[list[int]]](), 0
        maps = list[Index]()
        for placed in reversed(self.others):
            columns, size, own = self.columns[placed.cover], placed.table.size, self._cells
            source, start, wide, count = 0, columns.start, self.width, columns.stop - columns.start
            if placed.through is not None:
                source, start = self._starts[id(placed.through)], 0
                wide = count = placed.through.table.size
            run = run_of(placed.into)
            of_rows = [source, 0, 1, 0, own, 0, 0, 0]
            steps.append([of_rows, [start, wide, 0, count, 0, size, -run, first if placed.into.size else -1]])
            maps.append(placed.into[::run])
            self._starts[id(placed)], self._cells, first = own, own + size, first + maps[-1].size
        order = sorted(range(len(steps)), key=lambda i: steps[i][0][0] + steps[i][1][0])  # those of one table together
        self._by_row, self._fixed = np.array(steps, dtype=np.intp).reshape(-1, 2, 8)[order].transpose(1, 0, 2)
        self._into = np.concatenate([NO_MAP, *maps])

    @cached_property
    def exact(self) -> list[LevelTable]:
        """Those of its tables that are known exactly in some place."""
        return [placed for placed in self.level_tables if not placed.variance.all()]

    def _lists(self, rows: int, back: bool = False) -> Lists:
        """How the vector of so many places is summed from the tables that hold all others, or spread `back`."""
        steps = self._by_row * rows + self._fixed
        return steps[::-1].copy() if back else steps, NO_MAP, NO_MAP, NO_WEIGHTS, self._into

    def vector(self, rows: int) -> Cells:
        """Zeros for all cells of so many places, and for what these lose by rounding."""
        return np.zeros((2, rows * self._cells))

    def held(self, vector: Cells, rows: int) -> Cells:
        """The tables that hold all others, (2, rows, cells), as a view."""
        return vector[:, : rows * self.width].reshape(len(vector), rows, self.width)

    def sum_up(self, vector: Cells, rows: int) -> None:
        """Every other table in a vector, (2, rows * cells), as sums of those that hold them."""
        if self.others:
            walk(vector, self._lists(rows), vector, True)

    def spread_out(self, vector: Cells, rows: int) -> None:
        """Add what is said of tables, in (2, rows * cells), to the cells of those that hold them."""
        if self.others:
            walk(vector, self._lists(rows, back=True), vector, False)

    def of(self, placed: LevelTable, vector: Cells, rows: int) -> Cells:
        """A table of the vector, (2, rows, cells), as a view."""
        start, size = self._starts.get(id(placed)), placed.table.size
        if start is None:
            return self.held(vector, rows)[:, :, self.columns[placed.cover]]
        return vector[:, start * rows : (start + size) * rows].reshape(len(vector), rows, size)

    def variances(self, rows: slice | Index) -> Float:
        """Of the tables that hold all others, (rows, cells)."""
        return side_by_side([placed.variance[rows] for placed in self.own], self.columns)

    def room(self, rows: int | None = None) -> Cells:
        """Zeros for cells of some places, of all by default, and for what these lose by rounding."""
        return np.zeros((2, self.rows if rows is None else rows, self.width))


@dataclass
class ChildSummary:
    """What parts tell of their roots, one row each, in the cells of their finest table.

    Attributes
    ----------
    share : ndarray, (rows, cells)
        What the residuals of all leaves have in common.
    variance : ndarray, (rows, 1) or (rows, cells)
        Of all leaves together: what it costs to have something back there.
    total : ndarray of longdouble or float, (rows, cells)
        Sums over the leaves; NaN where these are not known.
    error : ndarray, (rows,)
        How far rounding may have moved them.
    known : list of str
        Of one part the tables that are known exactly in all leaves.
    slack : ndarray, (rows,)
        What more may be said of cells of infinite variance, by rounding.
    """

    share: Float
    variance: Float
    total: NDArray[np.float64 | np.longdouble]
    error: Float
    known: list[str] = field(default_factory=list)
    slack: Float = field(default_factory=lambda: np.zeros(1))


@dataclass
class Leaves:
    """Some leaves of one level, whose tables hold all others.

    Attributes
    ----------
    level : int
    rows : ndarray of int
        Among the places of that level.
    above : dict of int to Reach
        By level the areas that take their sums: all that they are in, but where areas nest, and these hand them on.
    areas : callable
        Gives all areas that they are in, but for themselves, by level.
    margins : CommonMargins or None
        Where several tables hold all others.
    empty : ndarray of bool, (leaves, cells), or (0, 0)
        Cells that are structural zeros.
    told : ChildSummary or None
        Of roots of branches that were cut off.
    """

    level: int
    rows: Index
    above: dict[int, Reach]
    areas: Callable[[], dict[int, Reach]]
    margins: CommonMargins | None = None
    empty: Flags = field(default_factory=lambda: NONE_EMPTY)
    told: ChildSummary | None = None

    @cached_property
    def here(self) -> slice | Index:
        """The rows, as a slice where they follow one another."""
        return as_slice(self.rows)

    @cached_property
    def reach(self) -> dict[int, Reach]:
        """By level all areas that they are in, but for themselves."""
        return self.areas()


@dataclass
class PlacedTables:
    """Levels, the coarsest first, and all leaves; `nest` says whether areas are a tree.

    Proofs keep in `known` what is known exactly, of a problem, and in `kept` what is unmeasured.
    """

    schema: Schema
    levels: list[Level]
    leaves: list[Leaves]
    nest: bool
    known: Any = None
    kept: dict[bool, Any] = field(default_factory=dict)

    @cached_property
    def cuts(self) -> list[tuple[slice, tuple[int, int]]]:
        """Of all groups of leaves where their cells are, one after another, and their shape."""
        shapes = [(some.rows.size, self.levels[some.level].width) for some in self.leaves]
        ends = np.cumsum([0, *(rows * width for rows, width in shapes)]).tolist()
        return [(slice(a, b), shape) for (a, b), shape in zip(pairwise(ends), shapes, strict=True)]

    @cached_property
    def inner(self) -> list[Index]:
        """By level the places that are no leaves."""
        inner = [np.ones(level.rows, dtype=bool) for level in self.levels]
        for some in self.leaves:
            inner[some.level][some.rows] = False
        return [np.flatnonzero(own) for own in inner]

    @cached_property
    def measured(self) -> list[list[LevelTable]]:
        """By level the tables that were measured in places that are no leaves."""
        return [
            [placed for placed in level.level_tables if np.isfinite(placed.variance[rows]).any()]
            for level, rows in zip(self.levels, self.inner, strict=True)
        ]

    @cached_property
    def here(self) -> list[slice | Index]:
        """By level these places, as a slice where they follow one another."""
        return [as_slice(own) for own in self.inner]

    @property
    def level_tables(self) -> Iterator[LevelTable]:
        """Of all levels."""
        return (placed for level in self.levels for placed in level.level_tables)

    @property
    def tables(self) -> dict[str, TableAtLevel]:
        """By the keys of level tables."""
        return {placed.key: (placed.level, placed.table) for placed in self.level_tables}

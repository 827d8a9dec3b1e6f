"""Tables of places, as a proof by sums takes them: leaves whose tables hold all others, and the areas that they are in.

A spine is the case where areas nest; a part of one is a spine whose leaves may stand for branches that were cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.common_margins import CommonMargins
from blue_solvers.verification.compensated_sums import NO_MAP, Cells, Reach, plus, spread, summed
from blue_solvers.verification.weighed_noise import ROUNDING
from constraint_builders import Schema
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table

LevelTable = tuple[int, Table]
EXTENDED = 2 * float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True)
class Unread:
    """A table that is read when rows of it are asked for, each time anew."""

    read: Callable[[], Float]

    def __getitem__(self, rows: slice | Index) -> Float:
        return self.read()[rows]


@dataclass(frozen=True)
class TiedCells:
    """The cells of a table that combinations speak of.

    Attributes
    ----------
    weights : coo_array, (k, geounits * cells)
    multipliers : ndarray, (k,)
        Of the combinations.
    """

    weights: sparse.coo_array
    multipliers: Float

    @classmethod
    def of(cls, share: sparse.csr_array, multipliers: Float | None = None) -> TiedCells | None:
        """From the combinations' columns of a table; None where they say nothing of it."""
        multipliers = np.zeros(share.shape[0]) if multipliers is None else multipliers
        return cls(share.tocoo(), multipliers) if share.nnz else None

    def among(self, here: Index, cells: int) -> sparse.csr_array:
        """Weights of the cells of some geounits, (k, geounits * cells)."""
        row, column = self.weights.coords
        own, cell = np.divmod(column, cells)
        order = np.argsort(here)
        place = order[np.minimum(np.searchsorted(here, own, sorter=order), here.size - 1)]
        chosen = np.flatnonzero(here[place] == own)
        entries = self.weights.data[chosen], (row[chosen], (place * cells + cell)[chosen])
        return sparse.csr_array(entries, shape=(self.multipliers.size, here.size * cells))

    def pull(self, q: Float, variance: Float, here: Index) -> float:
        """Take the multipliers off weighted residuals of some geounits; gives the squared rounding of that, weighed."""
        weights = self.among(here, q.shape[1])
        pulled = (weights.T @ self.multipliers).reshape(q.shape)
        sizes = (abs(weights).T @ abs(self.multipliers)).reshape(q.shape)
        noise = np.where(np.isfinite(variance), variance, 0.0)  # the others were not measured, or are known exactly
        q -= np.where(noise > 0, pulled, 0.0)
        rounding = ROUNDING * (self.multipliers.size + 4) * np.where(sizes > 0, sizes + abs(q), 0.0)
        return float(np.sum(rounding**2 * noise))

    def sums(self, here: Index, x: Float, off: Float | None) -> list[list[float]]:
        """Combinations of the figures of some geounits: high and low half, what they may be off by, and their size."""
        weights = self.among(here, x.shape[1]).astype(np.longdouble)
        values, sizes = weights @ x.ravel(), abs(weights) @ abs(x).ravel()
        slack = (weights.nnz + 4) * EXTENDED * sizes + (0.0 if off is None else abs(weights) @ off.ravel())
        each = zip(values, slack, sizes, strict=True)
        return [[*_halves(value), float(own), float(size)] for value, own, size in each]


def added(one: list[list[float]], two: list[list[float]]) -> list[list[float]]:
    """Shares of combinations, put together."""
    if not one or not two:
        return one or two
    found = []
    for own, other in zip(one, two, strict=True):
        value = sum((np.longdouble(half) for half in (*own[:2], *other[:2])), np.longdouble(0))
        size = own[3] + other[3]
        found.append([*_halves(value), own[2] + other[2] + EXTENDED * size, size])
    return found


def _halves(value: np.longdouble) -> tuple[float, float]:
    high = float(value)
    return high, float(value - np.longdouble(high))


@dataclass
class Sheet:
    """A table of a level of places.

    Attributes
    ----------
    key : str
        Tells it from all others.
    level : int
    table : Table
    variance : ndarray, (G, 1) or (G, cells)
        0 exact, ``inf`` not measured.
    y, x : ndarray (G, cells), or what gives its rows when they are asked for, or None
        What was measured, and what is claimed; None where nothing was.
    least : ndarray, optional
        Of the same shape as `variance`: a diagonal below the covariance, if that is not diagonal.
    rho, left : ndarray (G, cells), optional
        The weighted residuals, where they are not (y - x) / variance, and where what is left of them goes.
    tied : TiedCells, optional
        What combinations of cells that are known exactly say of it.
    place : slice
        Of its figures among all of a problem.
    holder : int
        Which of the tables that hold all others it is summed from.
    through : Sheet or None
        A smaller one that it is summed from, which is summed from the same; its `key` comes later.
    into : ndarray of int
        For every cell of that table, or of `through`, the cell that it is summed to; empty where they are the same.
    """

    key: str
    level: int
    table: Table
    variance: Float
    y: Float | Unread | None = None
    x: Float | Unread | None = None
    least: Float | None = None
    rho: Float | None = None
    left: Float | None = None
    tied: TiedCells | None = None
    place: slice = field(default_factory=lambda: slice(0))
    holder: int = 0
    through: Sheet | None = None
    into: Index = field(default_factory=lambda: NO_MAP)

    @property
    def path(self) -> list[Sheet]:
        """Itself, and all that it is summed from but the table that holds it."""
        return [self, *(() if self.through is None else self.through.path)]

    @property
    def of_holder(self) -> Index:
        """For every cell of the table that holds it its own."""
        if self.through is None:
            return self.into if self.into.size else np.arange(self.table.size)
        return self.into[self.through.of_holder] if self.into.size else self.through.of_holder

    def weighted(self, rows: Index, x: Float | None, is_first: bool) -> tuple[Float | None, float]:
        """(y - x) / variance of places, None where nothing was measured; and, the first time, its squared rounding."""
        if self.rho is not None:
            return self.rho[rows], 0.0
        variance = self.variance[rows]
        measured = np.isfinite(variance) & (variance > 0)
        if self.y is None or x is None or not measured.any():
            return None, 0.0
        q = self.y[rows] - x
        if not measured.all():
            q = np.where(measured, q, 0.0)
        weighted = q * np.divide(1.0, variance, out=np.zeros_like(variance), where=measured)
        rounding = float(np.einsum("ij,ij->", q, weighted)) * (6 * ROUNDING) ** 2 if is_first else 0.0
        pulled = 0.0 if self.tied is None else self.tied.pull(weighted, variance, rows)
        return weighted, rounding + (pulled if is_first else 0.0)


@dataclass
class Level:
    """PlacedTables of a level, and their tables, the coarsest first.

    Attributes
    ----------
    name : str
    rows : int
    tables : tuple of Table
        Those that hold all others of the level.
    sheets : list of Sheet
    alone : ndarray of bool, (rows,)
        PlacedTables that may be all of the one above: they have no siblings.
    weight, squares : ndarray, (rows,), float
        The largest weight of a leaf in every place, and the most that squared weights of a leaf come to.
    above : dict of int to Reach
        By level the places that those are in to which sums of the leaves are handed on; see `Leaves.above`.
    """

    name: str
    rows: int
    tables: tuple[Table, ...]
    sheets: list[Sheet]
    alone: Flags
    weight: Float
    squares: float = 1.0
    above: dict[int, Reach] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sheets.sort(key=lambda sheet: sheet.table.size)

    @cached_property
    def columns(self) -> list[slice]:
        """Where the cells of its tables are in a row."""
        return [slice(a, b) for a, b in pairwise(np.cumsum([0, *(table.size for table in self.tables)]).tolist())]

    @property
    def width(self) -> int:
        """Cells of all its tables."""
        return sum(table.size for table in self.tables)

    @cached_property
    def own(self) -> list[Sheet | None]:
        """Of each of its tables the sheet, if it has one that was measured or claimed."""
        by_name = {sheet.table.name: sheet for sheet in reversed(self.sheets)}
        return [by_name.get(table.name) for table in self.tables]

    @cached_property
    def others(self) -> list[Sheet]:
        """All sheets but those."""
        return [sheet for sheet in self.sheets if sheet is not self.own[sheet.holder]]

    def variances(self, rows: Index) -> Float:
        """Of the tables that hold all others, (rows, cells)."""
        found = np.full((rows.size, self.width), np.inf)
        for columns, sheet in zip(self.columns, self.own, strict=True):
            if sheet is not None:
                found[:, columns] = sheet.variance[rows]
        return found

    def room(self, rows: int | None = None) -> Cells:
        """Zeros for cells of some places, of all by default, and for what these lose by rounding."""
        return np.zeros((2, self.rows if rows is None else rows, self.width))

    def spread(self, sheets: Sequence[Sheet], amounts: dict[str, Cells], said: Cells) -> None:
        """Add what is said of tables, by their keys, to the cells of those that hold them; it is used up."""
        for sheet in sheets:
            own = amounts.pop(sheet.key, None)
            if own is None:
                continue
            reach, through, columns = Reach.itself(own.shape[1], sheet.into), sheet.through, self.columns[sheet.holder]
            if through is None:
                held = np.ascontiguousarray(said[:, :, columns])
            else:
                held = np.zeros((2, own.shape[1], through.table.size))
                for part in amounts.get(through.key, ()):
                    plus(held, part)
            spread(own, reach, held)
            if through is None:
                said[:, :, columns] = held
            else:
                amounts[through.key] = held

    def sums_of(self, sheet: Sheet, cells: Cells, known: dict[str, Cells]) -> Cells:
        """A table as sums of the leaves' cells; those of others that it is summed from are `known` once worked out."""
        if sheet.key not in known:
            held = cells[:, :, self.columns[sheet.holder]]
            held = held if sheet.through is None else self.sums_of(sheet.through, cells, known)
            known[sheet.key] = summed(sheet.into, sheet.table.size, held)
        return known[sheet.key]

    def put_back(self, sheet: Sheet, own: Float, said: Cells, variance: Float, known: Float | None = None) -> Float:
        """Move to a table, whose variances are `own`, the share that leaves least: gives it, (rows, cells).

        `known` is what was moved there before.
        """
        noise = finite(variance)
        own = np.broadcast_to(own, (len(variance), sheet.table.size))
        weight, total = (self.sums_of(sheet, cells[None], {})[0] for cells in (noise, noise * said[0]))
        usable = np.isfinite(own) & (weight > 0)
        if known is not None:
            total = total - np.where(usable, own, 0.0) * known
        share = np.zeros((2, *own.shape))
        np.divide(total, weight + own, out=share[0], where=usable)
        if np.isinf(variance).any():
            columns, into = self.columns[sheet.holder], sheet.of_holder
            row, cell = np.nonzero(np.isinf(variance[:, columns]) & np.isfinite(own[:, into]))
            share[:, row, into[cell]] = said[:, row, columns.start + cell]  # nothing else takes it there
        self.spread(sheet.path, {sheet.key: -share}, said)
        return share[0]


def finite(variance: Float) -> Float:
    """0 where nothing was measured."""
    measured = np.isfinite(variance)
    return variance if measured.all() else np.where(measured, variance, 0.0)


@dataclass
class Below:
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
    known : ndarray of str, (rows, names)
        The tables that are known exactly in all leaves.
    """

    share: Float
    variance: Float
    total: NDArray[np.float64 | np.longdouble]
    error: Float
    known: NDArray[np.str_] = field(default_factory=lambda: np.zeros((1, 0), dtype="U1"))

    @property
    def names(self) -> list[str]:
        """Of tables that are known exactly in some of them."""
        return sorted({*self.known.ravel().tolist()} - {""})

    @classmethod
    def of_all(cls, below: Sequence[Below]) -> Below:
        """Of several roots."""
        most = max(own.known.size for own in below)
        return cls(
            np.concatenate([own.share for own in below]),
            np.concatenate([np.broadcast_to(own.variance, own.share.shape) for own in below]),
            np.concatenate([own.total.astype(np.longdouble) for own in below]),
            np.concatenate([own.error for own in below]),
            np.array([[*own.known.ravel().tolist(), *[""] * (most - own.known.size)] for own in below], dtype=str),
        )


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
    empty : ndarray of bool, (leaves, cells), or None
        Cells that are known to be empty.
    told : Below or None
        Of roots of branches that were cut off.
    """

    level: int
    rows: Index
    above: dict[int, Reach]
    areas: Callable[[], dict[int, Reach]]
    margins: CommonMargins | None = None
    empty: Flags | None = None
    told: Below | None = None

    @cached_property
    def reach(self) -> dict[int, Reach]:
        """By level all areas that they are in, but for themselves."""
        return self.areas()


@dataclass
class PlacedTables:
    """Levels, the coarsest first, and all leaves; `nest` says whether areas are a tree."""

    schema: Schema
    levels: list[Level]
    leaves: list[Leaves]
    nest: bool

    @property
    def sheets(self) -> Iterator[Sheet]:
        """Of all levels."""
        return (sheet for level in self.levels for sheet in level.sheets)

    @property
    def tables(self) -> dict[str, LevelTable]:
        """By the keys of sheets."""
        return {sheet.key: (sheet.level, sheet.table) for sheet in self.sheets}

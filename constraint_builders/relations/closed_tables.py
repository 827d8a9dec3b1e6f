"""Tables of any shapes with all that are coarser, one after the other, and the steps between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from constraint_builders.arrays import Index, Integers

MOST_BITS = 62
KEPT = 2  # families, which all estimates of a problem share


class TooManyTablesError(Exception):
    """More cells, or more tables, than were allowed."""


@dataclass(frozen=True)
class ClosedTables:
    """A family of tables that has with each also those that keep fewer variables.

    Attributes
    ----------
    shape : tuple of int
        Levels of the axes.
    offsets : ndarray of int, (tables + 1,)
        Where the tables lie: those that were asked for, in their order, then all others.
    variables : ndarray of int, (tables,)
        How many axes each keeps.
    up : ndarray of int, (steps, 6)
        Table, table without an axis, the axis, cells before it, levels, cells after it; tables of many variables first.
    place_of : ndarray of int, (asked for,)
        Which of the family a table that was asked for is.
    """

    shape: tuple[int, ...]
    offsets: Integers
    variables: Integers
    up: Integers
    place_of: Index

    @classmethod
    @lru_cache(KEPT)
    def of(cls, shape: tuple[int, ...], tables: tuple[tuple[int, ...], ...], most_cells: float) -> ClosedTables:
        """The family of some tables, each its axes in increasing order.

        Raises
        ------
        TooManyTablesError
            If it has more than so many cells, or so many variables that sets of them have no number.
        """
        levels = np.array([*shape, 1], dtype=np.intp)  # the last stands for no axis
        lengths = np.fromiter(map(len, tables), dtype=np.intp, count=len(tables))
        rows = np.full((len(tables), lengths.max(initial=0)), len(shape), dtype=np.intp)
        rows[np.arange(rows.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(tables), dtype=np.intp)
        classes: list[_Class] = []
        coarser, cells, count = rows[:0], 0.0, 0
        for size in range(lengths.max(initial=0), -1, -1):
            asked = np.flatnonzero(lengths == size)
            together = np.concatenate([rows[asked], coarser])
            _, first, place = np.unique(_codes(together, len(shape)), return_index=True, return_inverse=True)
            kept = together[first]
            cells += float(levels[kept].prod(axis=1, dtype=float).sum())
            if cells > most_cells or kept.size > most_cells:
                raise TooManyTablesError
            place += count
            row, column = np.nonzero(kept < len(shape))
            classes.append(_Class(kept, row + count, column, asked, place[: asked.size], place[asked.size :]))
            coarser = kept[row]
            coarser[np.arange(row.size), column] = len(shape)
            coarser.sort(axis=1)
            count += len(kept)
        return cls._numbered(levels, len(tables), classes)

    @classmethod
    def _numbered(cls, levels: Integers, count: int, classes: list[_Class]) -> ClosedTables:
        """Those that were asked for come first, in their order; `levels`, (axes + 1,), ends with that of no axis."""
        kept = np.concatenate([own.kept for own in classes])
        place_of = np.empty(count, dtype=np.intp)
        rank = np.arange(count, count + len(kept))
        for own in classes:
            place_of[own.asked] = own.places
            np.minimum.at(rank, own.places, own.asked)
        order = np.argsort(rank)
        number = np.empty_like(order)
        number[order] = np.arange(order.size)
        row, column = (np.concatenate([getattr(own, name) for own in classes]) for name in ("row", "column"))
        without = np.concatenate([own.from_finer for own in classes])
        lengths = np.concatenate([np.ones((len(kept), 1), dtype=np.intp), levels[kept]], axis=1)
        before = np.cumprod(lengths, axis=1)
        sizes, up_to = before[:, -1], before[row, column]
        axis = kept[row, column]
        after = sizes[row] // (up_to * levels[axis])
        up = np.stack([number[row], number[without], axis, up_to, levels[axis], after], axis=1).astype(np.intp)
        offsets = np.concatenate([[0], np.cumsum(sizes[order])])
        variables = (kept < levels.size - 1).sum(axis=1)
        return cls(tuple(levels[:-1].tolist()), offsets, variables[order], up, number[place_of])

    @property
    def cells(self) -> int:
        """Of all tables."""
        return int(self.offsets[-1])

    @cached_property
    def sizes(self) -> Integers:
        """Cells of every table, (tables,)."""
        return np.diff(self.offsets)

    @cached_property
    def numbers(self) -> dict[tuple[int, ...], int]:
        """The number of every table, by its axes."""
        keeps = np.zeros((self.sizes.size, len(self.shape)), dtype=bool)
        keeps[self.up[:, 0], self.up[:, 2]] = True
        axes, ends = np.nonzero(keeps)[1].tolist(), np.cumsum(self.variables).tolist()
        return {tuple(axes[start:end]): number for number, (start, end) in enumerate(pairwise([0, *ends]))}

    @cached_property
    def finest_first(self) -> Integers:
        """Rows of `up` by cells, (steps, 5): where the table lies, where without the axis; before, levels, after."""
        return self._steps(self.up)

    @cached_property
    def coarsest_first(self) -> Integers:
        """Likewise, all of a table after all of those that keep fewer axes."""
        return self._steps(self.upwards)

    @cached_property
    def upwards(self) -> Integers:
        """Rows of `up`, tables of few variables first."""
        return self.up[np.argsort(self.variables[self.up[:, 0]], kind="stable")]

    def _steps(self, rows: Integers) -> Integers:
        """Rows (steps, 5) of where tables lie, with and without the axis, and cells, of rows (steps, 6) of `up`."""
        table, without, _, *sizes = rows.T
        return np.ascontiguousarray(np.stack([self.offsets[table], self.offsets[without], *sizes], axis=1))

    @cached_property
    def by_axis(self) -> list[tuple[Integers, Integers, int]]:
        """The tables that keep an axis, themselves without it, and its levels; axis by axis."""
        by_axis = self.up[np.argsort(self.up[:, 2], kind="stable")]
        starts = np.searchsorted(by_axis[:, 2], np.arange(len(self.shape) + 1))
        return [
            (by_axis[start:stop, 0], by_axis[start:stop, 1], levels)
            for levels, (start, stop) in zip(self.shape, pairwise(starts.tolist()), strict=True)
        ]


class _Class(NamedTuple):
    """The tables of one number of variables."""

    kept: Index  # (tables, most axes)
    row: Index  # the tables of all steps
    column: Index  # and their axes' places
    asked: Index  # which of those that were asked for are among the tables,
    places: Index  # and where
    from_finer: Index  # which of the tables each step from those of one variable more leads to


def _codes(rows: Index, count: int) -> Integers:
    """A number for every set of axes, (tables,), of rows (tables, most axes)."""
    if count <= MOST_BITS:
        return np.where(rows < count, np.int64(1) << rows.astype(np.int64), 0).sum(axis=1)
    if rows.shape[1] * np.log2(count + 1) > MOST_BITS:
        raise TooManyTablesError
    return rows @ np.int64(count + 1) ** np.arange(rows.shape[1])

"""Tables of any shapes with all that are coarser, one after the other, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from constraint_builders.arrays import Flags, Index, Integers

MOST_BITS = 62
NOTHING, ALWAYS = -1, -2  # in place of an axis


class TooManyTablesError(Exception):
    """More cells, or more tables, than were allowed."""


@dataclass(frozen=True)
class ClosedTables:
    """A family of tables that has with each also those that keep fewer variables, or groups of one's levels.

    Attributes
    ----------
    shape : tuple of int
        Levels of the axes.
    offsets : ndarray of int, (tables + 1,)
        Where the tables lie: those that were asked for, in their order, then all others.
    kept : ndarray of int, (tables, most axes)
        Their axes in increasing order; then ``len(shape)``.
    variables : ndarray of int, (tables,)
        How many of them are summed out, or to groups, on the way to the coarsest table.
    up : ndarray of int, (steps, 6)
        Table, table without an axis, the axis, cells before it, levels, cells after it; tables of many variables first.
    place_of : ndarray of int, (asked for,)
        Which of the family a table that was asked for is.
    """

    shape: tuple[int, ...]
    offsets: Integers
    kept: Index
    variables: Integers
    up: Integers
    place_of: Index

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        tables: Sequence[tuple[int, ...]],
        most_cells: float,
        instead: Sequence[int] | None = None,
    ) -> ClosedTables:
        """The family of some tables, each its axes in increasing order.

        Parameters
        ----------
        shape : sequence of int
        tables : sequence of tuple of int
        most_cells : float
        instead : sequence of int, optional
            For every axis the one, of its groups, that takes its place in coarser tables: `NOTHING`, as without it, or
            `ALWAYS` the axis itself. It must stand beside it.

        Raises
        ------
        TooManyTablesError
            If it has more than so many cells, or so many variables that sets of them have no number.
        """
        axes = _Axes.of(shape, instead)
        lengths = np.fromiter(map(len, tables), dtype=np.intp, count=len(tables))
        rows = np.full((len(tables), lengths.max(initial=0)), len(shape), dtype=np.intp)
        rows[np.arange(rows.shape[1]) < lengths[:, None]] = np.fromiter(chain.from_iterable(tables), dtype=np.intp)
        sizes = axes.steps[rows].sum(axis=1)
        classes: list[_Class] = []
        coarser, cells, count = rows[:0], 0.0, 0
        for size in range(sizes.max(initial=0), -1, -1):
            asked = np.flatnonzero(sizes == size)
            together = np.concatenate([rows[asked], coarser])
            _, first, place = np.unique(axes.codes(together), return_index=True, return_inverse=True)
            kept = together[first]
            cells += float(axes.levels[kept].prod(axis=1, dtype=float).sum())
            if cells > most_cells or kept.size > most_cells:
                raise TooManyTablesError
            place += count
            row, column = np.nonzero(axes.steps[kept])
            classes.append(_Class(kept, row + count, column, asked, place[: asked.size], place[asked.size :]))
            coarser = axes.without(kept, row, column)
            count += len(kept)
        return cls._numbered(axes, len(tables), classes)

    @classmethod
    def _numbered(cls, axes: _Axes, count: int, classes: list[_Class]) -> ClosedTables:
        """Those that were asked for come first, in their order."""
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
        lengths = np.concatenate([np.ones((len(kept), 1), dtype=np.int64), axes.levels[kept]], axis=1)
        before = np.cumprod(lengths, axis=1)
        sizes, up_to = before[:, -1], before[row, column]
        axis = kept[row, column]
        after = sizes[row] // (up_to * axes.levels[axis])
        up = np.stack([number[row], number[without], axis, up_to, axes.levels[axis], after], axis=1).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes[order])])
        variables = axes.steps[kept].sum(axis=1)
        return cls(tuple(axes.levels[:-1].tolist()), offsets, kept[order], variables[order], up, number[place_of])

    @property
    def cells(self) -> int:
        """Of all tables."""
        return int(self.offsets[-1])

    @cached_property
    def sizes(self) -> Integers:
        """Cells of every table, (tables,)."""
        return np.diff(self.offsets)

    def steps(self, rows: Integers) -> Integers:
        """Rows of `up` by cells, (steps, 5): where the table lies, where without the axis; before, levels, after."""
        table, without, _, *sizes = rows.T
        return np.ascontiguousarray(np.stack([self.offsets[table], self.offsets[without], *sizes], axis=1))

    def by_axis(self) -> Iterator[tuple[Integers, Integers, int]]:
        """The tables that keep an axis, themselves without it, and its levels; axis by axis."""
        by_axis = self.up[np.argsort(self.up[:, 2], kind="stable")]
        starts = np.searchsorted(by_axis[:, 2], np.arange(len(self.shape) + 1))
        for levels, (start, stop) in zip(self.shape, pairwise(starts.tolist()), strict=True):
            yield by_axis[start:stop, 0], by_axis[start:stop, 1], levels


class _Class(NamedTuple):
    """The tables of one number of variables."""

    kept: Index  # (tables, most axes)
    row: Index  # the tables of all steps
    column: Index  # and their axes' places
    asked: Index  # which of those that were asked for are among the tables,
    places: Index  # and where
    from_finer: Index  # which of the tables each step from those of one variable more leads to


class _Axes(NamedTuple):
    """Axes, and a last one of one level that stands for none."""

    levels: Integers
    instead: Index
    steps: Flags  # which are summed out, or to groups

    @classmethod
    def of(cls, shape: Sequence[int], instead: Sequence[int] | None) -> _Axes:
        found = np.array([*([NOTHING] * len(shape) if instead is None else instead), ALWAYS], dtype=np.intp)
        return cls(np.array([*shape, 1], dtype=np.int64), found, found != ALWAYS)

    def without(self, kept: Index, row: Index, column: Index) -> Index:
        """The tables that steps lead to."""
        found, instead = kept[row], self.instead[kept[row, column]]
        found[np.arange(len(row)), column] = np.where(instead == NOTHING, self.levels.size - 1, instead)
        found.sort(axis=1)
        return found

    def codes(self, rows: Index) -> Integers:
        """A number for every set of axes."""
        count = self.levels.size - 1
        if count <= MOST_BITS:
            return np.where(rows < count, np.int64(1) << rows.astype(np.int64), 0).sum(axis=1)
        if rows.shape[1] * np.log2(count + 1) > MOST_BITS:
            raise TooManyTablesError
        return rows @ np.int64(count + 1) ** np.arange(rows.shape[1])

"""Tables of any shapes with all that are coarser, one after the other, and the steps between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from constraint_builders.arrays import Index, Integers

MOST_BITS = 62


class TooManyTablesError(Exception):
    """More cells, or more tables, than were allowed."""


@dataclass(frozen=True)
class ClosedTables:
    """A family of tables that has with each also those that keep fewer variables.

    Attributes
    ----------
    shape : tuple of int
        Levels of the variables.
    offsets : ndarray of int, (tables + 1,)
        Where the tables lie: those that were asked for, in their order, then all others.
    variables : ndarray of int, (tables,)
        How many each of them keeps.
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
    def of(cls, shape: Sequence[int], tables: Sequence[tuple[int, ...]], most_cells: float) -> ClosedTables:
        """The family of some tables, each its axes in increasing order.

        Raises
        ------
        TooManyTablesError
            If it has more than so many cells, or so many variables that sets of them have no number.
        """
        levels = np.array(shape, dtype=np.int64)
        sizes = np.array([len(axes) for axes in tables])
        classes: list[_Class] = []
        coarser = np.zeros((0, sizes.max(initial=0)), dtype=np.intp)
        cells, count = 0.0, 0
        for size in range(sizes.max(initial=0), -1, -1):
            asked = np.flatnonzero(sizes == size)
            own = np.array([tables[i] for i in asked.tolist()], dtype=np.intp).reshape(asked.size, size)
            together = np.concatenate([own, coarser])
            _, first, place = np.unique(_codes(together, len(shape)), return_index=True, return_inverse=True)
            kept = together[first]
            cells += float(levels[kept].prod(axis=1, dtype=float).sum())
            if cells > most_cells or kept.size > most_cells:
                raise TooManyTablesError
            place += count
            count += len(kept)
            classes.append(_Class(kept, asked, place[: asked.size], place[asked.size :]))
            coarser = np.concatenate([np.delete(kept, j, axis=1) for j in range(size)]) if size else kept
        return cls._numbered(levels, sizes.size, classes)

    @classmethod
    def _numbered(cls, levels: Integers, count: int, classes: list[_Class]) -> ClosedTables:
        """Those that were asked for come first, in their order."""
        variables = np.concatenate([np.full(len(own.kept), own.kept.shape[1]) for own in classes])
        sizes = np.concatenate([levels[own.kept].prod(axis=1) for own in classes])
        place_of = np.empty(count, dtype=np.intp)
        rank = np.arange(count, count + variables.size)
        for own in classes:
            place_of[own.asked] = own.places
            np.minimum.at(rank, own.places, own.asked)
        order = np.argsort(rank)
        number = np.empty_like(order)
        number[order] = np.arange(order.size)
        up, start = [np.zeros((0, 6), dtype=np.int64)], 0
        for own, below in pairwise(classes):
            tables = number[start : start + len(own.kept)]
            up.append(_steps(levels[own.kept], own.kept, tables, number[below.from_finer]))
            start += len(own.kept)
        offsets = np.concatenate([[0], np.cumsum(sizes[order])])
        return cls(tuple(levels.tolist()), offsets, variables[order], np.concatenate(up), number[place_of])

    @property
    def cells(self) -> int:
        """Of all tables."""
        return int(self.offsets[-1])

    @property
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

    kept: Index  # (tables, variables)
    asked: Index  # which of those that were asked for are among them,
    places: Index  # and where
    from_finer: Index  # where the tables of one variable more are without their first, second, ... variable


def _steps(levels: Integers, kept: Index, number: Index, without: Index) -> Integers:
    """All steps of the tables of one number of axes, (tables * axes, 6), a table's one after the other."""
    count, size = kept.shape
    before = np.cumprod(np.concatenate([np.ones((count, 1), dtype=np.int64), levels[:, :-1]], axis=1), axis=1)
    after = levels.prod(axis=1)[:, None] // (before * levels)
    without = without.reshape(size, count).T
    columns = [np.repeat(number[:, None], size, axis=1), without, kept, before, levels, after]
    return np.stack(columns, axis=-1).reshape(-1, 6).astype(np.int64)


def _codes(rows: Index, axes: int) -> Integers:
    """A number for every set of axes, given in increasing order."""
    if axes <= MOST_BITS:
        return (np.int64(1) << rows.astype(np.int64)).sum(axis=1)
    if rows.shape[1] * np.log2(axes) > MOST_BITS:
        raise TooManyTablesError
    return rows @ np.int64(axes) ** np.arange(rows.shape[1])

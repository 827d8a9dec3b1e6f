"""Where the tables of a layout lie among closed ones, as runs of cells that are copied both ways."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blue_solvers.components.flat.shared_steps import PARTS, cut, is_large
from blue_solvers.components.flat.weighted_runs import copy_weighted
from blue_solvers.threads import Workers
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.relations.closed_tables import ClosedTables


@dataclass(frozen=True)
class Runs:
    """Tables of a layout among closed ones, each with a weight.

    Attributes
    ----------
    places : ndarray of int, (tables,)
        Which of the closed tables they are.
    weights : ndarray, (tables,)
    rows : ndarray of int, (tables, 4)
        Where they start in the layout, where among the closed tables, how long they are, and whether the same table
        came before.
    reads : ndarray of int, (others + tables, 4)
        The same for those that the layout does not have, and then for them.
    read_weights : ndarray, (others + tables,)
    parts, read_parts : list of slice
        Of both, for threads; runs that add to what another copied stay together.
    """

    places: Index
    weights: Float
    rows: Integers
    reads: Integers
    read_weights: Float
    parts: list[slice]
    read_parts: list[slice]

    @classmethod
    def of(cls, tables: ClosedTables, starts: Integers, places: Index, weights: Float) -> Runs:
        """Of tables that start at places of a layout."""
        first = np.unique(places, return_index=True)[1]
        again = np.isin(np.arange(places.size), first, invert=True)
        rows = np.stack([starts, tables.offsets[places], tables.sizes[places], again], axis=1).astype(np.int64)
        others = np.setdiff1d(np.arange(tables.sizes.size), places)
        unread = np.stack([np.full(others.size, -1), tables.offsets[others], tables.sizes[others], others * 0], axis=1)
        if is_large(tables):
            rows, of = _in_pieces(rows)
            places, weights, again = places[of], weights[of], again[of]
        reads = np.concatenate([unread, rows]).astype(np.int64)
        read_weights = np.concatenate([np.zeros(others.size), weights])
        parts = read_parts = [slice(0, None)]
        if is_large(tables):
            parts = cut(rows[:, 2], 1 if again.any() else PARTS)
            read_parts = (
                [*cut(unread[:, 2], PARTS), slice(others.size, None)] if again.any() else cut(reads[:, 2], PARTS)
            )
        return cls(places, weights, rows, reads, read_weights, parts, read_parts)

    def read(self, values: Float, size: int, workers: Workers) -> Float:
        """All closed tables, (size, K): values times weights, 0 where there are none."""
        cells = np.empty((size, values.shape[1]))
        values = np.ascontiguousarray(values)
        copy, reads, weights = copy_weighted.fastest(), self.reads, self.read_weights
        workers.for_each(lambda some: copy(values, cells, reads[some], weights[some]), self.read_parts)
        return cells

    def write(self, cells: Float, size: int, workers: Workers) -> Float:
        """The layout's values, (size, K): cells times weights, 0 in tables that are not here; `cells` is used up."""
        in_place = self._cells_as_they_lie == size and len(cells) <= 2 * size
        values = cells[:size] if in_place else np.zeros((size, cells.shape[1]))
        if not (in_place and self._is_plain):
            self.write_to(values, cells, workers)
        return values

    def write_to(self, values: Float, cells: Float, workers: Workers) -> None:
        """Set the tables' own values in a layout."""
        copy, back = copy_weighted.fastest(), self._back
        workers.for_each(lambda some: copy(cells, values, back[some], self.weights[some]), self.parts)

    @cached_property
    def _cells_as_they_lie(self) -> int:
        """The cells of the tables, where the layout has them in their order; else 0."""
        return int(self.rows[:, 2].sum()) if np.array_equal(self.rows[:, 0], self.rows[:, 1]) else 0

    @cached_property
    def _is_plain(self) -> bool:
        return bool((self.weights == 1).all())

    @cached_property
    def _back(self) -> Integers:
        back = self.rows[:, [1, 0, 2, 3]]
        back[:, 3] = 0
        return np.ascontiguousarray(back)


def _in_pieces(rows: Integers) -> tuple[Integers, Index]:
    """Runs none of which is longer than a part, in their order, and which run each is of."""
    most = 1 + int(rows[:, 2].sum()) // PARTS
    counts = -(-rows[:, 2] // most)
    of = np.repeat(np.arange(len(rows)), counts)
    first = (np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)) * most
    found = rows[of]
    found[:, :2] += first[:, None]
    found[:, 2] = np.minimum(most, found[:, 2] - first)
    return found, of

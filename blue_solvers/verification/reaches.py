"""The areas that leaves are in, and sums over these in two doubles: nothing is lost but by rounding the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from blue_solvers.verification.compensated_sums import FEW, Lists, _add, walk
from constraint_builders.arrays import Float, Index, not_read_only

NO_MAP = np.zeros(0, dtype=np.intp)  # of cells that stay what they are
NO_WEIGHTS = np.zeros(0)
WORTH_A_LOOP = 2_000  # cells that are added: a loop is called for fewer in as long a time as numpy takes
Cells = Float  # (parts, rows, cells): doubles, and what these lose by rounding if they lose anything


def run_of(into: Index) -> int:
    """How many cells, (cells,), at a time follow one another where they are added too: 1 of few, not worth lanes."""
    if into.size <= FEW or into[FEW] - into[0] != FEW:  # most are of few
        return 1
    breaks = np.flatnonzero(np.diff(into) != 1) + 1
    run = int(np.gcd.reduce(breaks, initial=into.size))
    return run if run > FEW else 1


def ranges(starts: Index, counts: Index) -> Index:
    """Numbers from each start on, (k,), so many of each, one after another."""
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if ends.size else 0)


class Reach(NamedTuple):
    """Of some leaves the areas of a level that they are in: see `walk`."""

    starts: Index
    areas: Index
    weights: Float
    into: Index

    @classmethod
    def of_sets(cls, area: Index, into: Index) -> Reach:
        """Of leaves, (leaves,), each in one area, or in none, -1; `into` is (cells,), or (0,) for the same cells."""
        inside = area >= 0
        if inside.all():
            return cls(NO_MAP, area, NO_WEIGHTS, into)
        return cls(np.append(0, np.cumsum(inside)), area[inside], NO_WEIGHTS, into)

    @property
    def single(self) -> bool:
        """Whether each is in just one."""
        return self.areas.size > 0 and not self.starts.size

    def lists(self, cells: Cells, sums: Cells) -> Lists:
        """What `walk` takes beside rows and their sums, (parts, rows, cells) each; rows of one cell are one row."""
        rows, count = cells.shape[1:]
        if self.single and count == 1:
            return np.array([[0, rows, 1, rows, 0, rows, -1, 0]]), NO_MAP, NO_MAP, NO_WEIGHTS, self.areas
        own_area = not (self.starts.size or self.areas.size)
        step = [0, count, rows, count, 0, sums.shape[2], -own_area, -(not self.into.size)]
        return np.array([step]), *self

    def of_rows(self, rows: Index) -> tuple[Index, Index, Float]:
        """In how many areas each of some leaves is, (k,), in which, and by how much it counts there."""
        counts = np.ones(rows.size, dtype=np.intp) if self.single else np.diff(self.starts)[rows]
        entry = rows if self.single else ranges(self.starts[rows], counts)
        return counts, self.areas[entry], self.counts_of(entry)

    def counts_of(self, entries: Index) -> Float:
        """By how much leaves count in areas, (k,)."""
        return self.weights[entries] if self.weights.size else np.ones(entries.size)

    @property
    def rows(self) -> Index:
        """The leaf of every entry."""
        if self.single:
            return np.arange(self.areas.size)
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))

    def to_power(self, power: int) -> Reach:
        """With powers of the weights' sizes."""
        return self._replace(weights=abs(self.weights) ** power)

    @property
    def most(self) -> float:
        """What the sizes of a leaf's weights come to at most."""
        return float(np.bincount(self.rows, abs(self.weights)).max(initial=0.0)) if self.weights.size else 1.0


def add(cells: Cells, reach: Reach, total: Cells) -> None:
    """Add leaves' cells, (parts, leaves, cells), to those of areas, (2, areas, cells)."""
    _walk(cells, total, reach.lists(cells, total), up=True)


def spread(amounts: Cells, reach: Reach, said: Cells) -> None:
    """Add to leaves' cells, (2, leaves, cells), what is said of areas, (parts, areas, cells)."""
    _walk(amounts, said, reach.lists(said, amounts), up=False)


def _walk(given: Cells, changed: Cells, lists: Lists, up: bool) -> None:
    """Add what is given, (parts, rows, cells), to what is changed, (2, other rows, other cells)."""
    given, whole = not_read_only(np.ascontiguousarray(given)), np.ascontiguousarray(changed)
    walk(given.reshape(len(given), -1), lists, whole.reshape(2, -1), up)
    if whole is not changed:
        changed[...] = whole


def plus(said: Cells, term: Float) -> None:
    """Add a term, (rows, cells), or such cells of one double or two, to those of two doubles (Knuth's two-sum)."""
    if term.size < WORTH_A_LOOP:
        for part in term if term.ndim == 3 else term[None]:
            said[0], said[1] = _add(said[0], said[1], part)
    else:
        lists = np.array([[0, 0, 1, said[0].size, 0, 0, -1, -1]]), NO_MAP, NO_MAP, NO_WEIGHTS, NO_MAP
        _walk(term if term.ndim == 3 else term[None], said, lists, up=True)


def summed(into: Index, size: int, cells: Cells) -> Cells:
    """Rows of cells, (parts, rows, cells), summed to so many, in two doubles."""
    total = np.zeros((2, cells.shape[1], size))
    add(cells, Reach(NO_MAP, NO_MAP, NO_WEIGHTS, into), total)
    return total


def side_by_side(cells: Sequence[Float], columns: Sequence[slice]) -> Float:
    """Tables in one array, (rows, cells), a copy only of several; not to be changed."""
    if len(cells) == 1:
        return np.broadcast_to(cells[0], (len(cells[0]), columns[0].stop))
    found = np.empty((len(cells[0]), columns[-1].stop))
    for own, part in zip(cells, columns, strict=True):
        found[:, part] = own
    return found


def once(values: Float) -> Float:
    """Numbers, (rows, cells), as (rows, 1) where those of a row are one, broadcast to all of them."""
    return values if values.strides[-1] else values[:, :1]


def finite(variance: Float) -> Float:
    """Variances, of any shape, 0 where nothing was measured."""
    measured = np.isfinite(variance)
    return variance if measured.all() else np.where(measured, variance, 0.0)

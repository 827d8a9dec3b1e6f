"""The order in which leaves are worked on side by side: some pairs after others, of these one class after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blue_solvers.components.batches import chunks
from constraint_builders.arrays import Index, Integers, as_slice

LOTS = 8  # of pairs whose sums are in cache together: threads share them evenly
FEWEST = 4  # lots of pairs whose leaves are more than are in cache together
LEAVES = 512  # that are worth a call, however large their tables


@dataclass(frozen=True)
class Lanes:
    """What some lanes add up, and what they are: see `leaf_sweeps`.

    Attributes
    ----------
    firsts, members : ndarray of int, (N + 1,) and (members,)
    classes : ndarray of int, (N,)
    part_of : ndarray of int, (N,)
    rows_out : ndarray of int, (N,)
    """

    firsts: Integers
    members: Integers
    classes: Integers
    part_of: Integers
    rows_out: Integers


@dataclass(frozen=True)
class LotGoingUp:
    """Some pairs.

    Attributes
    ----------
    parents : ndarray of int
        Theirs, each once.
    of_parent : ndarray of int or None
        The first of every parent's pairs among them; None where each has one.
    lanes : Lanes
        One for every pair.
    is_whole : bool
        Whether these are all children of their parents, which follow one another.
    """

    parents: slice | Index
    of_parent: Index | None
    lanes: Lanes
    is_whole: bool


@dataclass(frozen=True)
class LotGoingDown:
    """Some leaves.

    Attributes
    ----------
    pairs : ndarray of int
        Theirs.
    lanes : Lanes
        One for every leaf.
    """

    pairs: Index
    lanes: Lanes


@dataclass(frozen=True)
class LeavesByPair:
    """Leaves in the order of their pairs.

    Attributes
    ----------
    rows, classes, pair_of : ndarray of int, (leaves,)
        Members of their level, their classes, and numbers of their pairs.
    starts : ndarray of int, (pairs + 1,)
        Where the leaves of every pair begin.
    pairs : ndarray of int, (pairs,)
        What they are called elsewhere.
    """

    rows: Index
    classes: Index
    pair_of: Index
    starts: Index
    pairs: Index

    def lots_going_up(self, parents: Index, children: Index, count: int) -> list[LotGoingUp]:
        """Pairs, with their parents (pairs,) and how many children these have, in lots, several of so many pairs."""
        size = max(1, count // LOTS)
        if self.rows.size >= count:
            size = min(size, -(-self.pairs.size // FEWEST))
        return [self._going_up(parents, children, some) for some in chunks(self.pairs.size, size)]

    def _going_up(self, parents: Index, children: Index, some: slice) -> LotGoingUp:
        distinct, of_parent = np.unique(parents[some], return_index=True)
        by_class = np.argsort(self.classes[self.starts[some]], kind="stable")
        counts = np.diff(self.starts[some.start : some.stop + 1])
        sizes = counts[by_class]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        leaves = np.repeat(self.starts[some][by_class] - ends[:-1], sizes) + np.arange(ends[-1])
        nothing = np.zeros(by_class.size, dtype=np.intp)
        lanes = Lanes(ends, self.rows[leaves], self.classes[self.starts[some][by_class]], nothing, by_class)
        rows, is_one = as_slice(distinct), distinct.size == by_class.size
        is_whole = isinstance(rows, slice) and is_one and bool((counts == children[some]).all())
        return LotGoingUp(rows, None if is_one else of_parent, lanes, is_whole)

    def lots_going_down(self, count: int) -> list[LotGoingDown]:
        """Leaves in lots of half so many, or more where these are few."""
        return [self._going_down(some) for some in chunks(self.rows.size, max(count // 2, LEAVES))]

    def _going_down(self, some: slice) -> LotGoingDown:
        first, last = int(self.pair_of[some.start]), int(self.pair_of[some.stop - 1])
        own = some.start + np.argsort(self.classes[some], kind="stable")
        each = np.arange(own.size + 1)
        lanes = Lanes(each, self.rows[own], self.classes[own], self.pair_of[own] - first, self.rows[own])
        return LotGoingDown(self.pairs[first : last + 1], lanes)

"""The order in which leaves are worked on side by side: some pairs after others, of these one class after another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blue_solvers.components.batches import chunks
from blue_solvers.components.tree.leaf_lanes import Lanes
from constraint_builders.arrays import Index, as_slice


@dataclass(frozen=True)
class LeavesOfPairs:
    """Leaves of some pairs.

    Attributes
    ----------
    pairs : ndarray of int or slice
    parents : ndarray of int
        Theirs, each once.
    of_parent : ndarray of int or None
        The first of every parent's pairs among them; None where each has one.
    going_up : Lanes
        A lane for every pair.
    going_down : list of Lanes
        A lane for every leaf; in parts that threads may share.
    """

    pairs: slice | Index
    parents: slice | Index
    of_parent: Index | None
    going_up: Lanes
    going_down: list[Lanes]


def leaves_of_pairs(
    rows: Index, classes: Index, pair_of: Index, starts: Index, pairs: Index, parents: Index, count: int
) -> list[LeavesOfPairs]:
    """Leaves in lots of so many pairs and, going down, of so many leaves.

    Parameters
    ----------
    rows, classes, pair_of : ndarray of int, (leaves,)
        Members of their level in the order of their pairs, their classes, and numbers of their pairs.
    starts : ndarray of int, (pairs + 1,)
        Where the leaves of every pair begin.
    pairs, parents : ndarray of int, (pairs,)
        What the pairs are called elsewhere, and their parents.
    count : int
    """
    found = []
    for some in chunks(pairs.size, count):
        first, last = int(starts[some.start]), int(starts[some.stop])
        distinct, of_parent = np.unique(parents[some], return_index=True)
        by_class = np.argsort(classes[starts[some]], kind="stable")
        sizes = np.diff(starts[some.start : some.stop + 1])[by_class]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        leaves = np.repeat(starts[some][by_class] - ends[:-1], sizes) + np.arange(ends[-1])
        up = Lanes(
            ends, rows[leaves], classes[starts[some][by_class]], np.zeros(by_class.size, dtype=np.intp), by_class
        )
        down = []
        order = first + np.argsort(classes[first:last], kind="stable")
        for own in (order[part] for part in chunks(order.size, count)):
            each = np.arange(own.size + 1)
            down.append(Lanes(each, rows[own], classes[own], pair_of[own] - some.start, rows[own]))
        found.append(
            LeavesOfPairs(
                as_slice(pairs[some]),
                as_slice(distinct),
                None if distinct.size == by_class.size else of_parent,
                up,
                down,
            )
        )
    return found

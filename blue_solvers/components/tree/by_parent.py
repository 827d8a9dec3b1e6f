"""Geounits of a level by their parents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import chunks, distinct
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index, as_slice


@dataclass(frozen=True)
class ChildrenOfPairs:
    """Some pairs.

    Attributes
    ----------
    pairs : ndarray of int
    parents : ndarray of int
        Their parents among all geounits with children.
    children : list of (rows of the level, ndarray of int)
        Theirs, some at a time, each with the number of its pair among these.
    """

    pairs: Index
    parents: Index
    children: list[tuple[slice | Index, Index]]


class ByParent:
    """Some geounits of a level by their parents.

    Attributes
    ----------
    rows : ndarray of int
        Which members of the level they are.
    pairs : ndarray of int
        Their pairs with their parents; none for the root.
    pair_of : ndarray of int
        For each of them the number of its pair among these.
    """

    def __init__(self, plan: TreePlan, level: LevelPlan, rows: Index) -> None:
        self.rows = rows
        self._pair_parent = plan.pair_parent
        self._lots: dict[int, list[ChildrenOfPairs]] = {}
        self._count = level.members.size
        pairs = level.parent_pair[rows]
        self.pairs, self.pair_of = distinct(pairs[pairs >= 0])
        parents = plan.parent_number[plan.spine.parent[level.members[rows]]] if self.pairs.size else rows[:0]
        self._parents, self._parent_of = distinct(parents)

    def add_to_parents(self, values: Float, sums: Float) -> None:
        """Add values of the level, (G, ..., K), to those of all geounits with children."""
        if self.pairs.size:
            sums[as_slice(self._parents)] += _added(self._to_parents, values)

    def lots(self, count: int) -> list[ChildrenOfPairs]:
        """So many pairs at a time, and as many children."""
        if count not in self._lots:
            self._lots[count] = [self._children_of(chosen, count) for chosen in chunks(self.pairs.size, count)]
        return self._lots[count]

    def _children_of(self, chosen: slice, count: int) -> ChildrenOfPairs:
        places = np.flatnonzero((self.pair_of >= chosen.start) & (self.pair_of < chosen.stop))
        lots = [places[some] for some in chunks(places.size, count)]
        children = [(as_slice(self.rows[own]), self.pair_of[own] - chosen.start) for own in lots]
        return ChildrenOfPairs(self.pairs[chosen], self._pair_parent[self.pairs[chosen]], children)

    def sum_by_pair(self, values: Float, rows: Index | None = None) -> Float:
        """Sums over each pair's geounits of what all members of the level have, or some, (rows, ..., K)."""
        return _added(self._to_pairs if rows is None else self._to_pairs[:, rows], values)

    @cached_property
    def _to_parents(self) -> sparse.csr_array:
        return self._adding(self._parent_of, self._parents.size)

    @cached_property
    def _to_pairs(self) -> sparse.csr_array:
        return self._adding(self.pair_of, self.pairs.size)

    def _adding(self, target_of: Index, targets: int) -> sparse.csr_array:
        shape = (targets, self._count)
        return sparse.csr_array((np.ones(self.rows.size), (target_of, self.rows)), shape=shape)


def _added(adding: sparse.csr_array, values: Float) -> Float:
    """Sums over the first axis."""
    return (adding @ values.reshape(len(values), -1)).reshape(adding.shape[0], *values.shape[1:])

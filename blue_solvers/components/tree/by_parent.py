"""Geounits of a level by their parents."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import chunks, distinct
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index


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
        self._count = level.members.size
        pairs = level.parent_pair[rows]
        self.pairs, self.pair_of = distinct(pairs[pairs >= 0])
        parents = plan.parent_number[plan.spine.parent[level.members[rows]]] if self.pairs.size else rows[:0]
        self._parents, self._parent_of = distinct(parents)

    def add_to_parents(self, values: Float, sums: Float) -> None:
        """Add values of the level, (G, ..., K), to those of all geounits with children."""
        if self.pairs.size:
            sums[self._parents] += self._adding(self._parent_of, self._parents.size, values)

    def sum_by_pair(self, values: Float) -> Float:
        """Sums over each pair's geounits."""
        return self._adding(self.pair_of, self.pairs.size, values)

    def add_from_parents(self, given: Float, values: Float) -> None:
        """The transpose of `add_to_parents`."""
        if self.pairs.size:
            for some in chunks(self.rows.size, 256):
                values[self.rows[some]] += given[self._parents[self._parent_of[some]]]

    def _adding(self, target_of: Index, targets: int, values: Float) -> Float:
        shape = (targets, self._count)
        matrix = sparse.csr_array((np.ones(self.rows.size), (target_of, self.rows)), shape=shape)
        return (matrix @ values.reshape(len(values), -1)).reshape(targets, *values.shape[1:])

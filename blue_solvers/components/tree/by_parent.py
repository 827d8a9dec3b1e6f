"""Geounits of a level by their parents."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import distinct
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index, as_slice


class ByParent:
    """Some geounits of a level by their parents.

    Attributes
    ----------
    rows : ndarray of int
        Which members of the level they are.
    pairs : ndarray of int
        Their pairs with their parents; none for the root.
    """

    def __init__(self, plan: TreePlan, level: LevelPlan, rows: Index) -> None:
        self.rows = rows
        self._count = level.members.size
        pairs = level.parent_pair[rows]
        self.pairs, self._pair_of = distinct(pairs[pairs >= 0])
        parents = plan.parent_number[plan.spine.parent[level.members[rows]]] if self.pairs.size else rows[:0]
        self._parents, self._parent_of = distinct(parents)

    def add_to_parents(self, values: Float, sums: Float) -> None:
        """Add values of the level, (G, ..., K), to those of all geounits with children."""
        if self.pairs.size:
            sums[as_slice(self._parents)] += _added(self._to_parents, values)

    def sum_by_pair(self, values: Float, rows: Index | None = None) -> Float:
        """Sums over each pair's geounits of what all members of the level have, or some, (rows, ..., K)."""
        return _added(self._to_pairs if rows is None else self._to_pairs[:, rows], values)

    @cached_property
    def _to_parents(self) -> sparse.csr_array:
        return self._adding(self._parent_of, self._parents.size)

    @cached_property
    def _to_pairs(self) -> sparse.csr_array:
        return self._adding(self._pair_of, self.pairs.size)

    def _adding(self, target_of: Index, targets: int) -> sparse.csr_array:
        shape = (targets, self._count)
        return sparse.csr_array((np.ones(self.rows.size), (target_of, self.rows)), shape=shape)


def _added(adding: sparse.csr_array, values: Float) -> Float:
    """Sums over the first axis."""
    return (adding @ values.reshape(len(values), -1)).reshape(adding.shape[0], *values.shape[1:])

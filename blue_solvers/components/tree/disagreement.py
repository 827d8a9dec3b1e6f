"""How far geounits' estimates are from the sums of their children's, level by level as they are worked out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.tree.by_parent import ByParent
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float


class Disagreement:
    """Takes in the estimates of every level once, in any order.

    Parameters
    ----------
    plan : TreePlan
    everyone : sequence of ByParent
        All geounits of every level.
    """

    def __init__(self, plan: TreePlan, everyone: Sequence[ByParent]) -> None:
        self._plan, self._everyone = plan, everyone
        self._above: Float = np.zeros((plan.parents.size, 0))
        self._below = self._above

    def look_at(self, number: int, estimates: Float) -> None:
        """Take in the estimates of a level in cells, (G, ..., K)."""
        if not self._above.size:
            self._above = np.zeros((self._plan.parents.size, *estimates.shape[1:]))
            self._below = np.zeros_like(self._above)
        level = self._plan.levels[number]
        self._above[self._plan.parent_number[level.members[level.inner]]] = estimates[level.inner]
        self._everyone[number].add_to_parents(estimates, self._below)

    @property
    def largest(self) -> float:
        """Over all cells of all geounits with children."""
        return float(abs(self._above - self._below).max(initial=0.0))

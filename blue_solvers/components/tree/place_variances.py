"""Variances of desired tables at some geounits, from those of the places that share them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from blue_solvers.components.batches import distinct
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.components.tree.tree_variances import TreeVariances
from constraint_builders.arrays import Float, Index

KEPT = 1  # table whose variances by place are kept: its rows are asked for one after another


class PlaceVariances:
    """Variances of the tables that a problem on a spine desires.

    Parameters
    ----------
    problem : StructuredProblem
    plan : TreePlan
    variances : TreeVariances
    """

    def __init__(self, problem: StructuredProblem, plan: TreePlan, variances: TreeVariances) -> None:
        self._problem, self._plan, self._variances = problem, plan, variances
        self._places: Callable[[int], tuple[Index, Index]] = lru_cache(self._find_places)
        self._by_place: Callable[[int], Float] = lru_cache(KEPT)(self._work_out)

    def _find_places(self, level: int) -> tuple[Index, Index]:
        """The different places of a level, and which of them every geounit has."""
        return distinct(self._plan.posterior_of[self._plan.levels[level].members])

    def _work_out(self, table: int) -> Float:
        places, _ = self._places(self._problem.desired_levels[table])
        return self._variances.of_table(self._problem.desired_tables[table], places)

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table, by its number among the desired ones, at some of its geounits, (rows, cells)."""
        place_of = self._places(self._problem.desired_levels[table])[1]
        return self._by_place(table).take(place_of[rows], axis=0)

    def fill(self, table: int, out: Float) -> None:
        """Put those of all geounits into `out`, (geounits, cells)."""
        place_of = self._places(self._problem.desired_levels[table])[1]
        np.take(self._by_place(table), place_of, axis=0, out=out, mode="clip")  # numpy copies unless it may clip

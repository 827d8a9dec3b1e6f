"""Variances of the cells of tables on a tree, from the posterior covariance of every component."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce

import numpy as np
from scipy import sparse

from blue_solvers.components.component_products import Component, TableMap
from blue_solvers.components.orthogonal import SMALL, kronecker
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index, Int32, distinct_numbers

Known = dict[tuple[int, tuple[int, ...]], Float]  # by coefficients and variables of several groups

KEPT = 1  # table whose variances by place are kept, and level: rows are asked for one after another


class TreeVariances:
    """Variances of the tables that a problem on a spine desires, from those of the geounits that are alike.

    Parameters
    ----------
    problem : StructuredProblem
    plan : TreePlan
    coefficients : list of Coefficients
        Of every component of the plan.
    nothing : float
        Variances below it are rounding, and 0.
    """

    def __init__(
        self, problem: StructuredProblem, plan: TreePlan, coefficients: list[Coefficients], nothing: float
    ) -> None:
        self._problem, self._plan, self._coefficients, self._nothing = problem, plan, coefficients, nothing
        self._entries: Callable[[int], tuple[Index, Int32]] = lru_cache(KEPT)(
            lambda level: distinct_numbers(plan.posterior_of[plan.levels[level].members])
        )  # the different entries of `TreePlan.posterior_of` of a level, and which of them every geounit has
        self._worked_out: Callable[[int], Float] = lru_cache(KEPT)(self._work_out)

    def of(self, table: int, rows: slice | Index = slice(None), out: Float | None = None) -> Float:
        """Of a table, by its number among the desired ones, at some of its geounits, (rows, cells)."""
        _, place_of = self._entries(self._problem.desired_levels[table])
        return self._worked_out(table).take(place_of[rows], axis=0, out=out, mode="clip")  # places are in range

    def _work_out(self, number: int) -> Float:
        """Variances of a table's cells at all entries of its level, (entries, cells)."""
        table, (places, _) = self._problem.desired_tables[number], self._entries(self._problem.desired_levels[number])
        total: Float = np.zeros(())
        known: Known = {}
        own = self._plan.maps[table.name]
        for i in own.seen:
            total = total + self._of_component(self._plan.components[i], own, self._coefficients[i], places, known)
        for place, axis in enumerate(own.axes, 1):
            if axis.has_contrasts:
                total = np.take(total, axis.groups, axis=place)
        lengths = {axis.axis: length for axis, length in zip(own.axes, total.shape[1:], strict=True)}
        kept = total.reshape(len(places), *(lengths.get(axis, 1) for axis in table.axes))
        variances = np.broadcast_to(kept, (len(places), *table.shape)).reshape(len(places), -1)
        return np.where(variances < self._nothing, 0.0, variances)

    def _of_component(
        self, component: Component, table: TableMap, own: Coefficients, places: Index, known: Known
    ) -> Float:
        """Variances of one component at places, (places, ...), by axis: its groups, or a coarser factor's cells."""
        scale: Float = np.ones(())
        matrices, shape, several = [], [], []
        for axis, sums, contrast in zip(table.axes, table.sums, component.contrasts, strict=True):
            shares = 1 - 1 / axis.sizes if contrast else np.ones(len(sums))
            shape.append(1 if contrast else len(sums))
            if not contrast and sums.shape[1] > 1:
                matrices.append(sums / np.sqrt(axis.sizes)[:, None])
                several.append(axis.axis)
            elif not contrast:
                shares = sums[:, 0] ** 2 / axis.sizes
            scale = np.multiply.outer(scale, shares)
        key = id(own), tuple(several)
        if key not in known:
            is_small = component.size <= SMALL
            W = kronecker(matrices) if is_small else sparse.csr_array(reduce(sparse.kron, matrices))
            known[key] = own.matrices["posterior"].squares_of_sums(W, places)
        return known[key].reshape(len(places), *shape) * scale

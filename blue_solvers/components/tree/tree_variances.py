"""Variances of the cells of tables on a tree, from the posterior covariance of every component."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.batches import Index
from blue_solvers.components.component_products import Component
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.contract import Float
from constraint_builders.description.table import Table

ROUNDING = 1e-12  # of what a standard deviation is summed from: sums that should cancel leave this much at most


class TreeVariances:
    """Variances at entries of `TreePlan.posterior_of`.

    Parameters
    ----------
    plan : TreePlan
    coefficients : list of Coefficients
        Of every component of the plan.
    """

    def __init__(self, plan: TreePlan, coefficients: list[Coefficients]) -> None:
        self._plan, self._coefficients = plan, coefficients

    def of_table(self, table: Table, places: Index) -> Float:
        """Variances of a table's cells at some entries, (entries, cells)."""
        total: Float = np.zeros(())
        maps = self._plan.table_maps(table)
        for component, own in zip(self._plan.components, self._coefficients, strict=True):
            if any(contrast and sums is not None for contrast, sums in zip(component.contrasts, maps, strict=True)):
                continue
            total = total + self._of_component(component, maps, own.posterior[places])
        lengths: list[int] = []
        for grouping, sums in zip(self._plan.groupings, maps, strict=True):
            if sums is None:
                total = np.take(total, grouping.groups, axis=len(lengths) + 1)
            lengths.append(total.shape[len(lengths) + 1])
        own_lengths = {g.axis: length for g, length in zip(self._plan.groupings, lengths, strict=True)}
        shape = [own_lengths.get(axis, 1) for axis in table.axes]
        kept = total.reshape(len(places), *shape)
        return np.broadcast_to(kept, (len(places), *table.shape)).reshape(len(places), -1)

    def _of_component(self, component: Component, maps: list[Float | None], root: Float) -> Float:
        """Variances that one component gives, an axis for every variable: its groups, or a coarser factor's cells."""
        scale: Float = np.ones(())
        W: NDArray = np.ones((1, 1))
        shape = []
        for grouping, sums, contrast in zip(self._plan.groupings, maps, component.contrasts, strict=True):
            if contrast:
                shape.append(1)
                scale = np.multiply.outer(scale, 1 - 1 / grouping.sizes)
            else:
                rows = np.diag(1 / np.sqrt(grouping.sizes)) if sums is None else sums
                shape.append(len(rows))
                scale = np.multiply.outer(scale, np.ones(len(rows)))
                W = np.kron(W, rows)
        deviations = squares_of_sums(W, root)
        return deviations.reshape(len(root), *shape) * scale


def squares_of_sums(W: Float, root: Float) -> Float:
    """Diagonal of W root root' W' for a batch of roots (N, m, m), (N, rows); 0 where only rounding is left of it."""
    sums = W @ root
    squares = (sums**2).sum(axis=-1)
    if root.shape[-1] == 1:
        return squares
    largest = abs(root).max(axis=(-2, -1), initial=0.0)[..., None]
    return np.where(squares > (ROUNDING * abs(W).sum(axis=-1) * largest) ** 2, squares, 0.0)

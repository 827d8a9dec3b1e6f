"""Variances of the cells of tables on a tree, from the posterior covariance of every component."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import chunks
from blue_solvers.components.component_products import Component
from blue_solvers.components.orthogonal import SMALL
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.piecewise import Composed
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index, Int32
from constraint_builders.description.distinct_numbers import distinct_numbers
from constraint_builders.description.table import Table

Known = dict[tuple[int, tuple[int, ...]], Float]  # by coefficients and variables of several groups

KEPT = 1  # table whose variances by place are kept: its rows are asked for one after another
AT_ONCE = 1 << 20  # numbers that rows times roots are worked out to at a time
ROUNDING = 1e-12  # of what a standard deviation is summed from: sums that should cancel leave this much at most


class TreeVariances:
    """Variances of the tables that a problem on a spine desires, from those of the geounits that are alike.

    Parameters
    ----------
    problem : StructuredProblem
    plan : TreePlan
    coefficients : list of Coefficients
        Of every component of the plan.
    """

    def __init__(self, problem: StructuredProblem, plan: TreePlan, coefficients: list[Coefficients]) -> None:
        self._problem, self._plan, self._coefficients = problem, plan, coefficients
        self._worked_out: Callable[[int], tuple[Float, Int32]] = lru_cache(KEPT)(self._work_out)

    def of(self, table: int, rows: slice | Index = slice(None)) -> Float:
        """Of a table, by its number among the desired ones, at some of its geounits, (rows, cells)."""
        variances, place_of = self._worked_out(table)
        return variances.take(place_of[rows], axis=0)

    def _work_out(self, table: int) -> tuple[Float, Int32]:
        """At the different entries of `TreePlan.posterior_of` of its level, and which of them every geounit has."""
        members = self._plan.levels[self._problem.desired_levels[table]].members
        places, place_of = distinct_numbers(self._plan.posterior_of[members])
        return self._of_table(self._problem.desired_tables[table], places), place_of

    def _of_table(self, table: Table, places: Index) -> Float:
        """Variances of a table's cells at some entries, (entries, cells)."""
        total: Float = np.zeros(())
        known: Known = {}
        maps = self._plan.table_maps(table)
        for component, own in zip(self._plan.components, self._coefficients, strict=True):
            if self._plan.sees(table, component):
                total = total + self._of_component(component, maps, own, places, known)
        lengths: list[int] = []
        for grouping, sums in zip(self._plan.groupings, maps, strict=True):
            if sums is None:
                total = np.take(total, grouping.groups, axis=len(lengths) + 1)
            lengths.append(total.shape[len(lengths) + 1])
        own_lengths = {g.axis: length for g, length in zip(self._plan.groupings, lengths, strict=True)}
        shape = [own_lengths.get(axis, 1) for axis in table.axes]
        kept = total.reshape(len(places), *shape)
        return np.broadcast_to(kept, (len(places), *table.shape)).reshape(len(places), -1)

    def _of_component(
        self, component: Component, maps: list[Float | None], own: Coefficients, places: Index, known: Known
    ) -> Float:
        """Variances that one component gives, an axis for every variable: its groups, or a coarser factor's cells."""
        scale: Float = np.ones(())
        matrices, shape, several = [], [], []
        for grouping, sums, contrast in zip(self._plan.groupings, maps, component.contrasts, strict=True):
            if contrast:
                shape.append(1)
                scale = np.multiply.outer(scale, 1 - 1 / grouping.sizes)
                continue
            rows = np.diag(1 / np.sqrt(grouping.sizes)) if sums is None else sums
            shape.append(len(rows))
            factor = float(rows[0, 0]) ** 2 if grouping.sizes.size == 1 else 1.0
            scale = np.multiply.outer(scale, np.full(len(rows), factor))
            if grouping.sizes.size > 1:
                matrices.append(rows)
                several.append(grouping.axis)
        key = id(own), tuple(several)
        if key not in known:
            is_small = component.size <= SMALL
            W = kronecker(matrices) if is_small else sparse.csr_array(reduce(sparse.kron, matrices))
            known[key] = _squares(W, own.matrices["posterior"][places])
        return known[key].reshape(len(places), *shape) * scale


def _squares(W: Float | sparse.csr_array, roots: Composed) -> Float:
    """Diagonal of W root root' W' for roots in pieces, (entries, rows of W)."""
    if roots.rows.are_numbers:
        return squares_of_sums(W, roots.toarray())
    squares = np.zeros((W.shape[0], len(roots)))
    turned = sparse.csc_array(sparse.csr_array(W) @ roots.rows.from_pieces)
    for number, (place, size) in roots.rows.places.items():
        if size == 1:  # nothing cancels
            squares += np.outer(turned[:, place].power(2).sum(axis=1), roots.pieces[number].toarray() ** 2)
            continue
        own = sparse.coo_array(turned[:, place])
        copies = own.shape[1] // size
        keys, places = np.unique(own.row * copies + own.col % copies, return_inverse=True)
        taken = sparse.csr_array((own.data, (places, own.col // copies)), shape=(keys.size, size))
        rows, starts = np.unique(keys // copies, return_index=True)
        for entries, matrices, kept, _ in roots.pieces[number].by_lot() if keys.size else ():
            found = squares_of_sums(taken[:, kept], matrices)
            squares[np.ix_(rows, entries)] += np.add.reduceat(found, starts, axis=1).T
    return squares.T


def squares_of_sums(W: Float | sparse.csr_array, root: Float) -> Float:
    """Diagonal of W root root' W' for a batch of roots (N, m, q), (N, rows); 0 where only rounding is left of it."""
    N, m, q = root.shape
    if m == q == 1:  # nothing cancels
        return np.outer(root.ravel() ** 2, (W * W).sum(axis=1))
    squares = np.empty((W.shape[0], N))
    for some in chunks(N, max(1, AT_ONCE // max(1, W.shape[0] * q))):
        sums = W @ root[some].transpose(1, 0, 2).reshape(m, -1)
        squares[:, some] = (sums**2).reshape(W.shape[0], -1, q).sum(axis=2)
    least = ROUNDING * (abs(W) @ abs(root).max(axis=2, initial=0.0).T)
    return np.where(squares > least**2, squares, 0.0).T

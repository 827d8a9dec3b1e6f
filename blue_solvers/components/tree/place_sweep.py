"""Covariance of sums of cells over places, each of which adds and subtracts whole geounits.

All geounits of a place have the same weights on their cells, up to a sign. Gains and covariances of a component act on
its m group sums alone, so one pass with the m unit weights (`functional_sweep`) tells a root R of the covariance of
these sums over the place, and with weights S on the slots the covariance of functionals is S' R' R S. Where functionals
have fewer weights than m, they go through the pass themselves. Of a single geounit R is the root of its posterior
covariance, and needs no pass. Components are never put together from the pieces that they fall into (`splitting`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blue_solvers.components.component_products import Component
from blue_solvers.components.tree.coefficients import Coefficients, solve_pieces
from blue_solvers.components.tree.functional_sweep import COPIES, Branches, Weights, slots_of_table
from blue_solvers.components.tree.piecewise import absolute, array_of
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.components.tree.tree_variances import ROUNDING
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table
from constraint_builders.memory import require_memory


@dataclass(frozen=True)
class _Seen:
    """A piece of components that sums see: its coefficients, and what they take of its numbers, (m, rest, K)."""

    coefficients: Coefficients
    slots: Float


class PlaceSweep:
    """Covariances of K sums of a table's cells over places.

    Parameters
    ----------
    plan : TreePlan
    table : Table
        Of variables in use; of the components only those are solved that it sees, piece by piece.
    taken : csr_array, (cells, K)
        What every sum takes of the table's cells.
    """

    def __init__(self, plan: TreePlan, table: Table, taken: sparse.csr_array) -> None:
        self._plan = plan
        self._count = taken.shape[1]
        weights = Weights(np.zeros(1, dtype=np.intp), table, taken)
        seen = [number for number, component in enumerate(plan.components) if plan.sees(table, component)]
        slots = {number: _weights_on_slots(plan, weights, plan.components[number]) for number in seen}
        self._seen = []
        for numbers, piece, coefficients in solve_pieces(plan, seen):
            own = np.concatenate([piece.of_weights(slots[number]) for number in numbers], axis=1)
            if own.any():
                self._seen.append(_Seen(coefficients, own))

    def of_geounit(self, geounit: int) -> Float:
        """Covariance of the sums over one geounit, (K, K)."""
        place, total = self._plan.posterior_of[geounit], _Total(1, self._count)
        for seen in self._seen:
            root = array_of(seen.coefficients.posterior[place : place + 1])[0].T
            total.add(root, abs(root), seen.slots)
        return total.covariance()

    def of_places(self, signs: sparse.csr_array) -> Float:
        """Covariance of the sums over places together, (P K, P K), the sums of a place one after another.

        Parameters
        ----------
        signs : csr_array, (P, N)
            How often each place counts each geounit.

        Raises
        ------
        MemoryError
            If the weights of the geounits in the pass would not fit.
        """
        counted = sparse.csc_array(signs)
        geounits = np.flatnonzero(np.diff(counted.indptr))
        total = _Total(signs.shape[0], self._count)
        if not geounits.size:
            return total.covariance()
        branches = Branches(self._plan, geounits)
        often = np.zeros((branches.geounits.size, signs.shape[0]))
        often[branches.number[geounits]] = counted[:, geounits].toarray().T
        for seen in self._seen:
            size, rest, count = seen.slots.shape
            units = np.eye(size) if size <= rest * count else seen.slots.reshape(size, -1)
            needed = 8.0 * often.size * COPIES * units.size
            require_memory(needed, f"{self._count:,} sums over {often.shape[1]:,} places", "ask for fewer at a time")
            weights = np.einsum("tp,mq->tmpq", often, units).reshape(len(often), size, -1)
            errors = list(branches.errors(seen.coefficients, weights))
            halves = [(root.swapaxes(1, 2) @ left).reshape(-1, left.shape[-1]) for left, root in errors]
            bounds = [(absolute(root).swapaxes(1, 2) @ abs(left)).reshape(-1, left.shape[-1]) for left, root in errors]
            total.add(np.concatenate(halves), np.concatenate(bounds), seen.slots, size <= rest * count)
        return total.covariance()


class _Total:
    """A covariance of the K sums of P places, as a sum of squares."""

    def __init__(self, places: int, sums: int) -> None:
        self._shape = places, sums
        self._covariance = np.zeros((places * sums, places * sums))
        self._rounding = np.zeros(places * sums)

    def add(self, halves: Float, bounds: Float, slots: Float, of_units: bool = True) -> None:
        """Add a component.

        Parameters
        ----------
        halves : ndarray, (rows, P * columns)
            A root of the covariance of columns over every place; columns are its m group sums, or the sums themselves.
        bounds : ndarray, like `halves`
            What they were summed from, in size.
        slots : ndarray, (m, rest, K)
            What sums take of the component's slots.
        of_units : bool
            Whether columns are group sums.
        """
        for rows, weights, square in ((halves, slots, True), (bounds, abs(slots), False)):
            sums = self._of_sums(_fewer(rows), weights, of_units)
            if square:
                self._covariance += sums.T @ sums
            else:
                self._rounding += (sums**2).sum(axis=0)

    def _of_sums(self, rows: Float, slots: Float, of_units: bool) -> Float:
        """Rows over the columns of every place as rows over its sums, (..., P * K)."""
        places, count = self._shape
        size, rest, _ = slots.shape
        if of_units:
            own = np.tensordot(rows.reshape(-1, places, size), slots, axes=(2, 0)).swapaxes(1, 2)
        else:
            own = rows.reshape(-1, places, rest, count).swapaxes(1, 2)
        return own.reshape(-1, places * count)

    def covariance(self) -> Float:
        """Symmetric, 0 where only rounding is left of a variance."""
        exact = self._covariance.diagonal() <= ROUNDING**2 * self._rounding
        self._covariance[exact] = self._covariance[:, exact] = 0
        return (self._covariance + self._covariance.T) / 2


def _fewer(rows: Float) -> Float:
    """Rows with the same sums of products, no more than there are columns."""
    if len(rows) <= rows.shape[1]:
        return rows
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _weights_on_slots(plan: TreePlan, weights: Weights, component: Component) -> Float:
    """What sums take of the slots of one geounit: group sums, all else, and the sums, (m, rest, K)."""
    slots = slots_of_table(plan, weights, component)[0]
    axes = [i for i, contrast in enumerate(component.contrasts) if not contrast]
    return np.moveaxis(slots, axes, range(len(axes))).reshape(component.size, -1, slots.shape[-1])

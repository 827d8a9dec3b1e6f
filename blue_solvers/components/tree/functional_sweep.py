"""Covariance of linear functionals, by one pass up the geounits that they weigh and the ancestors of these.

With weights w_g on the slots of geounit g and gains A_c (`tree_plan`), going up

    mu_g = sum_c A_c' lambda_c over the children c of g,    lambda_g = w_g + mu_g.

From below alone the children c of p are known with independent errors, of covariances V_c. Given the truth of p these
enter the functional's error with weights lambda_c - mu_p, so that p adds to the variance

    sum_c (lambda_c - mu_p)' V_c (lambda_c - mu_p),

where lambda_c = 0 for children without weights, which need no visit, only the sum of their V; and the root adds lambda'
V lambda. Nothing is subtracted: a sum of squares. Directions of c that nothing below determines have lambda_c = mu_p if
the functional can be estimated. Covariances are the same with two lambdas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from scipy import sparse

from blue_solvers.components.component_products import Component
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.orthogonal import compress
from blue_solvers.components.reflections import Basis
from blue_solvers.components.table_sums import along
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.merges import merges_of
from blue_solvers.components.tree.piecewise import Composed, Ragged, absolute, array_of
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.components.tree.tree_variances import ROUNDING
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table
from constraint_builders.memory import require_memory

COPIES = 4  # of a component's slots in a pass: what they weigh, what reaches them, and two products


@dataclass(frozen=True)
class Weights:
    """What K functionals take of one table in some geounits.

    Attributes
    ----------
    geounits : ndarray of int, (g,)
        Positions in the spine, each once.
    table : Table
        Of variables in use.
    cells : csr_array, (g * cells, K)
    """

    geounits: Index
    table: Table
    cells: sparse.csr_array


def functional_covariance(
    plan: TreePlan, coefficients: Sequence[Coefficients], weights: Sequence[Weights], count: int
) -> Float:
    """Covariance of functionals of the estimate.

    Parameters
    ----------
    plan : TreePlan
    coefficients : sequence of Coefficients
        Of every component of the plan.
    weights : sequence of Weights
        Added up; a functional must be one that the measurements determine.
    count : int
        Number of functionals, K.

    Returns
    -------
    ndarray, (K, K)
        Symmetric, positive semidefinite to rounding.

    Raises
    ------
    MemoryError
        If the slots of the geounits in the pass would not fit.
    """
    covariance = np.zeros((count, count))
    if not weights or not count:
        return covariance
    branches = Branches(plan, np.concatenate([own.geounits for own in weights]))
    rounding = np.zeros(count)
    for component, own in zip(plan.components, coefficients, strict=True):
        if any(plan.sees(table.table, component) for table in weights):
            slots = _slots(plan, weights, count, component, branches)
            for left, root in _errors(plan, component, branches, own, slots):
                half = (root.swapaxes(1, 2) @ left).reshape(-1, count)
                covariance += half.T @ half
                rounding += ((absolute(root).swapaxes(1, 2) @ abs(left)).reshape(-1, count) ** 2).sum(axis=0)
    exact = covariance.diagonal() <= ROUNDING**2 * rounding
    covariance[exact] = covariance[:, exact] = 0
    return (covariance + covariance.T) / 2


def _errors(
    plan: TreePlan, component: Component, branches: Branches, own: Coefficients, slots: Float
) -> Iterator[tuple[Float, Float | Ragged]]:
    """Those of a component, or of its pieces where they are never put together, which err independently."""
    if not isinstance(own.gain, Composed):
        yield from branches.errors(own, slots)
        return
    for number, piece in enumerate(plan.division(plan.design_key(component)).pieces):
        weights = np.stack([piece.of_weights(each) for each in slots[..., None]])[..., 0]
        yield from branches.errors(own.of_piece(number), weights)


class Branches:
    """The geounits of a pass: those that functionals weigh, and all above them, the root first."""

    def __init__(self, plan: TreePlan, weighed: Index) -> None:
        spine = plan.spine
        inside = np.zeros(spine.size, dtype=bool)
        while weighed.size:
            inside[weighed] = True
            above = np.unique(spine.parent[weighed])
            weighed = above[above >= 0]
        found = np.flatnonzero(inside)
        self.geounits = found[np.lexsort((spine.parent[found], spine.level_of[found]))]
        self.number = np.full(spine.size, -1)
        self.number[self.geounits] = np.arange(self.geounits.size)
        self.parent = self.number[spine.parent[self.geounits[1:]]]
        bounds = np.unique(spine.level_of[self.geounits], return_index=True)[1].tolist()
        self.levels = [slice(*pair) for pair in pairwise([*bounds[1:], self.geounits.size])]  # below the root
        class_of, pair_of = np.empty(spine.size, dtype=np.intp), np.empty(spine.size, dtype=np.intp)
        for level in plan.levels:
            class_of[level.members], pair_of[level.members] = level.class_of, level.parent_pair
        self.class_of = class_of[self.geounits]
        self.pair = plan.families.of_pair[pair_of[self.geounits[1:]]]
        others = np.flatnonzero(~inside & (self.number[spine.parent] >= 0))
        keys, counts = np.unique(pair_of[others], return_counts=True)
        self._other_pairs, self._other_counts = keys, counts
        self._other_class = plan.pair_class[keys]
        self._other_parent = self.number[plan.parents[plan.pair_parent[keys]]]

    def errors(self, coefficients: Coefficients, weights: Float) -> Iterator[tuple[Float, Float | Ragged]]:
        """Weights on independent errors in one component, (G, m, rest * K), and roots of their covariances, (G, m, m).

        Of weights on its slots, (T, m, rest * K), which are overwritten.
        """
        received = np.zeros_like(weights)
        for rows in reversed(self.levels):
            weights[rows] += received[rows]
            below = slice(rows.start - 1, rows.stop - 1)
            passed = coefficients.gain[self.pair[below]].swapaxes(-1, -2) @ weights[rows]
            starts = np.flatnonzero(np.diff(self.parent[below], prepend=-1))  # siblings come together
            received[self.parent[below][starts]] += np.add.reduceat(passed, starts, axis=0)
        weights[0] += received[0]
        weights[1:] -= received[self.parent]
        yield weights, coefficients.root[self.class_of]
        if self._other_pairs.size:
            roots = coefficients.root[self._other_class] * np.sqrt(self._other_counts)[:, None, None]
            order = np.argsort(self._other_parent, kind="stable")
            owners, root = _roots_of_sums(array_of(roots)[order], self._other_parent[order])
            yield received[owners], root


def _roots_of_sums(roots: Float, owners: Index) -> tuple[Index, Float]:
    """Owners, and a square root of the sum of each one's covariances."""
    merges = merges_of(owners)
    nodes = np.concatenate([roots, np.zeros((merges.size - len(roots), *roots.shape[1:]))])
    for left, right, total in merges.rounds:
        nodes[total] = compress(nodes[left], nodes[right])
    return np.unique(owners), nodes[merges.totals]


def _slots(plan: TreePlan, weights: Sequence[Weights], count: int, component: Component, branches: Branches) -> Float:
    """Weights on a component's slots, (T, m, rest * K): its groups as one axis, all else as another."""
    shape = [len(range(g.levels)[own]) for g, own in zip(plan.groupings, component.slots, strict=True)]
    geounits, cells = branches.geounits.size, max(own.table.size for own in weights)
    needed = 8.0 * geounits * (COPIES * max(prod(shape), cells) * count + component.size**2)
    require_memory(needed, f"{count:,} functionals in {geounits:,} geounits", "ask for fewer at a time")
    slots = np.zeros((geounits, *shape, count))
    for own in weights:
        if plan.sees(own.table, component):
            slots[branches.number[own.geounits]] += slots_of_table(plan, own, component)
    axes = [i for i, contrast in enumerate(component.contrasts, start=1) if not contrast]
    return np.moveaxis(slots, axes, range(1, len(axes) + 1)).reshape(geounits, component.size, -1)


def slots_of_table(plan: TreePlan, weights: Weights, component: Component) -> Float:
    """Weights on a table's cells as weights on a component's slots, (g, ..., K)."""
    maps = plan.table_maps(weights.table)
    lengths = [g.levels if sums is None else len(sums) for g, sums in zip(plan.groupings, maps, strict=True)]
    slots = weights.cells.toarray().reshape(weights.geounits.size, *lengths, -1)
    for axis, (grouping, sums) in enumerate(zip(plan.groupings, maps, strict=True)):
        matrix = _levels_of_slots(grouping)[component.slots[axis]] if sums is None else sums.T
        slots = along(matrix, slots, axis + 1)
    return slots


def _levels_of_slots(grouping: Grouping) -> Float:
    """The orthonormal basis along one variable, (slots, levels)."""
    basis = np.eye(grouping.levels)[:, :, None]
    Basis([grouping]).to_cells(basis)
    return basis[:, :, 0]

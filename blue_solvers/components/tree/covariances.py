"""Covariance of sums of estimated cells, by one pass up the geounits that they weigh and the ancestors of these.

With weights w_g on the slots of geounit g and gains A_c (`tree_plan`), going up

    mu_g = sum_c A_c' lambda_c over the children c of g,    lambda_g = w_g + mu_g.

From below alone the children c of p are known with independent errors, of covariances V_c. Given the truth of p these
enter the sum's error with weights lambda_c - mu_p, so that p adds to the variance

    sum_c (lambda_c - mu_p)' V_c (lambda_c - mu_p),

where lambda_c = 0 for children without weights, which need no visit, only the sum of their V; and the root adds lambda'
V lambda. Nothing is subtracted: a sum of squares. Directions of c that nothing below determines have lambda_c = mu_p if
the sum can be estimated. Covariances are the same with two lambdas.

Where all geounits of a place have the same weights S, up to a sign, S = Q T with orthonormal Q of no more columns than
a piece has numbers: Q goes up in its place, which tells a root R of its covariance, and T' R' R T is that of the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
from scipy import sparse

from blue_solvers.components.component_products import Component, Ragged
from blue_solvers.components.orthogonal import ROUNDING, compress
from blue_solvers.components.reflections import Basis
from blue_solvers.components.tree.coefficients import Coefficients, PieceCoefficients, solve_components
from blue_solvers.components.tree.messages import merges_of
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table
from constraint_builders.memory import require_memory

COPIES = 4  # of a component's slots in a pass: what they weigh, what reaches them, and two products
ITSELF = np.ones((1, 1, 1))  # what sums take of themselves
Error = tuple[Float, Float | Ragged]  # weights on independent errors, (G, b, columns), and roots of their covariances


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
    problem: Problem, plan: TreePlan, coefficients: Sequence[Coefficients], W: sparse.csc_array
) -> Float:
    """Covariance of functionals of the estimate.

    Parameters
    ----------
    problem : Problem
    plan : TreePlan
        Its own.
    coefficients : sequence of Coefficients
        Of every component of the plan.
    W : csc_array, (m, K)
        Over the desired layout; a functional must be one that the measurements determine.

    Returns
    -------
    ndarray, (K, K)
        Symmetric, positive semidefinite to rounding.

    Raises
    ------
    MemoryError
        If the slots of the geounits in the pass would not fit.
    """
    weights, count = _weights(problem, W), W.shape[1]
    total = _SumOfSquares(count)
    branches = Branches(plan, np.concatenate([np.zeros(0, np.intp), *(own.geounits for own in weights)]))
    for number in sorted({number for own in weights for number in plan.maps[own.table.name].seen}):
        slots = _slots(plan, weights, count, number, branches)
        for piece, own in coefficients[number].pieces:
            on_piece = piece.of_weights(slots.swapaxes(0, 1).reshape(slots.shape[1], -1, count))
            on_piece = np.moveaxis(on_piece.reshape(piece.size, -1, len(slots), slots[0, 0].size), 2, 0)
            total.add(branches.errors(own, on_piece.reshape(len(slots), piece.size, -1)), ITSELF)
    return total.covariance()


def _weights(problem: Problem, W: sparse.csc_array) -> list[Weights]:
    """Functionals over the desired layout, (m, K), as what they take of every table."""
    spine, levels = problem.domain.spine, problem.desired_levels
    entries = sparse.coo_array(W)
    block = np.searchsorted(problem.desired.offsets, entries.row, side="right") - 1
    found = []
    for index in np.unique(block).tolist():
        table, own = problem.desired_tables[index], block == index
        number, cell = np.divmod(entries.row[own] - problem.desired.offsets[index], table.size)
        numbers, row = np.unique(number, return_inverse=True)
        pairs = row * table.size + cell, entries.col[own]
        cells = sparse.csr_array((entries.data[own], pairs), shape=(numbers.size * table.size, W.shape[1]))
        found.append(Weights(spine.members[levels[index]][numbers], table, cells))
    return found


class PlaceCovariances:
    """Covariances of K sums of a table's cells over places, each of which adds and subtracts whole geounits.

    Parameters
    ----------
    plan : TreePlan
    table : Table
        Of variables in use; of the components only those are solved that it sees, piece by piece.
    taken : csr_array, (cells, K)
        What every sum takes of the table's cells.
    """

    def __init__(self, plan: TreePlan, table: Table, taken: sparse.csr_array) -> None:
        self._plan, self._count = plan, taken.shape[1]
        weights = Weights(np.zeros(1, dtype=np.intp), table, taken)
        seen = plan.maps[table.name].seen
        slots = {number: _slots_of_table(plan, weights, plan.components[number])[0] for number in seen}
        # Of a piece what goes up of its numbers, (b, c), and what sums take of that, (c, rest, K):
        self._seen: list[tuple[PieceCoefficients, Float, Float]] = []
        solved = dict(zip(seen, solve_components(plan, seen), strict=True))
        for first in {id(own): number for number, own in solved.items()}.values():
            numbers = [number for number in seen if solved[number] is solved[first]]
            for piece, coefficients in solved[first].pieces:
                own = np.concatenate([piece.of_weights(slots[number]) for number in numbers], axis=1)
                if own.any():
                    up, taken_up = np.linalg.qr(own.reshape(len(own), -1))
                    self._seen.append((coefficients, up, taken_up.reshape(-1, *own.shape[1:])))

    def of(self, signs: sparse.csr_array) -> Float:
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
        total = _SumOfSquares(signs.shape[0] * self._count)
        geounits = np.flatnonzero(np.diff(counted.indptr))
        if signs.shape[0] == geounits.size == 1:  # what is known of it is known already
            place = int(self._plan.posterior_of[geounits[0]])
            for own, up, taken in self._seen:
                total.add([(counted.data[0] * up[None], own.matrices["posterior"][place : place + 1])], taken)
        elif geounits.size:
            branches = Branches(self._plan, geounits)
            often = np.zeros((branches.geounits.size, signs.shape[0]))
            often[branches.number[geounits]] = counted[:, geounits].toarray().T
            needed = 8.0 * often.size * COPIES * max((up.size for _, up, _ in self._seen), default=0)
            require_memory(needed, f"{self._count:,} sums over {often.shape[1]:,} places", "ask for fewer at a time")
            for own, up, taken in self._seen:
                weights = np.einsum("tp,mc->tmpc", often, up).reshape(len(often), len(up), -1)
                total.add(branches.errors(own, weights), taken)
        return total.covariance()


class _SumOfSquares:
    """A covariance of sums, from independent errors."""

    def __init__(self, count: int) -> None:
        self._covariance, self._rounding = np.zeros((count, count)), np.zeros(count)

    def add(self, errors: Iterable[Error], taken: Float) -> None:
        """Add errors, of whose columns, (places * b), the sums over every place take (b, rest, K)."""
        for left, root in errors:
            half = self._of_sums(root.swapaxes(1, 2) @ left, taken)
            self._covariance += half.T @ half
            sizes = abs(root) if isinstance(root, Ragged) else np.abs(root)
            self._rounding += (self._of_sums(sizes.swapaxes(1, 2) @ abs(left), abs(taken)) ** 2).sum(axis=0)

    def _of_sums(self, rows: Float, taken: Float) -> Float:
        """Rows over columns, (rows, columns), as rows over sums."""
        rows = rows.reshape(-1, rows.shape[-1])
        if len(rows) > rows.shape[1]:  # no more than there are columns have the same sums of products
            rows = np.asarray(np.linalg.qr(rows, mode="r"))
        own = np.tensordot(rows.reshape(len(rows), -1, len(taken)), taken, axes=(2, 0))
        return own.swapaxes(1, 2).reshape(-1, self._rounding.size)

    def covariance(self) -> Float:
        """Symmetric, 0 where only rounding is left of a variance."""
        exact = self._covariance.diagonal() <= ROUNDING**2 * self._rounding
        self._covariance[exact] = self._covariance[:, exact] = 0
        return (self._covariance + self._covariance.T) / 2


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
        pair_of = plan.posterior_of - 1
        self.class_of = plan.class_of[self.geounits]
        self.pair = pair_of[self.geounits[1:]]
        others = np.flatnonzero(~inside & (self.number[spine.parent] >= 0))
        self._other_pairs, self._other_counts = np.unique(pair_of[others], return_counts=True)
        self._other_class = plan.pair_class[self._other_pairs]
        self._other_parent = self.number[plan.parents[plan.pair_parent[self._other_pairs]]]

    def errors(self, coefficients: PieceCoefficients, weights: Float) -> Iterator[Error]:
        """Weights on independent errors in one component, (G, m, rest * K), and roots of their covariances, (G, m, m).

        Of weights on its slots, (T, m, rest * K), which are overwritten.
        """
        received = np.zeros_like(weights)
        for rows in reversed(self.levels):
            weights[rows] += received[rows]
            below = slice(rows.start - 1, rows.stop - 1)
            passed = coefficients.matrices["gain"][self.pair[below]].swapaxes(-1, -2) @ weights[rows]
            starts = np.flatnonzero(np.diff(self.parent[below], prepend=-1))  # siblings come together
            received[self.parent[below][starts]] += np.add.reduceat(passed, starts, axis=0)
        weights[0] += received[0]
        weights[1:] -= received[self.parent]
        yield weights, coefficients.matrices["root"][self.class_of]
        if self._other_pairs.size:
            roots = coefficients.matrices["root"][self._other_class].toarray()
            roots = roots * np.sqrt(self._other_counts)[:, None, None]
            order = np.argsort(self._other_parent, kind="stable")
            owners, root = _roots_of_sums(roots[order], self._other_parent[order])
            yield received[owners], root


def _roots_of_sums(roots: Float, owners: Index) -> tuple[Index, Float]:
    """Owners, and a square root of the sum of each one's covariances, (owners, m, m) from (numbers, m, m)."""
    rounds, totals, size = merges_of(owners)
    nodes = np.concatenate([roots, np.zeros((size - len(roots), *roots.shape[1:]))])
    for left, right, total in rounds:
        nodes[total] = compress(nodes[left], nodes[right])
    return np.unique(owners), nodes[totals]


def _slots(plan: TreePlan, weights: Sequence[Weights], count: int, number: int, branches: Branches) -> Float:
    """Weights on a component's slots, (T, m, rest, K)."""
    component = plan.components[number]
    shape = [len(range(g.levels)[own]) for g, own in zip(plan.groupings, component.slots, strict=True)]
    geounits, cells = branches.geounits.size, max(own.table.size for own in weights)
    needed = 8.0 * geounits * (COPIES * max(prod(shape), cells) * count + component.size**2)
    require_memory(needed, f"{count:,} functionals in {geounits:,} geounits", "ask for fewer at a time")
    slots = np.zeros((geounits, component.size, prod(shape) // component.size, count))
    for own in weights:
        if number in plan.maps[own.table.name].seen:
            slots[branches.number[own.geounits]] += _slots_of_table(plan, own, component)
    return slots


def _slots_of_table(plan: TreePlan, weights: Weights, component: Component) -> Float:
    """Weights on a table's cells as weights on a component's slots, (g, m, rest, K)."""
    table = plan.maps[weights.table.name]
    part = table.part(component)
    slots = weights.cells.toarray().reshape(weights.geounits.size, *(own.levels for own in table.axes), -1)
    Basis(table.axes).to_slots(slots)
    slots = slots[part.place]
    for place, (sums, contrast) in enumerate(zip(table.sums, part.contrasts, strict=True), 1):
        if not contrast:
            slots = np.moveaxis(np.tensordot(sums.T, slots, axes=(1, place)), 0, place)
    return component.to_front(slots).reshape(len(slots), component.size, -1, slots.shape[-1])

"""The exact estimate over all geounits of a spine: one pass up, one pass down, level by level.

In a basis of orthonormal contrasts and group sums (`reflections`) the problem falls into components, each a tree
problem with small matrices that all its right-hand sides share (`coefficients`). Going up, every geounit combines its
own measurements with the sum of its children's estimates; going down, every child takes its part of what its parent
learnt since. The transpose is the same two passes, with the two matrices of a geounit in each other's place.

Geounits without children that measured their finest table are most of any spine. They never change basis
(`level_tables`), and hold nothing between the passes.

Bytes that must move: every observed cell twice and every desired cell once. Geounits with children, and those that
did not measure their finest table, have their slots written going up and corrected going down besides. All of it goes
in blocks of geounits that stay in cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers.components.component_products import TableAccess
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.coefficients import NO_BOUNDARY, Boundary, solve_components
from blue_solvers.components.tree.level_tables import MeasuredTables, Rows, WantedTables
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.components.tree.tree_variances import TreeVariances
from blue_solvers.threads import Workers
from constraint_builders.arrays import Float, Index, Int32, as_slice, distinct_numbers

BLOCK_BYTES = 1 << 20  # working set of a block of geounits
AnyTables = WantedTables | MeasuredTables
OTHERS = -1  # members of a level that are worked on in slots, behind all kinds of leaves
LEAF_BLOCKS, FEW = 8, 256  # of leaves, which have fewer pairs, at a time, up to so many leaves


@dataclass(frozen=True)
class SomeMembers:
    """Some members of a level.

    Attributes
    ----------
    rows : ndarray of int, (G,)
    place : slice or ndarray of int
        The same, that take no copy where they lie together.
    pairs : ndarray of int
        Their pairs with their parents.
    pair_of : ndarray of int, (G,)
        Which of these each has.
    inner : slice or ndarray of int
        Which of them have children.
    numbers : ndarray of int
        Places of these among all geounits that do.
    """

    rows: Index
    place: Rows
    pairs: Index
    pair_of: Int32
    inner: Rows
    numbers: Index


@dataclass(frozen=True)
class Siblings:
    """Some parents, and their children of one level.

    Attributes
    ----------
    parents : slice or ndarray of int
        Among geounits with children.
    pairs : ndarray of int
        Their pairs with classes of children, in order of parents.
    families : csr_array, (parents, pairs)
        Sums over the pairs of every parent.
    adding : csr_array, (pairs, members of the level)
        Sums over the children of every pair.
    """

    parents: slice | Index
    pairs: Index
    families: sparse.csr_array
    adding: sparse.csr_array

    def add_to_parents(self, by_pair: Float, sums: Float) -> None:
        """Add what pairs have, (pairs, ..., K), to what all geounits with children have, (parents, ..., K)."""
        sums[self.parents] += sums_of_rows(self.families, by_pair)


@dataclass(frozen=True)
class Run:
    """Both passes over some vectors.

    Attributes
    ----------
    given, result : sequence of ndarray, (G, ..., K)
        All tables of a layout: what is read, and written.
    sources, targets : sequence of WantedTables or MeasuredTables
        Tables of every level that are read, and written.
    sums : ndarray, (geounits with children, ..., K)
        Going up, over their children; going down, what they learnt.
    transpose : bool
    workers : Workers
    every : bool
        Whether leaves that hold nothing are wanted in cells too.
    by_parent : sequence of ndarray, (geounits with children, ..., K)
        Sums over their children of the tables that are read at the last level, where they are known.
    """

    given: Sequence[Float]
    result: Sequence[Float]
    sources: Sequence[AnyTables]
    targets: Sequence[AnyTables]
    sums: Float
    transpose: bool
    workers: Workers
    every: bool = False
    by_parent: Sequence[Float] = ()


class TreeForm:
    """The two passes; see the module.

    Parameters
    ----------
    problem : StructuredProblem
    plan : TreePlan, optional
        Of the problem.
    boundary : Boundary, optional
        What is known from outside, by default nothing.

    Attributes
    ----------
    plan : TreePlan
    coefficients : list of Coefficients
        Of every component of the plan.
    """

    def __init__(
        self, problem: StructuredProblem, plan: TreePlan | None = None, boundary: Boundary = NO_BOUNDARY
    ) -> None:
        self._problem = problem
        self.plan = plan = plan or TreePlan(problem)
        self.coefficients = solve_components(plan, range(len(plan.components)), boundary)
        self._shape = tuple(grouping.levels for grouping in plan.groupings)
        self._basis = Basis(plan.groupings)
        numbers = range(len(plan.levels))
        self._wanted = [WantedTables(problem, plan, number) for number in numbers]
        self._measured = [MeasuredTables(problem, plan, number, self.coefficients) for number in numbers]
        self._known: dict[tuple[int, ...], tuple[list[SomeMembers], list[Siblings]]] = {}

    @cached_property
    def _products(self) -> dict[str, TableAccess]:
        """Of slots with what multiplies the sum of children, and with gains."""
        plan, pairs = self.plan, list(zip(self.plan.components, self.coefficients, strict=True))
        return {
            name: TableAccess(plan.maps[plan.finest.name], [(one, own.matrices[name]) for one, own in pairs])
            for name in ("children", "gain")
        }

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        deque(self._passes(Y, X), 0)
        return X

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest difference of a geounit's estimate from the sum of its children's."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        above, below = np.zeros((2, self.plan.parents.size, *self._shape, Y.shape[1]))
        for number, estimates in self._passes(Y, X, every=True):
            level = self.plan.levels[number]
            above[self.plan.parent_number[level.members[level.inner]]] = estimates[level.inner]
            for kind in range(len(self._measured[number].rows)):
                for own in self._members(number, kind, Y.shape[1])[1]:
                    own.add_to_parents(sums_of_rows(own.adding, estimates), below)
        return X, float(abs(above - below).max(initial=0.0))

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K): the transpose of `apply`."""
        W = np.zeros((self._problem.observed.size, V.shape[1]))
        deque(self._passes(V, W, transpose=True), 0)
        return W

    def _passes(
        self, given: Float, result: Float, transpose: bool = False, every: bool = False
    ) -> Iterator[tuple[int, Float]]:
        """Both passes, (n, K) to (m, K), or their transpose; every level as left going down, forgotten at the next.

        These are final estimates in cells. They lack leaves that hold nothing, unless `every` one is asked for.

        Let K be what a geounit makes of its children's sum s, A its gain, o what is read of it. Going up e = o + K s,
        s the sum of the children's e; going down x = e + A l with its parent's l, and it leaves l = x - s. Transposed
        e = o + s, s the sum of the children's A' e; x = e + l, and it leaves l = K' x - s.
        """
        levels = range(len(self.plan.levels))
        held: list[Float] = [np.empty(0)] * len(levels)
        source, target = (self._problem.observed, self._problem.desired)[:: -1 if transpose else 1]
        tables, results = list(source.tables(given).values()), list(target.tables(result).values())
        with Workers(max(given.nbytes, result.nbytes)) as workers:
            run = self._run(tables, results, transpose, workers, every)
            for number in reversed(levels):
                held[number] = self._go_up(run, number)
            for number in levels:
                self._go_down(run, number, held[number])
                yield number, held[number]
                held[number] = np.empty(0)

    def _run(self, given: Sequence[Float], result: Sequence[Float], transpose: bool, *others: Any) -> Run:
        """Both passes from tables of one layout to those of the other, each (G, ..., K), or their transpose."""
        measured, wanted = self._measured, self._wanted
        ends: tuple[Sequence[AnyTables], ...] = (wanted, measured) if transpose else (measured, wanted)
        sums = np.zeros((self.plan.parents.size, *self._shape, given[-1].shape[-1]))
        return Run(given, result, ends[0], ends[1], sums, transpose, *others)

    def _go_up(self, run: Run, number: int) -> Float:
        """What geounits of a level that hold something know from below, in slots."""
        K, source, level = run.sums.shape[-1], run.sources[number], self.plan.levels[number]
        tables = source.of(run.given)
        count = level.members.size if run.every or self._measured[number].rows[OTHERS].size else 0
        held = run.targets[number].room(run.result, (count, *self._shape, K))

        def collect(some: SomeMembers) -> None:
            block = source.read(tables, some.place, K)
            children = run.sums[some.numbers]
            if not run.transpose:
                children = self._products["children"].to_slots(children, some.numbers)
            block[some.inner] += children
            held[some.place] = block

        def add(own: Siblings, totals: Float) -> None:
            """Add the sums over children, (pairs, ..., K), to those of their parents."""
            if run.transpose:
                totals = self._products["gain"].from_slots(totals, own.pairs)
            own.add_to_parents(totals, run.sums)

        def add_leaves(kind: int, own: Siblings) -> None:
            shape = own.pairs.size, *self._shape, K
            totals = np.zeros(shape)
            known = [table[own.parents].reshape(shape[0], -1, K) for table in run.by_parent]
            source.read_leaves(known or [sums_of_rows(own.adding, table) for table in tables], kind, totals)
            self._basis.to_slots(totals)
            add(own, totals)

        blocks, siblings = self._members(number, OTHERS, K)
        run.workers.for_each(collect, blocks)
        run.workers.for_each(lambda own: add(own, sums_of_rows(own.adding, held)), siblings)
        for kind in range(len(self._measured[number].rows) - 1):
            run.workers.for_each(partial(add_leaves, kind), self._members(number, kind, K)[1])
        return held

    def _go_down(self, run: Run, number: int, held: Float) -> None:
        """Add to geounits, (G, ..., K), their part of what parents learnt, keep what they learn, write their tables."""
        K, source, target = run.sums.shape[-1], run.sources[number], run.targets[number]
        tables, results = source.of(run.given), target.of(run.result)

        def finish(some: SomeMembers) -> None:
            block = held[some.place]
            if number:
                block += self._parts(run, some).take(some.pair_of, axis=0)
            children = block[some.inner]
            if run.transpose:
                children = self._products["children"].from_slots(children, some.numbers)
            run.sums[some.numbers] = children - run.sums[some.numbers]
            target.write(block, results, some.place)
            if not isinstance(some.place, slice):
                held[some.place] = block

        def estimate(kind: int, some: SomeMembers) -> None:
            if number:
                parts = self._parts(run, some)
                self._basis.to_cells(parts)
            for own in chunks(some.rows.size, self._count(K)):
                rows = as_slice(some.rows[own])
                in_place = held.size and isinstance(rows, slice)
                cells = held[rows] if in_place else np.empty((some.rows[own].size, *self._shape, K))
                if number:
                    parts.take(some.pair_of[own], axis=0, out=cells, mode="clip")  # pairs are in range
                else:
                    cells[...] = 0
                source.read_leaves([table[rows] for table in tables], kind, cells)
                for table, found in zip(results, target.write_leaves(cells, kind), strict=True):
                    table[rows] = found
                if run.every:
                    held[rows] = cells

        run.workers.for_each(finish, self._members(number, OTHERS, K)[0])
        for kind in range(len(self._measured[number].rows) - 1):
            run.workers.for_each(partial(estimate, kind), self._members(number, kind, K)[0])

    def _parts(self, run: Run, some: SomeMembers) -> Float:
        """What some geounits take of what their parents learnt, by pair."""
        learnt = run.sums[self.plan.pair_parent[some.pairs]]
        return learnt if run.transpose else self._products["gain"].to_slots(learnt, some.pairs)

    def _members(self, *key: int) -> tuple[list[SomeMembers], list[Siblings]]:
        if key not in self._known:
            self._known[key] = list(self._blocks(*key)), list(self._siblings(*key))
        return self._known[key]

    def _blocks(self, number: int, kind: int, K: int) -> Iterator[SomeMembers]:
        """Members of a level, so many at a time that they stay in cache."""
        level, every = self.plan.levels[number], self._measured[number].rows[kind]
        count = self._count(K)
        for some in chunks(every.size, max(count, min(LEAF_BLOCKS * count, FEW)) if kind >= 0 else count):
            rows = every[some]
            numbers = self.plan.parent_number[level.members[rows]]
            inner = np.flatnonzero(numbers >= 0)
            pairs, pair_of = distinct_numbers(level.parent_pair[rows])
            yield SomeMembers(rows, as_slice(rows), pairs, pair_of, as_slice(inner), numbers[inner])

    def _count(self, K: int) -> int:
        return max(1, BLOCK_BYTES // (8 * K * prod(self._shape)))

    def _siblings(self, number: int, kind: int, K: int) -> Iterator[Siblings]:
        """Members of a level by their parents, so many of these at a time; none of the root."""
        level, rows = self.plan.levels[number], self._measured[number].rows[kind]
        if not number:
            return
        pairs, pair_of = distinct_numbers(level.parent_pair[rows])
        adding = sparse.csr_array((np.ones(rows.size), (pair_of, rows)), shape=(pairs.size, level.members.size))
        parents, starts = np.unique(self.plan.pair_parent[pairs], return_index=True)
        ends = np.append(starts, pairs.size)
        families = sparse.csr_array((np.ones(pairs.size), np.arange(pairs.size), ends), (parents.size, pairs.size))
        for some in chunks(parents.size, min(self._count(K), max(4 * FEW, -(-parents.size // 4)))):  # for threads
            own = slice(ends[some.start], ends[some.stop])
            yield Siblings(as_slice(parents[some]), pairs[own], families[some, own], adding[own])

    def variances(self, nothing: float = 0.0) -> Float:
        """Variance of every desired cell, (m,); what is below `nothing` is 0."""
        by_table, offsets = self.variances_by_table(nothing), self._problem.desired.offsets.tolist()
        result = np.empty(offsets[-1])
        for i, block in enumerate(pairwise(offsets)):
            by_table.of(i, out=result[slice(*block)].reshape(-1, self._problem.desired_tables[i].size))
        return result

    def variances_by_table(self, nothing: float = 0.0) -> TreeVariances:
        """The same, some geounits of a table at a time."""
        return TreeVariances(self._problem, self.plan, self.coefficients, nothing)


def sums_of_rows(adding: sparse.csr_array, values: Float) -> Float:
    """Products of a matrix, (m, n), with values, (n, ...)."""
    return (adding @ values.reshape(len(values), -1)).reshape(-1, *values.shape[1:])


def chunks(stop: int, size: int) -> list[slice]:
    """Consecutive slices of equal size."""
    return [slice(first, min(first + size, stop)) for first in range(0, stop, size)]

"""The exact estimate over all geounits of a spine: one pass up, one pass down, level by level.

In a basis of orthonormal contrasts and group sums (`reflections`) the problem falls into components, each a tree
problem with small matrices that all its right-hand sides share (`coefficients`). Going up, every geounit combines its
own measurements with the sum of its children's estimates; going down, every child takes its part of what its parent
learnt since.

Geounits without children that measured their finest table are most of any spine. They never change basis
(`leaf_form`), and hold nothing between the passes.

Bytes that must move: every observed cell twice and every desired cell once. Geounits with children, and those that
did not measure their finest table, have their slots written going up and corrected going down besides. All of it goes
in blocks of geounits that stay in cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from math import prod

import numpy as np

from blue_solvers.components.batches import chunks, one_or_all
from blue_solvers.components.component_products import Component, sum_of
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.table_access import TableAccess
from blue_solvers.components.table_sums import TableSums
from blue_solvers.components.tree.by_parent import ByParent
from blue_solvers.components.tree.coefficient_arrays import Boundary
from blue_solvers.components.tree.coefficients import solve_components
from blue_solvers.components.tree.leaf_form import LeafForm, measured_at
from blue_solvers.components.tree.level_blocks import LevelBlock, blocks_of
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.piecewise import Composed, together
from blue_solvers.components.tree.slot_products import ProductsByName
from blue_solvers.components.tree.tree_plan import TreePlan, plan_of
from blue_solvers.components.tree.tree_variances import TreeVariances
from blue_solvers.threads import Workers
from constraint_builders.arrays import Float, Index, as_slice

BLOCK_BYTES = 1 << 22  # working set of a block of geounits
WIDE = 256  # numbers of a geounit from which work on arrays outweighs Python's own, which threads cannot share


class TreeForm:
    """The two passes; see the module.

    Parameters
    ----------
    problem : StructuredProblem

    Attributes
    ----------
    plan : TreePlan
    coefficients : list of Coefficients
        Of every component of the plan.
    """

    def __init__(self, problem: StructuredProblem) -> None:
        self._problem = problem
        tables = list(problem.observed_tables)
        desired = list(problem.desired_tables)
        self.plan = self._make_plan()
        self._spine = self.plan.spine
        self.coefficients = solve_components(self.plan, self._boundary())
        self._shape = tuple(grouping.levels for grouping in self.plan.groupings)
        self._basis = Basis(self.plan.groupings)
        self._products = ProductsByName(self.plan.components, self.coefficients, self._shape)
        self._readers = {table.name: TableAccess(self.plan, table) for table in tables}
        numbers = range(len(self._spine.levels))
        self._desired_at = [[i for i, own in enumerate(problem.desired_levels) if own == number] for number in numbers]
        self._sums = [
            TableSums(problem.schema, self.plan.finest, [desired[i] for i in chosen]) for chosen in self._desired_at
        ]
        self._leaves = [LeafForm(self.plan, number, problem, self._products, BLOCK_BYTES) for number in numbers]
        self._others = [
            ByParent(self.plan, level, np.delete(np.arange(level.members.size), leaves.rows))
            for level, leaves in zip(self.plan.levels, self._leaves, strict=True)
        ]
        self._blocks_at: dict[tuple[int, int], list[LevelBlock]] = {}

    def _make_plan(self) -> TreePlan:
        return plan_of(self._problem)

    def _boundary(self) -> Boundary:
        """Nothing comes from outside."""
        return Boundary()

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        with self._workers(Y) as workers:
            for _ in self._estimates(Y, workers, X):
                pass
        return X

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and its violation."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        above, below = np.zeros((2, self.plan.parents.size, *self._shape, Y.shape[1]))
        with self._workers(Y) as workers:
            for number, estimates in self._estimates(Y, workers, X, every=True):
                above[self.plan.inner_numbers(number)] = estimates[self.plan.levels[number].inner]
                self._all[number].add_to_parents(estimates, below)
        return X, float(abs(above - below).max(initial=0.0))

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, over all cells."""
        return self.apply_checked(Y)[1]

    def _workers(self, Y: Float) -> Workers:
        cells = max(self._problem.observed.size, self._problem.desired.size)
        shared = self.plan.finest.size * Y.shape[1] >= WIDE or any(leaves.rows.size for leaves in self._leaves)
        return Workers(8.0 * Y.shape[1] * cells if shared else 0)

    def _estimates(
        self, Y: Float, workers: Workers, X: Float | None = None, every: bool = False
    ) -> Iterator[tuple[int, Float]]:
        """Final estimates of every level in cells, from the root down, each forgotten when the next is asked for.

        Where `X` is given, all that is desired is written there, levels that a whole table is desired at are worked on
        in its place, and of others estimates lack the geounits that `LeafForm` takes, unless `every` one is asked for.
        These are never in slots; all others are until their estimates are final.
        """
        K, Y = Y.shape[1], np.ascontiguousarray(Y)
        estimates: list[Float] = [np.empty(0)] * len(self.plan.levels)
        sums = np.empty((self.plan.parents.size, *self._shape, K))
        sums[self._added_to] = 0
        for number in reversed(range(len(self.plan.levels))):
            estimates[number] = self._room(number, K, X)
            self._go_up(number, Y, sums, estimates[number], workers)
            self._leaves[number].go_up(Y, sums, workers)
            self._others[number].add_to_parents(estimates[number], sums)
        learnt = sums  # where it is known, in place
        for number in range(len(self.plan.levels)):
            self._go_down(number, estimates[number], learnt, workers)
            tabulates = X is not None and (not every or np.may_share_memory(estimates[number], X))
            self._leaves[number].go_down(Y, learnt, estimates[number], X if tabulates else None, workers)
            if X is not None:
                rows = self._others[number].rows if tabulates else self._all[number].rows
                self._read_desired(number, rows, estimates[number], X, workers)
            yield number, estimates[number]
            estimates[number] = np.empty(0)

    @cached_property
    def _added_to(self) -> slice | Index:
        """Geounits with children, to whose sums over these something is added before it is set."""
        return as_slice(np.setdiff1d(np.arange(self.plan.parents.size), np.concatenate([x.sets for x in self._leaves])))

    def _room(self, number: int, K: int, X: Float | None) -> Float:
        """Memory for the estimates of a level."""
        members = self.plan.levels[number].members
        for i in self._desired_at[number]:
            if X is not None and self._problem.desired_tables[i].name == self.plan.finest.name:
                return X[self._problem.desired.block(i)].reshape(members.size, *self._shape, K)
        return np.empty((members.size, *self._shape, K))

    def _go_up(self, number: int, Y: Float, sums: Float, result: Float, workers: Workers) -> None:
        """Estimates of a level from itself and below, in slots, into `result`."""
        level = self.plan.levels[number]
        measured = measured_at(self._problem, level, Y)

        def collect(some: LevelBlock) -> None:
            block = result[some.rows]
            self._collect(level, some, measured, block)
            if some.numbers.size:
                children = sums[some.numbers]
                self._multiply(children, some.numbers, "children")
                block[some.inner] += children
            _put_back(block, some.rows, result)

        workers.for_each(collect, self._held(number, Y.shape[1]))

    def _held(self, number: int, K: int) -> list[LevelBlock]:
        """Members of a level that are in slots, so many at a time that their tables' coordinates stay in cache too."""
        if (number, K) not in self._blocks_at:
            level = self.plan.levels[number]
            count = self._rows_in_cache(K, sum(table.size for _, table in level.tables))
            self._blocks_at[number, K] = blocks_of(level, self.plan.parent_number, self._others[number].rows, count)
        return self._blocks_at[number, K]

    def _go_down(self, number: int, estimates: Float, learnt: Float, workers: Workers) -> None:
        """Add to every geounit its part of what its parent learnt, keep what it learnt itself, and turn it to cells.

        All in place; what it learnt is what its estimate has beyond the sum of its children's.
        """
        pairs = self.plan.levels[number].parent_pair

        def finish(some: LevelBlock) -> None:
            block = estimates[some.rows]
            if number:
                parts = learnt[self.plan.pair_parent[pairs[some.rows]]]
                self._multiply(parts, pairs[some.rows], "gain")
                block += parts
            numbers = as_slice(some.numbers)
            learnt[numbers] = block[some.inner] - learnt[numbers]
            self._basis.to_cells(block)
            self._empty(number, some.rows, block)
            _put_back(block, some.rows, estimates)

        workers.for_each(finish, self._held(number, estimates.shape[-1]))

    def _empty(self, number: int, rows: slice | Index, block: Float) -> None:
        """Set to 0 what is known to be, and which large counts known exactly beside leave rounding in."""
        zeros, axes = self.plan.levels[number].zeros, self.plan.zero_axes
        if zeros is not None:
            lengths = [g.levels if g.axis in axes else 1 for g in self.plan.groupings]
            flags = zeros[rows].reshape(len(block), *lengths, 1)
            np.copyto(block, 0.0, where=np.broadcast_to(flags, block.shape))

    def _collect(self, level: LevelPlan, some: LevelBlock, measured: list[Float], block: Float) -> None:
        """What a level's own tables make of the slots of some geounits, into `block`."""
        names = [(t, self._readers[table.name]) for t, table in level.tables]
        used = [(own, *names[own.place]) for own in some.used]
        coordinates = [reader.coordinates(measured[own.place][some.rows]) for own, _, reader in used]
        block[...] = 0
        for (table, _, reader), own in zip(used, coordinates, strict=True):
            reader.add_numbers(own, table.weights, block)
        classes = some.classes
        self._multiply_numbers(block, classes, "own")
        if any(table.exact is not None for table in some.used):
            exactly = np.zeros_like(block)
            for (table, _, reader), own in zip(used, coordinates, strict=True):
                if table.exact is not None:
                    reader.add_numbers(own, table.exact, exactly)
            self._multiply_numbers(exactly, classes, "own_exact")
            block += exactly
        tables = {t: (reader, own) for (_, t, reader), own in zip(used, coordinates, strict=True)}
        for component, gains in self._matrices(level, classes):
            seeing = [t for t in tables if t in gains]
            if not seeing:
                block[component.place] = 0
                continue
            parts = [own[reader.part(component)] for reader, own in (tables[t] for t in seeing)]
            block[component.place] = sum_of(component, [gains[t] for t in seeing], parts, component.groups)

    def _matrices(self, level: LevelPlan, classes: Index) -> Iterator[tuple[Component, dict[int, Float | Composed]]]:
        """Components of several group sums, each with its gains from the tables of a level that see it."""
        places = one_or_all(classes - level.first_class)
        for component, own in zip(self.plan.components, self._measured, strict=True):
            if component.size > 1:
                yield component, {t: own[t][places] for t, _ in level.tables if t in own}

    @cached_property
    def _measured(self) -> list[dict[int, Float | Composed]]:
        """Of every component its gains from tables, by their numbers."""
        return [
            {t: together(gains, component.size) for t, gains in own.measured.items() if component.size > 1}
            for component, own in zip(self.plan.components, self.coefficients, strict=True)
        ]

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K): the transpose of `apply`; of geounits without children nothing is held between the passes."""
        V = np.ascontiguousarray(V)
        learnt = np.zeros((self.plan.parents.size, *self._shape, V.shape[1]))
        result = np.zeros((self._problem.observed.size, V.shape[1]))
        for number in reversed(range(1, len(self.plan.levels))):
            self._pull_up(number, V, learnt)
        with self._workers(V) as workers:
            for number in range(len(self.plan.levels)):
                places = self._desired_places(number, V)
                work = partial(self._pull_down, number, places, learnt, result)
                workers.for_each(work, self._held(number, V.shape[1]))
                self._leaves[number].pull_down(V, learnt, result, workers)
        return result

    def _pull_up(self, number: int, V: Float, learnt: Float) -> None:
        """Transpose of `_go_down`: what every parent's learning is worth to its children."""
        everyone, level = self._all[number], self.plan.levels[number]
        places = [everyone.sum_by_pair(place) for place in self._desired_places(number, V)]
        ranks = self.plan.class_rank[self.plan.pair_class[everyone.pairs]]
        sums = self._pulled(number, ranks, places, V.shape[1])
        if level.inner.size:
            sums += everyone.sum_by_pair(learnt[self.plan.parent_number[level.members[level.inner]]], level.inner)
        self._multiply(sums, everyone.pairs, "gain", transpose=True)
        parents, starts = np.unique(self.plan.pair_parent[everyone.pairs], return_index=True)
        learnt[parents] += np.add.reduceat(sums, starts, axis=0)

    def _pull_down(self, number: int, places: list[Float], learnt: Float, result: Float, some: LevelBlock) -> None:
        """Transpose of `_go_up` for some geounits; of those with children what these are told, in place of `learnt`."""
        level, numbers = self.plan.levels[number], as_slice(some.numbers)
        block = self._pulled(number, some.rows, [place[some.rows] for place in places], result.shape[1])
        if number:
            block += learnt[self.plan.parent_number[self.plan.spine.parent[level.members[some.rows]]]]
        block[some.inner] += learnt[numbers]
        sums = block[some.inner].copy()
        self._multiply(sums, some.numbers, "children", transpose=True)
        learnt[numbers] = sums - learnt[numbers]
        self._collect_transpose(level, some, block, result)

    def _pulled(self, number: int, rows: slice | Index, places: list[Float], K: int) -> Float:
        """Transpose of `_read_desired`: what is wanted of some geounits, or of some that are alike each, in slots."""
        if not places:
            return np.zeros((len(self.plan.levels[number].members[rows]), *self._shape, K))
        cells = self._sums[number].spread(places)
        cells = cells.reshape(len(cells), *self._shape, K)
        self._empty(number, rows, cells)
        self._basis.to_slots(cells)
        return cells

    def _collect_transpose(self, level: LevelPlan, some: LevelBlock, block: Float, result: Float) -> None:
        """Transpose of `_collect`."""
        matrices = list(self._matrices(level, some.classes))
        exactly = block.copy() if any(table.exact is not None for table in some.used) else block
        numbers = block.copy() if matrices else block
        if exactly is not block:
            self._multiply_numbers(exactly, some.classes, "own_exact")
        self._multiply_numbers(numbers, some.classes, "own")
        for used in some.used:
            t, table = level.tables[used.place]
            reader = self._readers[table.name]
            own = reader.empty(block)
            reader.read_numbers(numbers, used.weights, own)
            if used.exact is not None:
                other = reader.empty(block)
                reader.read_numbers(exactly, used.exact, other)
                own += other
            for component, gains in matrices:
                if t in gains:
                    lengths = reader.lengths(component)
                    pulled = sum_of(component, [gains[t].swapaxes(1, 2)], [block[component.place]], lengths)
                    own[reader.part(component)] = pulled
            place = result[self._problem.observed.block(t)].reshape(level.members.size, *table.shape, -1)
            place[some.rows] = reader.cells(own)

    @cached_property
    def _all(self) -> list[ByParent]:
        """Every geounit of every level."""
        return [ByParent(self.plan, level, np.arange(level.members.size)) for level in self.plan.levels]

    def _rows_in_cache(self, K: int, beside: int = 0) -> int:
        """Geounits of which so many numbers are held beside their slots."""
        return max(1, BLOCK_BYTES // (8 * K * (prod(self._shape) + beside)))

    def _multiply(self, block: Float, entries: Index, name: str, transpose: bool = False) -> None:
        """Multiply components by coefficients of geounits with children, or of pairs, in place."""
        self._products[name].multiply(block, entries, transpose)

    def _multiply_numbers(self, block: Float, classes: Index, name: str) -> None:
        """The same for components of one group sum only, by class."""
        self._products[name].multiply(block, classes)

    def _read_desired(self, number: int, rows: Index, estimates: Float, X: Float, workers: Workers) -> None:
        """Desired tables of some of a level, but for one that the estimates were worked out in the place of."""
        places = self._desired_places(number, X)
        if len(places) == 1 and np.may_share_memory(places[0], estimates):
            return

        def read(some: slice) -> None:
            own = as_slice(rows[some])
            for place, cells in zip(places, self._sums[number](estimates[own]), strict=True):
                if not np.may_share_memory(place, estimates):
                    place[own] = cells

        workers.for_each(read, chunks(rows.size, self._rows_in_cache(X.shape[1])))

    def _desired_places(self, number: int, X: Float) -> list[Float]:
        """Where the desired tables of a level are in the layout, (G, *shape, K)."""
        count, tables = self.plan.levels[number].members.size, self._problem.desired_tables
        own = ((tables[i], X[self._problem.desired.block(i)]) for i in self._desired_at[number])
        return [place.reshape(count, *table.shape, X.shape[1]) for table, place in own]

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        result, variances = np.empty(self._problem.desired.size), self.variances_by_table()
        for level, chosen in zip(self.plan.levels, self._desired_at, strict=True):
            for i in chosen:
                variances.fill(i, result[self._problem.desired.block(i)].reshape(level.members.size, -1))
        return result

    def variances_by_table(self) -> TreeVariances:
        """The same, some geounits of a table at a time."""
        return TreeVariances(self._problem, self.plan, self.coefficients)


def _put_back(block: Float, rows: slice | Index, array: Float) -> None:
    """Where rows are not consecutive a block of them is a copy."""
    if not isinstance(rows, slice):
        array[rows] = block

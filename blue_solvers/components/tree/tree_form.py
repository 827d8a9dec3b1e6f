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
from blue_solvers.components.tree.by_parent import ByParent, ChildrenOfPairs
from blue_solvers.components.tree.coefficients import Boundary, solve_components
from blue_solvers.components.tree.disagreement import Disagreement
from blue_solvers.components.tree.leaf_form import LeafForm, measured_at
from blue_solvers.components.tree.level_blocks import LevelBlock, blocks_of
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.place_variances import PlaceVariances
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
        self._leaves = [
            LeafForm(self.plan, self.coefficients, number, problem, self._readers, self._products, BLOCK_BYTES)
            for number in numbers
        ]
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
            for number, estimates in self._estimates(Y, workers, X):
                self._read_desired(number, estimates, X, workers)
        return X

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and its violation."""
        X, found = np.empty((self._problem.desired.size, Y.shape[1])), Disagreement(self.plan, self._all)
        with self._workers(Y) as workers:
            for number, estimates in self._estimates(Y, workers, X):
                self._read_desired(number, estimates, X, workers)
                found.look_at(number, estimates)
        return X, found.largest

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, over all cells."""
        found = Disagreement(self.plan, self._all)
        with self._workers(Y) as workers:
            for number, estimates in self._estimates(Y, workers):
                found.look_at(number, estimates)
        return found.largest

    def _workers(self, Y: Float) -> Workers:
        cells = max(self._problem.observed.size, self._problem.desired.size)
        shared = self.plan.finest.size * Y.shape[1] >= WIDE or any(leaves.is_compiled for leaves in self._leaves)
        return Workers(8.0 * Y.shape[1] * cells if shared else 0)

    def _estimates(self, Y: Float, workers: Workers, X: Float | None = None) -> Iterator[tuple[int, Float]]:
        """Final estimates of every level in cells, from the root down, each forgotten when the next is asked for.

        Where `X` is given, levels that a whole table is desired at are worked on in its place there, and geounits that
        `LeafForm` tabulates have all that is desired of them written there, and nothing here. Geounits that
        `LeafForm` takes are never in slots; all others are until their estimates are final.
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
            self._finish(number, estimates[number], learnt, workers)
            self._leaves[number].go_down(Y, learnt, estimates[number], X, workers)
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
        """Add to every geounit in slots its part of what its parent learnt, in place."""
        others = self._others[number]
        if not others.pairs.size:
            return

        def add(lot: ChildrenOfPairs) -> None:
            parts = learnt[lot.parents]
            self._multiply(parts, lot.pairs, "gain")
            for rows, part_of in lot.children:
                estimates[rows] += parts[part_of]

        workers.for_each(add, others.lots(self._rows_in_cache(learnt.shape[-1])))

    def _finish(self, number: int, estimates: Float, learnt: Float, workers: Workers) -> None:
        """What geounits learnt beyond the sums of their children, and from slots to cells, both in place."""

        def finish(some: LevelBlock) -> None:
            block = estimates[some.rows]
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

    def _matrices(self, level: LevelPlan, classes: Index) -> Iterator[tuple[Component, dict[int, Float]]]:
        """Components of several group sums, each with its gains from the tables of a level that see it."""
        places = one_or_all(classes - level.first_class)
        for component, own in zip(self.plan.components, self.coefficients, strict=True):
            if component.size > 1:
                yield component, {t: own.measured[t][places] for t, _ in level.tables if t in own.measured}

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K); all of it in slots."""
        with self._workers(V) as workers:
            return self._two_passes_back(V, workers)

    def _two_passes_back(self, V: Float, workers: Workers) -> Float:
        K = V.shape[1]
        levels = self.plan.levels
        pulls = [np.zeros((level.members.size, *self._shape, K)) for level in levels]
        learnt = np.zeros((self.plan.parents.size, *self._shape, K))
        for number in reversed(range(len(levels))):
            level = levels[number]
            self._write_desired(number, V, pulls[number], workers)
            numbers = self.plan.parent_number[level.members[level.inner]]
            pulls[number][level.inner] += learnt[numbers]
            self._pull_up(number, pulls[number], learnt)
        result = np.zeros((self._problem.observed.size, K))
        from_parents = learnt  # where it is known, in place
        for number, level in enumerate(levels):
            self._all[number].add_from_parents(from_parents, pulls[number])
            numbers = self.plan.parent_number[level.members[level.inner]]
            sums = pulls[number][level.inner]
            self._multiply(sums, numbers, "children", transpose=True)
            from_parents[numbers] = sums - learnt[numbers]
            blocks = self._blocks(np.arange(level.members.size), K)
            workers.for_each(partial(self._collect_transpose, level, pulls[number], result), blocks)
        return result

    def _pull_up(self, number: int, pulls: Float, learnt: Float) -> None:
        """Transpose of `_go_down`: what every parent's learning is worth to its children."""
        everyone = self._all[number]
        if not everyone.pairs.size:
            return
        sums = everyone.sum_by_pair(pulls)
        self._multiply(sums, everyone.pairs, "gain", transpose=True)
        np.add.at(learnt, self.plan.pair_parent[everyone.pairs], sums)

    def _collect_transpose(self, level: LevelPlan, pulls: Float, result: Float, rows: slice | Index) -> None:
        block, classes = pulls[rows], level.class_of[rows]
        matrices = list(self._matrices(level, classes))
        numbers, exactly = block.copy(), block.copy()
        self._multiply_numbers(numbers, classes, "own")
        self._multiply_numbers(exactly, classes, "own_exact")
        for (t, table), weights, exact in zip(level.tables, level.weights, level.exact, strict=True):
            if not (weights[rows].any() or exact[rows].any()):
                continue
            reader = self._readers[table.name]
            own = reader.empty(block)
            reader.read_numbers(numbers, weights[rows], own)
            if exact[rows].any():
                other = reader.empty(block)
                reader.read_numbers(exactly, exact[rows].astype(float), other)
                own += other
            for component, gains in matrices:
                if t in gains:
                    lengths = reader.lengths(component)
                    pulled = sum_of(component, [gains[t].swapaxes(1, 2)], [block[component.place]], lengths)
                    own[reader.part(component)] = pulled
            place = result[self._problem.observed.block(t)].reshape(level.members.size, *table.shape, -1)
            place[rows] = reader.cells(own)

    @cached_property
    def _all(self) -> list[ByParent]:
        """Every geounit of every level."""
        return [ByParent(self.plan, level, np.arange(level.members.size)) for level in self.plan.levels]

    def _blocks(self, rows: Index, K: int, beside: int = 0) -> list[slice | Index]:
        return [as_slice(rows[some]) for some in chunks(rows.size, self._rows_in_cache(K, beside))]

    def _rows_in_cache(self, K: int, beside: int = 0) -> int:
        """Geounits of which so many numbers are held beside their slots."""
        return max(1, BLOCK_BYTES // (8 * K * (prod(self._shape) + beside)))

    def _multiply(self, block: Float, entries: Index, name: str, transpose: bool = False) -> None:
        """Multiply components by coefficients of geounits with children, or of pairs, in place."""
        families = self.plan.families
        of = families.of_parent if name == "children" else families.of_pair
        self._products[name].multiply(block, of[entries], transpose)

    def _multiply_numbers(self, block: Float, classes: Index, name: str) -> None:
        """The same for components of one group sum only, by class."""
        self._products[name].multiply(block, classes)

    def _read_desired(self, number: int, estimates: Float, X: Float, workers: Workers) -> None:
        """The desired tables of a level, but for one that the estimates were worked out in the place of."""
        level = self.plan.levels[number]
        places = [
            X[self._problem.desired.block(i)].reshape(level.members.size, *self._problem.desired_tables[i].shape, -1)
            for i in self._desired_at[number]
        ]
        if len(places) == 1 and np.may_share_memory(places[0], estimates):
            return
        rows = self._others[number].rows if self._leaves[number].tabulates else np.arange(level.members.size)

        def read(rows: slice | Index) -> None:
            for place, cells in zip(places, self._sums[number](estimates[rows]), strict=True):
                if not np.may_share_memory(place, estimates):
                    place[rows] = cells

        workers.for_each(read, self._blocks(rows, X.shape[1]))

    def _write_desired(self, number: int, V: Float, pulls: Float, workers: Workers) -> None:
        """The transpose of `_read_desired`, in slots that are 0."""
        level = self.plan.levels[number]
        places = [
            V[self._problem.desired.block(i)].reshape(level.members.size, *self._problem.desired_tables[i].shape, -1)
            for i in self._desired_at[number]
        ]

        def write(rows: slice | Index) -> None:
            cells = self._sums[number].spread([place[rows] for place in places]).reshape(pulls[rows].shape)
            self._empty(number, rows, cells)
            self._basis.to_slots(cells)
            pulls[rows] = cells

        if places:
            workers.for_each(write, self._blocks(np.arange(level.members.size), V.shape[1]))

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        result, variances = np.empty(self._problem.desired.size), self.variances_by_table()
        for level, chosen in zip(self.plan.levels, self._desired_at, strict=True):
            for i in chosen:
                variances.fill(i, result[self._problem.desired.block(i)].reshape(level.members.size, -1))
        return result

    def variances_by_table(self) -> PlaceVariances:
        """The same, some geounits of a table at a time."""
        return PlaceVariances(self._problem, self.plan, TreeVariances(self.plan, self.coefficients))


def _put_back(block: Float, rows: slice | Index, array: Float) -> None:
    """Where rows are not consecutive a block of them is a copy."""
    if not isinstance(rows, slice):
        array[rows] = block

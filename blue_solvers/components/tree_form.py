"""The exact estimate over all geounits of a spine: one pass up, one pass down, level by level.

In a basis of orthonormal contrasts and group sums (`reflections`) the problem falls into components, each a tree
problem with small matrices that all its right-hand sides share (`tree_plan`). Going up, every geounit combines its
own measurements with the sum of its children's estimates; going down, every child takes its part of what its parent
learnt since.

Bytes that must move: every observed and every desired cell once; in between one array of all slots of all geounits,
written going up and corrected going down, in blocks of geounits that stay in cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.components.reflections import level_order, reflect
from blue_solvers.components.tree_plan import Component, LevelPlan, TreePlan
from blue_solvers.solver import Float
from constraint_builders import Problem, Spine
from constraint_builders.table import Table

BLOCK_BYTES = 1 << 22  # working set of a block of geounits
ROUNDING = 16 * float(np.finfo(float).eps)
NEGLIGIBLE = 1e-12  # of the smallest variance: less than averaging any number of measurements at hand leaves


class TreeForm:
    """The two passes; see the module.

    Parameters
    ----------
    problem : Problem
        With equal variances within every table of every geounit; assumption A2.
    """

    def __init__(self, problem: Problem) -> None:
        assert problem.schema is not None
        assert problem.geounit_variances is not None
        self._problem = problem
        tables = list(problem.observed_tables)
        desired = list(problem.desired_tables)
        told_apart = () if problem.zeros is None else problem.zeros.axes
        groupings = groupings_of(problem.schema, tables + desired, told_apart)
        self._spine = problem.spine or Spine([-1], ["all"])
        observed_levels = problem.observed_levels if problem.spine else (0,) * len(tables)
        self._desired_levels = problem.desired_levels if problem.spine else (0,) * len(desired)
        self.plan = self._make_plan(groupings, tables, observed_levels)
        noisy = problem.variances[problem.variances > 0]
        self._negligible = NEGLIGIBLE * float(noisy.min(initial=np.inf)) if noisy.size else 0.0
        self._shape = tuple(grouping.levels for grouping in groupings)
        self._orders = [level_order(grouping) for grouping in groupings]
        self._readers = {table.name: _TableAccess(self, table) for table in [*tables, *desired]}
        self._desired_at: list[list[int]] = [
            [i for i, level in enumerate(self._desired_levels) if level == number]
            for number in range(len(self._spine.levels))
        ]
        self._gathering = [self._children_sums(number) for number in range(len(self._spine.levels))]

    def _make_plan(self, groupings: list[Grouping], tables: list[Table], levels: tuple[int, ...]) -> TreePlan:
        problem = self._problem
        assert problem.schema is not None
        assert problem.geounit_variances is not None
        return TreePlan(
            problem.schema, self._spine, groupings, tables, levels, problem.geounit_variances, problem.zeros
        )

    def _children_sums(self, number: int) -> list[tuple[int, sparse.csr_array]]:
        """For a level the 0/1 matrices (geounits with children, geounits of a lower level) that add up children."""
        level = self.plan.levels[number]
        row_of = np.full(self._spine.size, -1)
        row_of[level.members[level.inner]] = np.arange(level.inner.size)
        found = []
        for lower in range(number + 1, len(self.plan.levels)):
            members = self.plan.levels[lower].members
            rows = row_of[self._spine.parent[members]]
            below = np.flatnonzero(rows >= 0)
            if below.size:
                shape = (level.inner.size, members.size)
                found.append((lower, sparse.csr_array((np.ones(below.size), (rows[below], below)), shape=shape)))
        return found

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        for number, estimates in self._estimates(Y, X):
            self._read_desired(number, estimates, X)
        return X

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, over all slots."""
        above = np.zeros((self.plan.parents.size, *self._shape, Y.shape[1]))
        for number, estimates in self._estimates(Y):
            level = self.plan.levels[number]
            numbers = self.plan.parent_number[level.members[level.inner]]
            above[numbers] = estimates[level.inner]
            parents = self.plan.parent_number[self._spine.parent[level.members]]
            inside = self._spine.parent[level.members] >= 0
            np.subtract.at(above, parents[inside], estimates[inside])
        return float(abs(above).max(initial=0.0))

    def _estimates(self, Y: Float, X: Float | None = None) -> Iterator[tuple[int, Float]]:
        """Final estimates of every level, from the root down, each forgotten when the next is asked for.

        Where `X` is given, levels that a whole table is desired at are worked on in its place there.
        """
        K = Y.shape[1]
        estimates: list[Float] = [np.empty(0)] * len(self.plan.levels)
        sums: list[Float] = [np.empty(0)] * len(self.plan.levels)
        for number in reversed(range(len(self.plan.levels))):
            sums[number] = self._sum_children(number, estimates, K)
            estimates[number] = self._room(number, K, X)
            self._go_up(number, Y, sums[number], estimates[number])
        learnt = np.zeros((self.plan.parents.size, *self._shape, K))
        for number, level in enumerate(self.plan.levels):
            self._go_down(level, estimates[number], learnt)
            numbers = self.plan.parent_number[level.members[level.inner]]
            learnt[numbers] = estimates[number][level.inner] - sums[number]
            yield number, estimates[number]
            estimates[number] = sums[number] = np.empty(0)

    def _sum_children(self, number: int, estimates: list[Float], K: int) -> Float:
        level = self.plan.levels[number]
        total = np.zeros((level.inner.size, prod(self._shape) * K))
        for lower, matrix in self._gathering[number]:
            total += matrix @ estimates[lower].reshape(len(estimates[lower]), -1)
        return total.reshape(-1, *self._shape, K)

    def _room(self, number: int, K: int, X: Float | None) -> Float:
        """Memory for the slots of a level."""
        members = self.plan.levels[number].members
        for i in self._desired_at[number]:
            if X is not None and self._readers[self._problem.desired_tables[i].name].is_whole:
                return X[self._problem.desired.block(i)].reshape(members.size, *self._shape, K)
        return np.empty((members.size, *self._shape, K))

    def _go_up(self, number: int, Y: Float, sums: Float, result: Float) -> None:
        """Estimates of a level from itself and below, into `result`."""
        level = self.plan.levels[number]
        row_of = np.full(level.members.size, -1)
        row_of[level.inner] = np.arange(level.inner.size)
        for rows in self._blocks(level, Y.shape[1]):
            block = result[rows]
            self._collect(level, rows, Y, block, exact=False)
            self._multiply(block, level.class_of[rows], "own")
            if level.has_exact:
                exact = np.empty_like(block)
                self._collect(level, rows, Y, exact, exact=True)
                self._multiply(exact, level.class_of[rows], "own_exact")
                block += exact
            inner = np.flatnonzero(row_of[rows] >= 0)
            if inner.size:
                children = sums[row_of[rows][inner]]
                self._multiply(children, self.plan.parent_number[level.members[rows][inner]], "children")
                block[inner] += children

    def _go_down(self, level: LevelPlan, estimates: Float, learnt: Float) -> None:
        """Add to every geounit its part of what its parent learnt, in place."""
        if level.parent_pair.size and level.parent_pair[0] < 0:
            return
        pairs, inverse = np.unique(level.parent_pair, return_inverse=True)
        for chosen in _chunks(pairs.size, self._rows_in_cache(learnt.shape[-1])):
            parts = learnt[self.plan.pair_parent[pairs[chosen]]]
            self._multiply(parts, pairs[chosen], "gain")
            rows = np.flatnonzero((inverse >= chosen.start) & (inverse < chosen.stop))
            for some in _chunks(rows.size, self._rows_in_cache(learnt.shape[-1])):
                estimates[rows[some]] += parts[inverse[rows[some]] - chosen.start]

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        K = V.shape[1]
        levels = self.plan.levels
        pulls = [np.zeros((level.members.size, *self._shape, K)) for level in levels]
        learnt = np.zeros((self.plan.parents.size, *self._shape, K))
        for number in reversed(range(len(levels))):
            level = levels[number]
            self._write_desired(number, V, pulls[number])
            numbers = self.plan.parent_number[level.members[level.inner]]
            pulls[number][level.inner] += learnt[numbers]
            self._pull_up(level, pulls[number], learnt)
        result = np.zeros((self._problem.observed.size, K))
        for number, level in enumerate(levels):
            numbers = self.plan.parent_number[level.members[level.inner]]
            sums = pulls[number][level.inner].copy()
            self._multiply(sums, numbers, "children", transpose=True)
            sums -= learnt[numbers]
            for lower, matrix in self._gathering[number]:
                flat = pulls[lower].reshape(len(pulls[lower]), -1)
                flat += matrix.T @ sums.reshape(len(sums), -1)
            for rows in self._blocks(level, K):
                if level.has_exact:
                    exact = pulls[number][rows].copy()
                    self._multiply(exact, level.class_of[rows], "own_exact", transpose=True)
                    self._collect_transpose(level, rows, exact, result, exact=True)
                block = pulls[number][rows]
                self._multiply(block, level.class_of[rows], "own", transpose=True)
                self._collect_transpose(level, rows, block, result, exact=False)
        return result

    def _pull_up(self, level: LevelPlan, pulls: Float, learnt: Float) -> None:
        """Transpose of `_go_down`: what every parent's learning is worth to its children."""
        if level.parent_pair.size and level.parent_pair[0] < 0:
            return
        pairs, inverse = np.unique(level.parent_pair, return_inverse=True)
        shape = (pairs.size, level.members.size)
        members = sparse.csr_array((np.ones(inverse.size), (inverse, np.arange(inverse.size))), shape=shape)
        sums = (members @ pulls.reshape(len(pulls), -1)).reshape(pairs.size, *pulls.shape[1:])
        self._multiply(sums, pairs, "gain", transpose=True)
        np.add.at(learnt, self.plan.pair_parent[pairs], sums)

    def _blocks(self, level: LevelPlan, K: int) -> list[slice]:
        return _chunks(level.members.size, self._rows_in_cache(K))

    def _rows_in_cache(self, K: int) -> int:
        return max(1, BLOCK_BYTES // (8 * K * prod(self._shape)))

    def _multiply(self, block: Float, entries: NDArray[np.intp], name: str, transpose: bool = False) -> None:
        """Multiply every geounit's components by its coefficients, in place."""
        if not len(block):
            return
        for component, coefficients in zip(self.plan.components, self.plan.coefficients, strict=True):
            matrices = getattr(coefficients, name)[entries]
            place = (slice(None), *component.slots)
            if component.size == 1:
                block[place] *= matrices.reshape(-1, *[1] * (block.ndim - 1))
            else:
                axes = [i + 1 for i, contrast in enumerate(component.contrasts) if not contrast]
                front = np.moveaxis(block[place], axes, range(1, len(axes) + 1))
                matrices = matrices.swapaxes(-1, -2) if transpose else matrices
                product = matrices @ front.reshape(len(front), component.size, -1)
                block[place] = np.moveaxis(product.reshape(front.shape), range(1, len(axes) + 1), axes)

    def _collect(self, level: LevelPlan, rows: slice, Y: Float, block: Float, exact: bool) -> None:
        """The information of a level's tables, weighted by precision (exact ones equally), into `block`."""
        used = [
            (number, self._readers[table.name], table.shape, factors)
            for (number, table), weights, flags in zip(level.tables, level.weights, level.exact, strict=True)
            if (factors := flags[rows].astype(float) if exact else weights[rows]).any()
        ]
        used.sort(key=lambda entry: not entry[1].is_whole)
        if not used or not used[0][1].is_whole:
            block[...] = 0
        for position, (number, reader, shape, factors) in enumerate(used):
            cells = Y[self._problem.observed.block(number)].reshape(level.members.size, *shape, -1)[rows]
            if position == 0 and reader.is_whole:
                reader.set_information(cells, factors, block)
            else:
                reader.add_information(cells, factors, block)

    def _collect_transpose(self, level: LevelPlan, rows: slice, block: Float, result: Float, exact: bool) -> None:
        for (number, table), weights, flags in zip(level.tables, level.weights, level.exact, strict=True):
            factors = flags[rows].astype(float) if exact else weights[rows]
            if factors.any():
                place = result[self._problem.observed.block(number)].reshape(level.members.size, *table.shape, -1)
                cells = self._readers[table.name].read(block)
                place[rows] += cells * factors.reshape(-1, *[1] * (cells.ndim - 1))

    def _read_desired(self, number: int, estimates: Float, X: Float) -> None:
        """The desired tables of a level; one whose place the estimates were worked out in comes last."""
        level = self.plan.levels[number]
        places = [
            (self._readers[table.name], X[self._problem.desired.block(i)].reshape(level.members.size, *table.shape, -1))
            for i, table in ((i, self._problem.desired_tables[i]) for i in self._desired_at[number])
        ]
        places.sort(key=lambda entry: entry[0].is_whole)
        for rows in self._blocks(level, X.shape[1]):
            for reader, place in places:
                if reader.is_whole and np.may_share_memory(place, estimates):
                    reader.finish(estimates[rows])
                else:
                    place[rows] = reader.read(estimates[rows])

    def _write_desired(self, number: int, V: Float, pulls: Float) -> None:
        level = self.plan.levels[number]
        for i in self._desired_at[number]:
            table = self._problem.desired_tables[i]
            cells = V[self._problem.desired.block(i)].reshape(level.members.size, *table.shape, V.shape[1])
            for rows in self._blocks(level, V.shape[1]):
                self._readers[table.name].add_information(cells[rows], np.ones(len(cells[rows])), pulls[rows])

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        result = np.empty(self._problem.desired.size)
        for i, (table, level) in enumerate(zip(self._problem.desired_tables, self._desired_levels, strict=True)):
            places = self.plan.posterior_of[self.plan.levels[level].members]
            distinct, inverse = np.unique(places, return_inverse=True)
            by_place = self._table_variances(table, distinct)
            result[self._problem.desired.block(i)].reshape(places.size, -1)[...] = by_place[inverse]
        return result

    def _table_variances(self, table: Table, places: NDArray[np.intp]) -> Float:
        """Variances of a table's cells at chosen posterior entries, (entries, cells)."""
        total: Float = np.zeros(())
        maps = self.plan.table_maps(table)
        for component, coefficients in zip(self.plan.components, self.plan.coefficients, strict=True):
            if any(contrast and sums is not None for contrast, sums in zip(component.contrasts, maps, strict=True)):
                continue
            total = total + self._component_variances(component, maps, coefficients.posterior[places])
        lengths: list[int] = []
        for grouping, sums in zip(self.plan.groupings, maps, strict=True):
            if sums is None:
                total = np.take(total, grouping.groups, axis=len(lengths) + 1)
            lengths.append(total.shape[len(lengths) + 1])
        own = {g.axis: length for g, length in zip(self.plan.groupings, lengths, strict=True)}
        shape = [own.get(axis, 1) for axis in table.axes]
        kept = total.reshape(len(places), *shape)
        return np.broadcast_to(kept, (len(places), *table.shape)).reshape(len(places), -1)

    def _component_variances(self, component: Component, maps: list[Float | None], C: Float) -> Float:
        """Variances that one component gives, an axis for every variable: its groups, or a coarser factor's cells."""
        scale: Float = np.ones(())
        W: NDArray = np.ones((1, 1))
        shape = []
        for grouping, sums, contrast in zip(self.plan.groupings, maps, component.contrasts, strict=True):
            if contrast:
                shape.append(1)
                scale = np.multiply.outer(scale, 1 - 1 / grouping.sizes)
            else:
                rows = np.diag(1 / np.sqrt(grouping.sizes)) if sums is None else sums
                shape.append(len(rows))
                scale = np.multiply.outer(scale, np.ones(len(rows)))
                W = np.kron(W, rows)
        variances = np.einsum("ij,njk,ik->ni", W, C, W, optimize=True)
        rounding = ROUNDING * np.einsum("ij,njk,ik->ni", abs(W), abs(C), abs(W), optimize=True)
        variances = np.where(variances > np.maximum(rounding, self._negligible), variances, 0.0)
        return variances.reshape(len(C), *shape) * scale


class _TableAccess:
    """A table's cells from slots, and the transpose.

    Along a variable that the table keeps whole, slots are reflected to levels; along others group coordinates are
    summed.
    """

    def __init__(self, form: TreeForm, table: Table) -> None:
        plan = form.plan
        self._groupings = plan.groupings
        self._maps = plan.table_maps(table)
        self._first_groups = [g.levels - g.sizes.size for g in plan.groupings]
        self._orders = form._orders
        self._shape = table.shape
        self._slots = tuple(
            slice(None) if sums is None else slice(first, None)
            for sums, first in zip(self._maps, self._first_groups, strict=True)
        )

    @property
    def is_whole(self) -> bool:
        """Whether the table keeps every variable in use whole, so that its cells are as many as the slots."""
        return all(sums is None for sums in self._maps)

    def finish(self, block: Float) -> None:
        """Turn slots into the cells of a whole table, in place."""
        for axis, (grouping, order) in enumerate(zip(self._groupings, self._orders, strict=True), 1):
            reflect(block, axis, grouping)
            if not _in_order(order):
                block[...] = np.take(block, np.argsort(order), axis=axis)

    def set_information(self, cells: Float, weights: Float, block: Float) -> None:
        """As `add_information` of a whole table to an empty block."""
        np.multiply(cells.reshape(block.shape), weights.reshape(-1, *[1] * (block.ndim - 1)), out=block)
        for axis, (grouping, order) in enumerate(zip(self._groupings, self._orders, strict=True), 1):
            if not _in_order(order):
                block[...] = np.take(block, order, axis=axis)
            reflect(block, axis, grouping)

    def read(self, block: Float) -> Float:
        """The table's cells, (G, *shape, K), of slots (G, ..., K)."""
        cells = block[(slice(None), *self._slots)]
        for axis, sums in enumerate(self._maps, start=1):
            if sums is not None:
                cells = _along(sums, cells, axis)
        cells = np.array(cells, order="C", copy=True)
        for axis, (sums, grouping, order) in enumerate(zip(self._maps, self._groupings, self._orders, strict=True), 1):
            if sums is None:
                reflect(cells, axis, grouping)
                cells = _permuted(cells, axis, np.argsort(order))
        return cells.reshape(len(block), *self._shape, block.shape[-1])

    def add_information(self, cells: Float, weights: Float, block: Float) -> None:
        """Add the transpose of `read`, each geounit times its weight, to slots."""
        lengths = [
            len(sums) if sums is not None else g.levels for sums, g in zip(self._maps, self._groupings, strict=True)
        ]
        cells = np.ascontiguousarray(cells).reshape(len(cells), *lengths, cells.shape[-1])
        slots = cells * weights.reshape(-1, *[1] * (len(lengths) + 1))
        for axis, (sums, grouping, order) in enumerate(zip(self._maps, self._groupings, self._orders, strict=True), 1):
            if sums is None:
                slots = _permuted(slots, axis, order)
                reflect(slots, axis, grouping)
        for axis, sums in enumerate(self._maps, start=1):
            if sums is not None:
                slots = _along(sums.T, slots, axis)
        block[(slice(None), *self._slots)] += slots


def _permuted(array: Float, axis: int, order: NDArray[np.intp]) -> Float:
    return array if _in_order(order) else np.take(array, order, axis=axis)


def _in_order(order: NDArray[np.intp]) -> bool:
    return bool((np.diff(order) > 0).all())


def _along(matrix: Float, array: Float, axis: int) -> Float:
    """Multiply a matrix into one axis."""
    if matrix.shape == (1, 1):
        return array * matrix[0, 0]
    return np.moveaxis(np.tensordot(matrix, array, axes=(1, axis)), 0, axis)


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]

"""The exact estimate over all geounits of a spine: one pass up, one pass down, level by level.

In a basis of orthonormal contrasts and group sums (`reflections`) the problem falls into components, each a tree
problem with small matrices that all its right-hand sides share (`tree_plan`). Going up, every geounit combines its
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
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.batches import as_slice, chunks, distinct
from blue_solvers.components.component_products import Component, multiply
from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.components.leaf_form import LeafForm
from blue_solvers.components.reflections import Basis
from blue_solvers.components.table_access import TableAccess
from blue_solvers.components.table_sums import TableSums
from blue_solvers.components.tree_plan import LevelPlan, TreePlan
from blue_solvers.solver import Float
from constraint_builders import Problem, Spine
from constraint_builders.table import Table

Index = NDArray[np.intp]

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
        self._negligible = NEGLIGIBLE * self._smallest_variance()
        self._shape = tuple(grouping.levels for grouping in groupings)
        self._basis = Basis(groupings)
        self._readers = {table.name: TableAccess(self.plan, table) for table in [*tables, *desired]}
        numbers = range(len(self._spine.levels))
        self._desired_at = [[i for i, own in enumerate(self._desired_levels) if own == number] for number in numbers]
        self._sums = [
            TableSums(problem.schema, self.plan.finest, [desired[i] for i in chosen]) for chosen in self._desired_at
        ]
        self._leaves = [LeafForm(self.plan, number, self.plan.finest, BLOCK_BYTES) for number in numbers]
        self._others = [
            _ByParent(self.plan, level, np.delete(np.arange(level.members.size), leaves.rows))
            for level, leaves in zip(self.plan.levels, self._leaves, strict=True)
        ]

    def _make_plan(self, groupings: list[Grouping], tables: list[Table], levels: tuple[int, ...]) -> TreePlan:
        problem = self._problem
        assert problem.schema is not None
        assert problem.geounit_variances is not None
        return TreePlan(
            problem.schema, self._spine, groupings, tables, levels, problem.geounit_variances, problem.zeros
        )

    def _smallest_variance(self) -> float:
        """Of all noisy measurements; 0 if there is none."""
        assert self._problem.geounit_variances is not None
        noisy = [own[(own > 0) & np.isfinite(own)] for own in self._problem.geounit_variances]
        return min((float(own.min()) for own in noisy if own.size), default=0.0)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        X = np.empty((self._problem.desired.size, Y.shape[1]))
        for number, estimates in self._estimates(Y, X):
            self._read_desired(number, estimates, X)
        return X

    def violation(self, Y: Float) -> float:
        """Largest difference between a geounit's estimate and the sum of its children's, over all cells."""
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
        """Final estimates of every level in cells, from the root down, each forgotten when the next is asked for.

        Where `X` is given, levels that a whole table is desired at are worked on in its place there. Geounits that
        `LeafForm` takes are never in slots; all others are until their estimates are final.
        """
        K = Y.shape[1]
        estimates: list[Float] = [np.empty(0)] * len(self.plan.levels)
        sums = np.zeros((self.plan.parents.size, *self._shape, K))
        for number in reversed(range(len(self.plan.levels))):
            estimates[number] = self._room(number, K, X)
            self._go_up(number, Y, sums, estimates[number])
            for parents, totals in self._leaves[number].go_up(self._measured(number, Y)):
                sums[parents] += totals
            self._others[number].add_to_parents(estimates[number], sums)
        learnt = sums  # where it is known, in place
        for number, level in enumerate(self.plan.levels):
            self._go_down(number, estimates[number], learnt)
            numbers = self.plan.parent_number[level.members[level.inner]]
            learnt[numbers] = estimates[number][level.inner] - sums[numbers]
            self._finish(number, estimates[number])
            self._leaves[number].go_down(self._measured(number, Y), learnt, estimates[number])
            yield number, estimates[number]
            estimates[number] = np.empty(0)

    def _measured(self, number: int, Y: Float) -> list[Float]:
        """The tables of a level, (G, *shape, K) each."""
        level = self.plan.levels[number]
        return [
            Y[self._problem.observed.block(i)].reshape(level.members.size, *table.shape, Y.shape[1])
            for i, table in level.tables
        ]

    def _room(self, number: int, K: int, X: Float | None) -> Float:
        """Memory for the estimates of a level."""
        members = self.plan.levels[number].members
        for i in self._desired_at[number]:
            if X is not None and self._readers[self._problem.desired_tables[i].name].is_whole:
                return X[self._problem.desired.block(i)].reshape(members.size, *self._shape, K)
        return np.empty((members.size, *self._shape, K))

    def _go_up(self, number: int, Y: Float, sums: Float, result: Float) -> None:
        """Estimates of a level from itself and below, in slots, into `result`."""
        level = self.plan.levels[number]
        measured = self._measured(number, Y)
        row_of = np.full(level.members.size, -1)
        row_of[level.inner] = self.plan.parent_number[level.members[level.inner]]
        for rows in self._blocks(self._others[number].rows, Y.shape[1]):
            block = result[rows]
            self._collect(level, rows, measured, block, exact=False)
            self._multiply(block, level.class_of[rows], "own")
            if level.has_exact:
                exact = np.empty_like(block)
                self._collect(level, rows, measured, exact, exact=True)
                self._multiply(exact, level.class_of[rows], "own_exact")
                block += exact
            inner = np.flatnonzero(row_of[rows] >= 0)
            if inner.size:
                numbers = row_of[rows][inner]
                children = sums[numbers]
                self._multiply(children, numbers, "children")
                block[inner] += children
            _put_back(block, rows, result)

    def _go_down(self, number: int, estimates: Float, learnt: Float) -> None:
        """Add to every geounit in slots its part of what its parent learnt, in place."""
        others = self._others[number]
        if not others.pairs.size:
            return
        count = self._rows_in_cache(learnt.shape[-1])
        for chosen in chunks(others.pairs.size, count):
            pairs = others.pairs[chosen]
            parts = learnt[self.plan.pair_parent[pairs]]
            self._multiply(parts, pairs, "gain")
            places = np.flatnonzero((others.pair_of >= chosen.start) & (others.pair_of < chosen.stop))
            for some in chunks(places.size, count):
                here = places[some]
                estimates[as_slice(others.rows[here])] += parts[others.pair_of[here] - chosen.start]

    def _finish(self, number: int, estimates: Float) -> None:
        """From slots to cells, in place."""
        for rows in self._blocks(self._others[number].rows, estimates.shape[-1]):
            block = estimates[rows]
            self._basis.to_cells(block)
            _put_back(block, rows, estimates)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K); all of it in slots."""
        K = V.shape[1]
        levels = self.plan.levels
        pulls = [np.zeros((level.members.size, *self._shape, K)) for level in levels]
        learnt = np.zeros((self.plan.parents.size, *self._shape, K))
        for number in reversed(range(len(levels))):
            level = levels[number]
            self._write_desired(number, V, pulls[number])
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
            for rows in self._blocks(np.arange(level.members.size), K):
                if level.has_exact:
                    exact = pulls[number][rows].copy()
                    self._multiply(exact, level.class_of[rows], "own_exact", transpose=True)
                    self._collect_transpose(level, rows, exact, result, exact=True)
                block = pulls[number][rows]
                self._multiply(block, level.class_of[rows], "own", transpose=True)
                self._collect_transpose(level, rows, block, result, exact=False)
        return result

    def _pull_up(self, number: int, pulls: Float, learnt: Float) -> None:
        """Transpose of `_go_down`: what every parent's learning is worth to its children."""
        everyone = self._all[number]
        if not everyone.pairs.size:
            return
        sums = everyone.sum_by_pair(pulls)
        self._multiply(sums, everyone.pairs, "gain", transpose=True)
        np.add.at(learnt, self.plan.pair_parent[everyone.pairs], sums)

    @cached_property
    def _all(self) -> list[_ByParent]:
        """Every geounit of every level."""
        return [_ByParent(self.plan, level, np.arange(level.members.size)) for level in self.plan.levels]

    def _blocks(self, rows: Index, K: int) -> list[slice | Index]:
        return [as_slice(rows[some]) for some in chunks(rows.size, self._rows_in_cache(K))]

    def _rows_in_cache(self, K: int) -> int:
        return max(1, BLOCK_BYTES // (8 * K * prod(self._shape)))

    def _multiply(self, block: Float, entries: Index, name: str, transpose: bool = False) -> None:
        """Multiply every geounit's components by its coefficients, in place."""
        matrices = (getattr(coefficients, name)[entries] for coefficients in self.plan.coefficients)
        multiply(block, zip(self.plan.components, matrices, strict=True), transpose)

    def _collect(self, level: LevelPlan, rows: slice | Index, measured: list[Float], block: Float, exact: bool) -> None:
        """The information of a level's tables, weighted by precision (exact ones equally), into `block`."""
        used = [
            (self._readers[table.name], cells, factors)
            for (_, table), cells, weights, flags in zip(
                level.tables, measured, level.weights, level.exact, strict=True
            )
            if (factors := flags[rows].astype(float) if exact else weights[rows]).any()
        ]
        used.sort(key=lambda entry: not entry[0].is_whole)
        if not used or not used[0][0].is_whole:
            block[...] = 0
        for reader, cells, factors in used:
            if reader.is_whole:
                reader.set_information(cells[rows], factors, block)
            else:
                reader.add_information(cells[rows], factors, block)

    def _collect_transpose(
        self, level: LevelPlan, rows: slice | Index, block: Float, result: Float, exact: bool
    ) -> None:
        for (number, table), weights, flags in zip(level.tables, level.weights, level.exact, strict=True):
            factors = flags[rows].astype(float) if exact else weights[rows]
            if factors.any():
                place = result[self._problem.observed.block(number)].reshape(level.members.size, *table.shape, -1)
                cells = self._readers[table.name].read(block)
                place[rows] += cells * factors.reshape(-1, *[1] * (cells.ndim - 1))

    def _read_desired(self, number: int, estimates: Float, X: Float) -> None:
        """The desired tables of a level, but for one that the estimates were worked out in the place of."""
        level = self.plan.levels[number]
        places = [
            X[self._problem.desired.block(i)].reshape(level.members.size, *self._problem.desired_tables[i].shape, -1)
            for i in self._desired_at[number]
        ]
        if len(places) == 1 and np.may_share_memory(places[0], estimates):
            return
        for rows in self._blocks(np.arange(level.members.size), X.shape[1]):
            for place, cells in zip(places, self._sums[number](estimates[rows]), strict=True):
                if not np.may_share_memory(place, estimates):
                    place[rows] = cells

    def _write_desired(self, number: int, V: Float, pulls: Float) -> None:
        level = self.plan.levels[number]
        for i in self._desired_at[number]:
            table = self._problem.desired_tables[i]
            cells = V[self._problem.desired.block(i)].reshape(level.members.size, *table.shape, V.shape[1])
            for rows in self._blocks(np.arange(level.members.size), V.shape[1]):
                self._readers[table.name].add_information(cells[rows], np.ones(len(cells[rows])), pulls[rows])

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        result = np.empty(self._problem.desired.size)
        for level, chosen in zip(self.plan.levels, self._desired_at, strict=True):
            places, place_of = distinct(self.plan.posterior_of[level.members])
            for i in chosen:
                by_place = self._table_variances(self._problem.desired_tables[i], places)
                place = result[self._problem.desired.block(i)].reshape(level.members.size, -1)
                np.take(by_place, place_of, axis=0, out=place, mode="clip")  # numpy copies unless it may clip
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
        variances = _diagonals(W, C)
        rounding = ROUNDING * _diagonals(abs(W), abs(C))
        variances = np.where(variances > np.maximum(rounding, self._negligible), variances, 0.0)
        return variances.reshape(len(C), *shape) * scale


class _ByParent:
    """Some geounits of a level by their parents.

    Attributes
    ----------
    rows : ndarray of int
        Which members of the level they are.
    pairs : ndarray of int
        Their pairs with their parents; none for the root.
    pair_of : ndarray of int
        For each of them the number of its pair among these.
    """

    def __init__(self, plan: TreePlan, level: LevelPlan, rows: Index) -> None:
        self.rows = rows
        self._count = level.members.size
        pairs = level.parent_pair[rows]
        self.pairs, self.pair_of = distinct(pairs[pairs >= 0])
        parents = plan.parent_number[plan.spine.parent[level.members[rows]]] if self.pairs.size else rows[:0]
        self._parents, self._parent_of = distinct(parents)

    def add_to_parents(self, values: Float, sums: Float) -> None:
        """Add values of the level, (G, ..., K), to those of all geounits with children."""
        if self.pairs.size:
            sums[self._parents] += self._adding(self._parent_of, self._parents.size, values)

    def sum_by_pair(self, values: Float) -> Float:
        """Sums over each pair's geounits."""
        return self._adding(self.pair_of, self.pairs.size, values)

    def add_from_parents(self, given: Float, values: Float) -> None:
        """The transpose of `add_to_parents`."""
        if self.pairs.size:
            for some in chunks(self.rows.size, 256):
                values[self.rows[some]] += given[self._parents[self._parent_of[some]]]

    def _adding(self, target_of: Index, targets: int, values: Float) -> Float:
        shape = (targets, self._count)
        matrix = sparse.csr_array((np.ones(self.rows.size), (target_of, self.rows)), shape=shape)
        return (matrix @ values.reshape(len(values), -1)).reshape(targets, *values.shape[1:])


def _diagonals(W: Float, C: Float) -> Float:
    """Diagonals of W C W' for a batch of C (N, m, m), (N, rows)."""
    return ((W @ C) * W).sum(axis=-1)


def _put_back(block: Float, rows: slice | Index, array: Float) -> None:
    """Where rows are not consecutive a block of them is a copy."""
    if not isinstance(rows, slice):
        array[rows] = block

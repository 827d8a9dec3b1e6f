"""Estimates of geounits without children that measured their finest table, in cells.

With y the finest table, z_t the other tables and G_t their gains, the estimate is y + sum_t G_t (z_t - sums of y): all
that is added to y lies in margins, a few boxes much smaller than the table. The table itself never changes basis, and
what is multiplied is the tables' disagreement, not their counts. Children of one parent that were measured alike are
estimated together going up, since that is linear.

Bytes that must move: the tables once going up and once going down, and the estimate once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial, reduce
from math import prod

import numpy as np
from scipy import sparse

from blue_solvers.components.batches import chunks, distinct, starts_of
from blue_solvers.components.boxes import Box, choose_boxes
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.table_access import TableAccess
from blue_solvers.components.table_sums import TableSums
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.leaf_lanes import LeafLanes
from blue_solvers.components.tree.leaf_order import LeavesByPair, LotGoingDown, LotGoingUp
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.slot_products import ProductsByName
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.threads import Workers
from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.compiled import has_numba
from constraint_builders.description.table import Table

LARGEST_BOXES = 0.5  # of the finest table's cells: beyond, a change of basis costs less where nothing is compiled
LEAVES_OF_A_CLASS = 16  # from which on they are worked on side by side


class LeafForm:
    """Both passes over such geounits of one geolevel.

    Parameters
    ----------
    plan : TreePlan
    coefficients : list of Coefficients
        Of every component of the plan.
    number : int
        The geolevel.
    problem : StructuredProblem
        Whose tables are read and written.
    readers : mapping of str to TableAccess
        By the tables' names.
    products : ProductsByName
    block_bytes : int
        Working set of a block of geounits.

    Attributes
    ----------
    rows : ndarray of int
        Which members of the level they are; none where corrections would not be much smaller than the table.
    """

    def __init__(
        self,
        plan: TreePlan,
        coefficients: list[Coefficients],
        number: int,
        problem: StructuredProblem,
        readers: Mapping[str, TableAccess],
        products: ProductsByName,
        block_bytes: int,
    ) -> None:
        self._plan, self._products, self._level = plan, products, plan.levels[number]
        self._problem = problem
        self._shape = tuple(grouping.levels for grouping in plan.groupings)
        self._block_bytes = block_bytes
        self._basis = Basis(plan.groupings)
        names = [table.name for _, table in self._level.tables]
        self.rows = np.zeros(0, dtype=np.intp)
        self._lanes: LeafLanes | None = None
        if plan.finest.name not in names:
            return
        self._whole = names.index(plan.finest.name)
        rows = _eligible(plan, self._level, self._whole)
        if not rows.size:
            return
        classes, self._class_of = distinct(self._level.class_of[as_slice(rows)])
        ranks = as_slice(plan.class_rank[as_slice(classes)])
        weights = [own[ranks] for own in self._level.weights]
        self._others = [i for i, own in enumerate(weights) if i != self._whole and own.any()]
        others = [self._level.tables[i] for i in self._others]
        chosen = choose_boxes(plan, [table for _, table in others])
        sizes = sum(Box.size_of(plan, fineness) for fineness, _ in chosen)
        compiled = (
            has_numba()
            and rows.size >= LEAVES_OF_A_CLASS * classes.size
            and LeafLanes.can(plan.schema, plan.finest, [table for _, table in others])
        )
        if sizes > LARGEST_BOXES * plan.finest.size and not compiled:
            return
        self.rows = rows
        self._margins = TableSums(plan.schema, plan.finest, [table for _, table in others])
        self._readers = [readers[table.name] for _, table in others]
        precisions = [weights[i] for i in self._others]
        self._boxes = [
            Box(self._level, plan, coefficients, fineness, members, others, self._readers, classes, precisions)
            for fineness, members in chosen
        ]
        self._sort_by_pair()
        self._classes = classes.size
        if compiled:
            self._use_lanes(number)

    def _use_lanes(self, number: int) -> None:
        """Prepare what is compiled."""
        problem = self._problem

        def observed(i: int) -> tuple[int, Table]:
            block, table = self._level.tables[i]
            return int(problem.observed.offsets[block]), table

        desired = [
            (int(start), table)
            for start, table, level in zip(
                problem.desired.offsets, problem.desired_tables, problem.desired_levels, strict=False
            )
            if level == number
        ]
        self._lanes = LeafLanes(
            self._plan.schema,
            observed(self._whole),
            [observed(i) for i in self._others],
            self._readers,
            self._boxes,
            self._classes,
            desired,
        )

    @property
    def is_compiled(self) -> bool:
        """Whether both passes are compiled loops."""
        return self._lanes is not None

    @property
    def tabulates(self) -> bool:
        """Whether `go_down` writes all that is desired of these geounits, where it is given the place."""
        return self._lanes is not None and self._lanes.tabulates

    @cached_property
    def _lots_up(self) -> list[LotGoingUp]:
        parents = self._plan.pair_parent[self._pairs]
        children = self._plan.spine.child_counts[self._plan.parents[parents]]
        return self._by_pair.lots_going_up(parents, children, self._count_in_cache(1))

    @cached_property
    def _lots_down(self) -> list[LotGoingDown]:
        return self._by_pair.lots_going_down(self._count_in_cache(1))

    @property
    def _by_pair(self) -> LeavesByPair:
        return LeavesByPair(self._sorted_rows, self._sorted_classes, self._sorted_pairs, self._starts, self._pairs)

    def _sort_by_pair(self) -> None:
        """Geounits in order of their pair with their parent; the root has none, and counts as one."""
        pairs, pair_of = distinct(self._level.parent_pair[as_slice(self.rows)])
        self._sorted_rows, self._sorted_classes, self._sorted_pairs = self.rows, self._class_of, pair_of
        if (pair_of[1:] < pair_of[:-1]).any():
            order = np.argsort(pair_of, kind="stable")
            self._sorted_rows, self._sorted_classes = self.rows[order], self._class_of[order]
            self._sorted_pairs = pair_of[order]
        self._pairs, self._starts = pairs, starts_of(pair_of, pairs.size)

    @cached_property
    def _has_parents(self) -> bool:
        return bool(self._pairs[0] >= 0)

    @cached_property
    def sets(self) -> Index:
        """Parents whose sums `go_up` sets, whatever is there; to those of others it adds."""
        if not self._compiled_up:
            return np.zeros(0, dtype=np.intp)
        parents = np.arange(self._plan.parents.size)
        return np.concatenate([parents[:0], *(parents[lot.parents] for lot in self._lots_up if lot.is_whole)])

    @property
    def _compiled_up(self) -> bool:
        return self._lanes is not None and self._has_parents

    def go_up(self, Y: Float, sums: Float, workers: Workers) -> None:
        """Add to sums over children, (geounits with children, ..., K) in slots, the estimates of these.

        Parameters
        ----------
        Y : ndarray, (n, K)
            All measurements.
        sums : ndarray
            In place; see `sets`.
        workers : Workers
        """
        if not self.rows.size or not self._has_parents:
            return
        if self._lanes is not None:
            whole = [lot for lot in self._lots_up if lot.is_whole]
            workers.for_each(partial(self._set_in_lanes, self._lanes, Y, sums), whole)
        for parents, totals in self._totals(Y, workers):
            sums[parents] += totals

    def _totals(self, Y: Float, workers: Workers) -> Iterator[tuple[slice | Index, Float]]:
        """Parents, and the sums over these children, (parents, ..., K), but for those that are set."""
        K = Y.shape[1]
        if self._lanes is not None:
            others = [lot for lot in self._lots_up if not lot.is_whole]
            yield from workers.in_order(partial(self._sums_in_lanes, self._lanes, Y), others)
            return
        tables = self._measured(Y)

        def of_pairs(pairs: slice) -> tuple[Index, Float]:
            places = slice(self._starts[pairs.start], self._starts[pairs.stop])
            starts = self._starts[pairs.start : pairs.stop + 1] - self._starts[pairs.start]
            shape = (starts.size - 1, self._level.members.size)
            adding = sparse.csr_array((np.ones(starts[-1]), self._sorted_rows[places], starts), shape=shape)
            sums = {
                i: (adding @ tables[i].reshape(len(tables[i]), -1)).reshape(-1, *tables[i].shape[1:])
                for i in (self._whole, *self._others)
            }
            estimates = sums[self._whole].reshape(-1, *self._shape, K)
            self._correct(sums, self._sorted_classes[self._starts[pairs]], estimates)
            parents, first = np.unique(self._plan.pair_parent[self._pairs[pairs]], return_index=True)
            totals = estimates if parents.size == len(estimates) else np.add.reduceat(estimates, first, axis=0)
            self._basis.to_slots(totals)
            return parents, totals

        yield from workers.in_order(of_pairs, chunks(self._pairs.size, self._count_in_cache(K)))

    def _sums_in_lanes(self, lanes: LeafLanes, Y: Float, lot: LotGoingUp) -> tuple[slice | Index, Float]:
        """The same of some pairs, compiled."""
        totals = np.empty((lot.lanes.rows_out.size, *self._shape, Y.shape[1]))
        lanes.estimate(Y, lot.lanes, None, totals)
        if lot.of_parent is not None:
            totals = np.add.reduceat(totals, lot.of_parent, axis=0)
        self._basis.to_slots(totals)
        return lot.parents, totals

    def _set_in_lanes(self, lanes: LeafLanes, Y: Float, sums: Float, lot: LotGoingUp) -> None:
        """The same in their place."""
        totals = sums[lot.parents]
        lanes.estimate(Y, lot.lanes, None, totals)
        self._basis.to_slots(totals)

    def go_down(self, Y: Float, learnt: Float, result: Float, X: Float | None, workers: Workers) -> None:
        """Estimates in cells into these geounits' rows of `result` (G, ..., K).

        Parameters
        ----------
        Y : ndarray, (n, K)
        learnt : ndarray, (geounits with children, ..., K)
            What every parent learnt, in slots.
        result : ndarray, (G, ..., K)
            Left alone where `tabulates` and `X` is given.
        X : ndarray, (m, K), optional
            The desired tables, which are written where `tabulates`.
        workers : Workers
        """
        if not self.rows.size:
            return
        if self._lanes is not None:
            self._go_down_in_lanes(self._lanes, Y, learnt, result, X, workers)
            return
        tables = self._measured(Y)
        count = self._count_in_cache(result.shape[-1])
        for pairs in chunks(self._pairs.size, count):
            parts = self._parts(self._pairs[pairs], learnt)
            rows = chunks(int(self._starts[pairs.stop]), count, int(self._starts[pairs.start]))
            workers.for_each(partial(self._estimate, tables, parts, pairs.start, result), rows)

    def _go_down_in_lanes(
        self, lanes: LeafLanes, Y: Float, learnt: Float, result: Float, X: Float | None, workers: Workers
    ) -> None:
        """The same, compiled."""

        def estimate(lot: LotGoingDown) -> None:
            parts = self._parts(lot.pairs, learnt)
            if lanes.tabulates and X is not None:
                lanes.tabulate(Y, lot.lanes, parts, X)
            else:
                lanes.estimate(Y, lot.lanes, parts, result)

        workers.for_each(estimate, self._lots_down)

    def _measured(self, Y: Float) -> list[Float]:
        """The tables of the level, (G, *shape, K) each."""
        return measured_at(self._problem, self._level, Y)

    def _parts(self, chosen: slice | Index, learnt: Float) -> Float | None:
        """The share of children in what their parents learnt, in cells, for some pairs."""
        if not self._has_parents:
            return None
        parts = learnt[self._plan.pair_parent[chosen]]
        self._products["gain"].multiply(parts, self._plan.families.of_pair[chosen])
        self._basis.to_cells(parts)
        return parts

    def _estimate(
        self, tables: list[Float], parts: Float | None, first_pair: int, result: Float, places: slice
    ) -> None:
        rows = as_slice(self._sorted_rows[places])
        own = {i: tables[i][rows] for i in (self._whole, *self._others)}
        whole = own[self._whole].reshape(-1, *result.shape[1:])
        estimates = result[rows] if isinstance(rows, slice) else np.empty_like(whole)
        if parts is None:
            estimates[...] = whole
        else:
            np.take(
                parts, self._sorted_pairs[places] - first_pair, axis=0, out=estimates, mode="clip"
            )  # numpy copies unless it may clip
            estimates += whole
        self._correct(own, self._sorted_classes[places], estimates)
        if not isinstance(rows, slice):
            result[rows] = estimates

    def _correct(self, tables: dict[int, Float], classes: Index, estimates: Float) -> None:
        """Add to geounits' estimates what the other tables say beside the finest one."""
        if not self._others:
            return
        margins = self._margins(tables[self._whole].reshape(estimates.shape))
        differences = [
            reader.coordinates(tables[i] - margin)
            for i, reader, margin in zip(self._others, self._readers, margins, strict=True)
        ]
        corrections = [box.correction(differences, classes) for box in self._boxes]
        for box, correction in zip(self._boxes, corrections, strict=True):
            box.spread(correction, estimates)

    def _count_in_cache(self, K: int) -> int:
        return max(1, self._block_bytes // (8 * K * prod(self._shape)))


def measured_at(problem: StructuredProblem, level: LevelPlan, Y: Float) -> list[Float]:
    """The tables of a level, (G, *shape, K) each, of all measurements (n, K)."""
    return [
        Y[problem.observed.block(i)].reshape(level.members.size, *table.shape, Y.shape[1]) for i, table in level.tables
    ]


def _eligible(plan: TreePlan, level: LevelPlan, whole: int) -> Index:
    """Members without children and with noise in their finest table, where nothing is known exactly."""
    if level.zeros is not None:
        return np.zeros(0, dtype=np.intp)
    exact = reduce(np.logical_or, level.exact)
    return np.flatnonzero((plan.spine.child_counts[level.members] == 0) & (level.weights[whole] > 0) & ~exact)

"""Estimates of geounits without children that measured their finest table, in cells.

Each is the flat problem of its own tables (`leaf_plan`). Children of one parent that were measured alike are estimated
together going up, since that is linear.

Bytes that must move: the tables once going up and once going down, and the estimate once.
"""

from __future__ import annotations

from functools import cached_property, partial, reduce
from math import prod

import numpy as np

from blue_solvers.components.batches import distinct, starts_of
from blue_solvers.components.lattice.plan import TooManyCellsError
from blue_solvers.components.reflections import Basis
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.leaf_order import LeavesByPair, LotGoingDown, LotGoingUp
from blue_solvers.components.tree.leaf_plan import LeafPlan, SameCellsError
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.slot_products import ProductsByName
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.threads import Workers
from constraint_builders.arrays import Float, Index, as_slice

LEAVES_OF_A_CLASS = 16  # from which on they are worked on side by side


class LeafForm:
    """Both passes over such geounits of one geolevel.

    Parameters
    ----------
    plan : TreePlan
    number : int
        The geolevel.
    problem : StructuredProblem
        Whose tables are read.
    products : ProductsByName
    block_bytes : int
        Working set of a block of geounits.

    Attributes
    ----------
    rows : ndarray of int
        Which members of the level they are; none where most are measured unlike, or recodes make too many groups.
    """

    def __init__(
        self, plan: TreePlan, number: int, problem: StructuredProblem, products: ProductsByName, block_bytes: int
    ) -> None:
        self._plan, self._products, self._level = plan, products, plan.levels[number]
        self._shape = tuple(grouping.levels for grouping in plan.groupings)
        self._block_bytes = block_bytes
        self._basis = Basis(plan.groupings)
        names = [table.name for _, table in self._level.tables]
        self.rows = np.zeros(0, dtype=np.intp)
        if plan.finest.name not in names:
            return
        whole = names.index(plan.finest.name)
        rows = _eligible(plan, self._level, whole)
        if not rows.size:
            return
        classes, self._class_of = distinct(self._level.class_of[as_slice(rows)])
        if rows.size < LEAVES_OF_A_CLASS * classes.size:
            return
        ranks = as_slice(plan.class_rank[as_slice(classes)])
        weights = np.stack([own[ranks] for own in self._level.weights], axis=1)
        used = [whole, *(i for i in np.flatnonzero(weights.any(axis=0)).tolist() if i != whole)]
        tables = [self._level.tables[i] for i in used]
        observed = [(int(problem.observed.offsets[block]), table) for block, table in tables]
        layout = zip(problem.desired.offsets.tolist(), problem.desired_tables, problem.desired_levels, strict=False)
        desired = [(start, table) for start, table, level in layout if level == number]
        try:
            self._leaves = LeafPlan(plan.schema, observed, desired, weights[:, used], rows.size)
        except (SameCellsError, TooManyCellsError):
            return
        self.rows = rows
        self._sort_by_pair()

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
    def _lots_up(self) -> list[LotGoingUp]:
        parents = self._plan.pair_parent[self._pairs]
        children = self._plan.spine.child_counts[self._plan.parents[parents]]
        return self._by_pair.lots_going_up(parents, children, self._count_in_cache)

    @cached_property
    def _lots_down(self) -> list[LotGoingDown]:
        return self._by_pair.lots_going_down(self._count_in_cache)

    @property
    def _by_pair(self) -> LeavesByPair:
        return LeavesByPair(self._sorted_rows, self._sorted_classes, self._sorted_pairs, self._starts, self._pairs)

    @property
    def _count_in_cache(self) -> int:
        return max(1, self._block_bytes // (8 * prod(self._shape)))

    @cached_property
    def _has_parents(self) -> bool:
        return bool(self.rows.size and self._pairs[0] >= 0)

    @cached_property
    def sets(self) -> Index:
        """Parents whose sums `go_up` sets, whatever is there; to those of others it adds."""
        parents = np.arange(self._plan.parents.size)
        lots = self._lots_up if self._has_parents else []
        return np.concatenate([parents[:0], *(parents[lot.parents] for lot in lots if lot.is_whole)])

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
        if not self._has_parents:
            return
        workers.for_each(partial(self._set_sums, Y, sums), [lot for lot in self._lots_up if lot.is_whole])
        others = [lot for lot in self._lots_up if not lot.is_whole]
        for parents, totals in workers.in_order(partial(self._sums, Y), others):
            sums[parents] += totals

    def _sums(self, Y: Float, lot: LotGoingUp) -> tuple[slice | Index, Float]:
        """Parents, and the sums over these children, (parents, ..., K)."""
        totals = np.empty((lot.lanes.rows_out.size, *self._shape, Y.shape[1]))
        self._leaves.finest(Y, lot.lanes, None, totals)
        if lot.of_parent is not None:
            totals = np.add.reduceat(totals, lot.of_parent, axis=0)
        self._basis.to_slots(totals)
        return lot.parents, totals

    def _set_sums(self, Y: Float, sums: Float, lot: LotGoingUp) -> None:
        """The same in their place."""
        totals = sums[lot.parents]
        self._leaves.finest(Y, lot.lanes, None, totals)
        self._basis.to_slots(totals)

    def go_down(self, Y: Float, learnt: Float, result: Float, X: Float | None, workers: Workers) -> None:
        """All that is desired of these geounits into X, or else their estimates in cells into their rows of `result`.

        Parameters
        ----------
        Y : ndarray, (n, K)
        learnt : ndarray, (geounits with children, ..., K)
            What every parent learnt, in slots.
        result : ndarray, (G, ..., K)
        X : ndarray, (m, K), optional
        workers : Workers
        """

        def estimate(lot: LotGoingDown) -> None:
            parts = self._parts(lot.pairs, learnt, True)
            if X is None:
                self._leaves.finest(Y, lot.lanes, parts, result)
            else:
                self._leaves.desired(Y, lot.lanes, parts, X)

        if self.rows.size:
            workers.for_each(estimate, self._lots_down)

    def pull_down(self, V: Float, told: Float, result: Float, workers: Workers) -> None:
        """Transpose of both: what these geounits' desired tables are worth to all that they measured.

        Parameters
        ----------
        V : ndarray, (m, K)
        told : ndarray, (geounits with children, ..., K)
            What every parent tells its children, in slots.
        result : ndarray, (n, K)
        workers : Workers
        """

        def work(lot: LotGoingDown) -> None:
            self._leaves.transpose(V, lot.lanes, self._parts(lot.pairs, told, False), result)

        if self.rows.size:
            workers.for_each(work, self._lots_down)

    def _parts(self, pairs: Index, learnt: Float, gained: bool) -> Float | None:
        """What the parents of some pairs learnt, in cells, or the share that their children gain of it."""
        if not self._has_parents:
            return None
        parts = learnt[self._plan.pair_parent[pairs]]
        if gained:
            self._products["gain"].multiply(parts, pairs)
        self._basis.to_cells(parts)
        return parts


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

"""What leaves' other tables say beside the finest one, as sweeps between these tables.

The cells of the finest table are measured alike. So with y that table, z the others, B their sums, P their precisions
and C the covariance, the estimate is y + C B' P (z - B y): what others differ by from the sums of y goes through the
sweeps between them, in which the finest table says 0; what is found of each is spread evenly over the finest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.groups import GroupMixing, densities_of_groups
from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError
from blue_solvers.components.tree.leaf_order import Lanes
from blue_solvers.components.tree.leaf_sweeps import sweep_leaves
from constraint_builders import Schema
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.table import Table

TILE_BYTES = 1 << 18  # of a tile of several lanes, which stays in cache
FEWEST = 8  # lanes of a tile of several, which a processor does side by side
MIXED = 32  # classes of leaves whose recodes are worth solving one after another
PlacedTable = tuple[int, Table]


class SameCellsError(Exception):
    """Two tables of a leaf have the same cells."""


class LeafPlan:
    """Estimates of leaves that measured a finest table and some others.

    Parameters
    ----------
    schema : Schema
    observed : list of (start in the observed layout, Table)
        The finest table first.
    desired : list of (start in the desired layout, Table)
    precisions : ndarray, (classes, observed)
        0 for tables that were not measured.
    leaves : int
        How many there are: a tile has no more lanes.

    Raises
    ------
    SameCellsError
        If two of the tables, or what they lead to and the finest one, have the same cells.
    TooManyCellsError
        If recodes make too many groups, or there are too many classes for them.
    """

    def __init__(
        self, schema: Schema, observed: list[PlacedTable], desired: list[PlacedTable], precisions: Float, leaves: int
    ) -> None:
        self._leaves = leaves
        (first, finest), *others = observed
        axes = SchemaAxes(schema, [table for _, table in observed])
        self._whole, self._seen = axes.of(finest), [axes.of(table) for _, table in others]
        self._plan = plan = self._with_all_groups(axes)
        if len(set(self._seen)) < len(others) or self._whole in plan.number:
            raise SameCellsError
        number = {table: i for i, table in enumerate(self._seen, 1)}
        of_tables = np.array([number.get(table, 0) for table in plan.tables])
        starts = np.where(of_tables, np.array([start for start, _ in observed])[of_tables], -1)
        self._finest = np.array([[first, finest.size, plan.cells]])
        self._measured = np.concatenate([self._finest, np.stack([starts, plan.sizes, plan.offsets], axis=1)])
        self._precisions = np.where(of_tables, precisions[:, of_tables], 0.0)
        self._lay_steps(SchemaAxes(schema, [finest, *(table for _, table in desired)]), finest, desired)
        self._heads, self._outer, self._lines = (np.zeros((0, width), dtype=np.int64) for width in (4, 0, 1))
        self._matrices = np.zeros((len(precisions), 0))
        if axes.group_sizes:
            self._weigh_groups(precisions)
        else:
            self._scales = 1 / self._densities(precisions)

    def _with_all_groups(self, axes: SchemaAxes) -> SweepPlan:
        """Sweeps between the others, where of all tables that keep the same variables whole one has all their groups.

        This is what `joins` has for every set of variables.
        """
        told = list(self._seen)
        while True:
            plan, found = SweepPlan(axes, told, []), dict[int, set[int]]()
            for mask, table in zip(plan.masks, plan.tables, strict=True):
                groups = {axes.groups_axis(axis) for axis in plan.groups(table)}
                found.setdefault(mask, set(plan.whole(mask))).update(groups)
            self._joins = {mask: tuple(sorted(own)) for mask, own in found.items()}
            missing = [own for own in self._joins.values() if own not in plan.number]
            if not missing:
                return plan
            told += missing

    def _lay_steps(self, axes: SchemaAxes, finest: Table, desired: list[PlacedTable]) -> None:
        """Tables of the sweeps, the finest one, those that are desired, room for what is worked out on the way."""
        plan, whole, own = self._plan, axes.of(finest), [axes.of(table) for _, table in desired]
        spread, wanted = SweepPlan(plan.axes, [self._whole], plan.tables), SweepPlan(axes, [whole], own)
        after = plan.cells + finest.size
        room = after + wanted.cells
        lists = [plan.lists.size, plan.lists.size + spread.lists.size]
        self._lists = np.concatenate([plan.lists, spread.lists, wanted.lists])
        self._rows = room + max(plan.most_room, spread.most_room, wanted.most_room)
        self._up, self._down = (_moved(steps.steps, [0, plan.cells], [0, room], 0) for steps in (plan.up, plan.down))
        places = [*(spread.places[table] for table in plan.tables), spread.places[self._whole], spread.cells]
        to = [*plan.offsets.tolist(), plan.cells, room]
        self._sums, self._shares = (_moved(steps, places, to, lists[0]) for steps in (spread.sums, spread.shares))
        places = [*wanted.places.values(), wanted.cells]
        to = [plan.cells if table == whole else after + place for table, place in wanted.places.items()]
        steps = wanted.sums, wanted.shares
        self._gathered, self._scattered = (_moved(own, places, [*to, room], lists[1]) for own in steps)
        place_of = dict(zip(wanted.places, to, strict=True))
        rows = [(start, table.size, place_of[axes.of(table)]) for start, table in desired]
        self._wanted = np.array(rows, dtype=np.int64).reshape(-1, 3)

    def _densities(self, precisions: Float) -> Float:
        """Information about a cell of every table, (classes, tables), where variables have one group."""
        plan, masks = self._plan, [self._plan.mask_of(own) for own in [self._whole, *self._seen]]
        sizes = np.array([plan.axes.size(own) for own in [self._whole, *self._seen]])
        inside = np.array([[own & mask == own for mask in masks] for own in plan.masks])
        return plan.sizes * ((precisions / sizes) @ inside.T)

    def _weigh_groups(self, precisions: Float) -> None:
        """What is known of tables is multiplied by, and what mixes groups, class by class."""
        if len(precisions) > MIXED:
            raise TooManyCellsError
        plan, matrices = self._plan, []
        self._scales = np.ones((len(precisions), len(plan.tables)))
        for scales, own in zip(self._scales, precisions, strict=True):
            told = np.flatnonzero(own[1:])
            found = densities_of_groups(plan, [self._seen[i] for i in told.tolist()], own[1:][told])
            for join in self._joins.values():
                found[join] = found.get(join, 0.0) + own[0] * _density(plan.axes, self._whole, join)
            matrices.append(self._lay_lines(GroupMixing(plan, found, {}, [], np.inf)))
            for i, (mask, table) in enumerate(zip(plan.masks, plan.tables, strict=True)):
                if not plan.groups(self._joins[mask]):
                    scales[i] = 1 / found[table][0]
        self._matrices = np.stack(matrices)

    def _lay_lines(self, mixing: GroupMixing) -> Float:
        """Matrices that leave of every component what its finest groups say, components in order of their cells."""
        heads, outer, lines = mixing.places
        order = np.argsort(lines[heads[:, 0], 0])
        tables = zip(self._plan.masks, self._plan.tables, strict=True)
        is_join = np.array([self._joins[mask] == own for mask, own in tables])
        found = []
        for first, count, _, start in heads[order].tolist():
            table = np.searchsorted(self._plan.offsets, lines[first : first + count, 0], side="right") - 1
            matrix = mixing.noisy[start : start + count**2].reshape(count, count)
            found.append((matrix * is_join[table][:, None]).ravel())
        self._heads, self._outer, self._lines = heads[order], outer[order], lines
        self._heads[:, 3] = np.cumsum([0, *(own.size for own in found)])[:-1]
        return np.concatenate([np.zeros(0), *found])

    def finest(self, Y: Float, lanes: Lanes, parts: Float | None, result: Float) -> None:
        """Estimates of lanes into a finest table (G, ..., K).

        Parameters
        ----------
        Y : ndarray, (n, K)
        lanes : Lanes
        parts : ndarray, (P, ..., K), optional
            What is added.
        result : ndarray
        """
        self._sweep(Y, lanes, parts, result, self._finest * [0, 1, 1], self._gathered[:0], False)

    def desired(self, Y: Float, lanes: Lanes, parts: Float | None, X: Float) -> None:
        """The same of all that is desired of lanes into X, (m, K)."""
        self._sweep(Y, lanes, parts, X, self._wanted, self._gathered, False)

    def transpose(self, V: Float, lanes: Lanes, parts: Float | None, result: Float) -> None:
        """The transpose, from V (m, K) to all that lanes measured in `result` (n, K)."""
        self._sweep(V, lanes, parts, result, self._wanted, self._gathered, True)

    def _sweep(
        self, data: Float, lanes: Lanes, parts: Float | None, result: Float, wanted: Integers, gathered: Integers,
        transpose: bool,
    ) -> None:  # fmt: skip
        K, size = data.shape[-1], int(self._finest[0, 1])
        given = np.empty((0, size * K)) if parts is None else parts.reshape(len(parts), -1)
        side = TILE_BYTES // (8 * K * self._rows)
        sweep_leaves.fastest()(
            data.reshape(-1), K, lanes.firsts, lanes.members, lanes.classes, self._measured, wanted, self._precisions,
            self._scales, self._sums, self._up, self._down, self._shares, gathered, self._scattered, self._lists,
            self._heads, self._outer, self._lines, self._matrices, given, lanes.part_of, result.reshape(-1),
            lanes.rows_out, self._rows, min(side, self._leaves) if side >= FEWEST else 1, transpose,
        )  # fmt: skip


def _moved(steps: Integers, places: Sequence[int], to: Sequence[int], lists: int) -> Integers:
    """Steps between tables that lie elsewhere, as do lists; what they need on the way starts at the last place."""
    found, order = steps.copy(), np.argsort(places)
    starts, moves = np.array(places)[order], np.subtract(to, places)[order]
    found[:, 1:3] += moves[np.searchsorted(starts, steps[:, 1:3], side="right") - 1]
    found[:, 6] += np.where(steps[:, 6] >= 0, lists, 0)
    return found


def _density(axes: SchemaAxes, whole: Axes, table: Axes) -> Float:
    """What a measurement of the finest table says of a coarser one's cells, (groups,)."""
    density = np.ones(1)
    for axis in whole:
        groups = axes.groups_axis(axis)
        if axis in table:
            if axes.groups_of[axis] < -1:
                density = np.repeat(density, axes.sizes[axis])
        elif groups in table:
            density = (density[:, None] / axes.group_sizes[groups]).ravel()
        else:
            density = density / axes.sizes[axis]
    return density

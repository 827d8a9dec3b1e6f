"""What leaves' other tables say beside the finest one, as sweeps between these tables.

The cells of the finest table are measured alike. So with y that table, z the others, B their sums, P their precisions
and C the covariance, the estimate is y + C B' P (z - B y): what others differ by from the sums of y goes through the
sweeps between them, in which the finest table says 0; what is found of each is spread evenly over the finest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.lattice.axes import SchemaAxes
from blue_solvers.components.lattice.groups import GroupMixing
from blue_solvers.components.lattice.lines import mix_lines
from blue_solvers.components.lattice.plan import SweepPlan, information
from blue_solvers.components.lattice.sets import places
from blue_solvers.components.table_sums import Tables
from constraint_builders import Schema
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.table import Table

Mixing = tuple[Integers, Integers, Integers, Integers, Float]  # as `lattice.lines`; and the table of every line


class SameCellsError(Exception):
    """Two tables of a leaf have the same cells."""


class LeafPlan:
    """Estimates of leaves that measured a finest table and some others alike.

    Parameters
    ----------
    schema : Schema
    tables : list of Table
        The finest one first.
    precisions : ndarray, (tables,)

    Raises
    ------
    SameCellsError
        If two of the tables, or what they lead to and the finest one, have the same cells.
    TooManyCellsError
        If recodes make too many groups.
    """

    def __init__(self, schema: Schema, tables: list[Table], precisions: Float) -> None:
        axes = SchemaAxes(schema, tables)
        whole, *self._seen = map(axes.of, tables)
        self._plan = plan = self._with_all_groups(axes)
        if len(set(self._seen)) < len(self._seen) or whole in plan.number:
            raise SameCellsError
        self._spread = SweepPlan(axes, [whole], plan.tables)  # its tables lie as those of `plan`, the finest behind
        self._rows = self._spread.cells + max(plan.most_room, self._spread.most_room)
        self._up, self._down = (steps.copy() for steps in (plan.up.steps, plan.down.steps))
        for steps in (self._up, self._down):
            steps[:, 1:3] += np.where(steps[:, 1:3] >= plan.cells, plan.axes.size(whole), 0)
        self._numbers = [plan.number[own] for own in self._seen]
        self._precisions = np.zeros(len(plan.tables))
        self._precisions[self._numbers] = precisions[1:]
        room, parts, finest = self._room(1, 1)
        finest[...] = 1
        room.go_down(self._spread.sums, self._spread.lists)
        share = 1 / np.concatenate([own[0, :, 0] for own in parts])  # of a table's cell for each of the finest one's
        self._mixing: Mixing | None = None
        if axes.has_groups:
            self._scales = self._weigh_groups(precisions, share)
        else:
            told = information(plan, [whole, *self._seen], precisions)
            starts = zip(plan.tables, plan.offsets.tolist(), strict=True)
            self._scales = np.array([share[start] / told[own][0] for own, start in starts])

    def _with_all_groups(self, axes: SchemaAxes) -> SweepPlan:
        """Sweeps between the others, where of all tables that keep the same variables whole one has all their groups.

        This is what `joins` has for every set of variables.
        """
        told = list(self._seen)
        while True:
            plan, found = SweepPlan(axes, told, []), dict[int, set[int]]()
            for mask, table in zip(plan.masks, plan.tables, strict=True):
                groups = {axes.groups[axis] for axis in plan.groups(table)}
                found.setdefault(mask, set(places(mask))).update(groups)
            self._joins = {mask: tuple(sorted(own)) for mask, own in found.items()}
            missing = [own for own in self._joins.values() if own not in plan.number]
            if not missing:
                return plan
            told += missing

    def _weigh_groups(self, precisions: Float, share: Float) -> Float:
        """What multiplies what is known of tables, (tables,); and what mixes groups."""
        plan, scales = self._plan, np.ones(len(self._plan.tables))
        found = information(plan, self._seen, precisions[1:])
        for join in self._joins.values():
            groups = tuple(slice(None) if axis in plan.groups(join) else 0 for axis in join)
            each = share[plan.places[join] :][: plan.size_of(join)].reshape([plan.axes.sizes[axis] for axis in join])
            found[join] = found.get(join, 0.0) + precisions[0] * each[groups].ravel()
        self._mixing = self._lay_lines(GroupMixing(plan, found, [], [], np.inf), share)
        for i, (mask, table) in enumerate(zip(plan.masks, plan.tables, strict=True)):
            if not plan.groups(self._joins[mask]):
                scales[i] = share[plan.places[table]] / found[table][0]
        return scales

    def _lay_lines(self, mixing: GroupMixing, share: Float) -> Mixing:
        """Lines, and matrices that leave of every component what its finest groups say."""
        plan, (heads, outer, lines) = self._plan, mixing.places
        is_join = np.array([self._joins[mask] == own for mask, own in zip(plan.masks, plan.tables, strict=True)])
        table, matrices = np.searchsorted(plan.offsets, lines[:, 0], side="right") - 1, mixing.matrices.copy()
        weights = np.where(is_join[table], share[lines[:, 0]], 0.0)
        for first, count, _, start in heads.tolist():
            matrices[start : start + count**2].reshape(count, count)[...] *= weights[first : first + count, None]
        return heads, outer, lines, table, matrices

    def estimate(self, cells: Float, others: Sequence[Float]) -> Float:
        """Estimates of some leaves from their tables.

        Parameters
        ----------
        cells : ndarray, (G, cells, K)
            Of the finest one.
        others : sequence of ndarray, (G, size, K)

        Returns
        -------
        ndarray, (G, cells, K)
        """
        room, parts, finest = self._room(*cells.shape[::2])
        finest[...] = cells
        room.go_down(self._spread.sums, self._spread.lists)
        for i, table in zip(self._numbers, others, strict=True):
            np.subtract(table, parts[i], out=parts[i])
        self._multiply(parts, self._precisions)
        room.go_up(self._up, self._plan.lists)
        self._weigh(room, parts, False)
        room.go_up(self._spread.shares, self._spread.lists)
        return finest

    def transpose(self, cells: Float) -> tuple[Float, list[Float]]:
        """The transpose of `estimate`: of the finest table, and of the others."""
        room, parts, finest = self._room(*cells.shape[::2])
        finest[...] = cells
        room.go_down(self._spread.sums, self._spread.lists)
        self._weigh(room, parts, True)
        room.go_down(self._down, self._plan.lists)
        self._multiply(parts, -self._precisions)
        others = [-parts[i] for i in self._numbers]
        room.go_up(self._spread.shares, self._spread.lists)
        return finest, others

    def _room(self, count: int, columns: int) -> tuple[Tables, list[Float], Float]:
        """Room for so many leaves, the parts of it of all tables of the sweeps, and of the finest one."""
        plan, room = self._plan, Tables(self._rows, count, columns)
        parts = [room.part(*own) for own in zip(plan.offsets.tolist(), plan.sizes.tolist(), strict=True)]
        return room, parts, room.part(plan.cells, self._spread.cells - plan.cells)

    def _multiply(self, parts: list[Float], by_table: Float) -> None:
        for own, number in zip(parts, by_table.tolist(), strict=True):
            own *= number

    def _weigh(self, room: Tables, parts: list[Float], transpose: bool) -> None:
        """What all tables say of each of their finest cells, from the information about their own."""
        self._multiply(parts, self._scales)
        if self._mixing is not None:
            heads, outer, lines, table, matrices = self._mixing
            leaves = np.column_stack([lines, self._plan.sizes[table]])
            leaves[:, 0] += (len(parts[0]) - 1) * self._plan.offsets[table]
            outer = np.column_stack([outer, np.full(len(outer), len(parts[0]))])
            mix_lines.fastest()(room.cells, heads, outer, leaves, matrices, transpose)

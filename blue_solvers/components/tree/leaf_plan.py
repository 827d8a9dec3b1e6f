"""What leaves' other tables say beside the finest one, as sweeps between these tables.

The cells of the finest table are measured alike. So with y that table, z the others, B their sums, P their precisions
and C the covariance, the estimate is y + C B' P (z - B y): what others differ by from the sums of y goes through the
sweeps between them, in which the finest table says 0; what is found of each is spread evenly over the finest one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.lattice.axes import Axes, SchemaAxes
from blue_solvers.components.lattice.groups import GroupMixing
from blue_solvers.components.lattice.lines import mix_lines
from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError, information
from blue_solvers.components.lattice.sets import places
from blue_solvers.components.table_sums import Tables
from constraint_builders import Schema
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.description.table import Table

MIXED = 32  # classes of leaves whose recodes are worth solving one after another
Mixing = tuple[Integers, Integers, Integers, Integers, Float]  # as `lattice.lines`; and the table of every line


class SameCellsError(Exception):
    """Two tables of a leaf have the same cells."""


class LeafPlan:
    """Estimates of leaves that measured a finest table and some others.

    Parameters
    ----------
    schema : Schema
    tables : list of Table
        The finest one first.
    precisions : ndarray, (classes, tables)
        0 for tables that were not measured.

    Raises
    ------
    SameCellsError
        If two of the tables, or what they lead to and the finest one, have the same cells.
    TooManyCellsError
        If recodes make too many groups, or there are too many classes for them.
    """

    def __init__(self, schema: Schema, tables: list[Table], precisions: Float) -> None:
        axes = SchemaAxes(schema, tables)
        whole, *self._seen = map(axes.of, tables)
        self._plan = plan = self._with_all_groups(axes)
        if len(set(self._seen)) < len(self._seen) or whole in plan.number:
            raise SameCellsError
        self._spread = SweepPlan(
            axes, [whole], plan.tables
        )  # its tables lie where those of `plan` do, the finest behind
        self._rows = self._spread.cells + max(plan.most_room, self._spread.most_room)
        self._up, self._down = (steps.copy() for steps in (plan.up.steps, plan.down.steps))
        for steps in (self._up, self._down):
            steps[:, 1:3] += np.where(steps[:, 1:3] >= plan.cells, plan.axes.size(whole), 0)
        self._numbers = [plan.number[own] for own in self._seen]
        self._precisions = np.zeros((len(precisions), len(plan.tables)))
        self._precisions[:, self._numbers] = precisions[:, 1:]
        room, parts, finest = self._room(1, 1)
        finest[...] = 1
        room.go_down(self._spread.sums, self._spread.lists)
        share = 1 / np.concatenate([own[0, :, 0] for own in parts])  # of a table's cell for each of the finest one's
        self._mixings: list[Mixing] = []
        if axes.has_groups:
            self._scales = self._weigh_groups(precisions, share)
        else:
            self._scales = share[plan.offsets] / self._densities([whole, *self._seen], precisions)

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

    def _densities(self, tables: list[Axes], precisions: Float) -> Float:
        """Information about a cell of every table, (classes, tables), where variables have one group."""
        plan, masks = self._plan, [self._plan.mask_of(own) for own in tables]
        sizes = np.array([plan.size_of(own) for own in tables])
        inside = np.array([[own & mask == own for mask in masks] for own in plan.masks])
        return plan.sizes * ((precisions / sizes) @ inside.T)

    def _weigh_groups(self, precisions: Float, share: Float) -> Float:
        """What multiplies what is known of tables, (classes, tables); and what mixes groups, class by class."""
        if len(precisions) > MIXED:
            raise TooManyCellsError
        plan = self._plan
        result = np.ones((len(precisions), len(plan.tables)))
        for scales, own in zip(result, precisions, strict=True):
            told = np.flatnonzero(own[1:])
            found = information(plan, [self._seen[i] for i in told.tolist()], own[1:][told])
            for join in self._joins.values():
                groups = tuple(slice(None) if axis in plan.groups(join) else 0 for axis in join)
                each = share[plan.places[join] :][: plan.size_of(join)].reshape(
                    [plan.axes.sizes[axis] for axis in join]
                )
                found[join] = found.get(join, 0.0) + own[0] * each[groups].ravel()
            self._mixings.append(self._lay_lines(GroupMixing(plan, found, [], [], np.inf), share))
            for i, (mask, table) in enumerate(zip(plan.masks, plan.tables, strict=True)):
                if not plan.groups(self._joins[mask]):
                    scales[i] = share[plan.places[table]] / found[table][0]
        return result

    def _lay_lines(self, mixing: GroupMixing, share: Float) -> Mixing:
        """Lines, and matrices that leave of every component what its finest groups say."""
        plan, (heads, outer, lines) = self._plan, mixing.places
        is_join = np.array([self._joins[mask] == own for mask, own in zip(plan.masks, plan.tables, strict=True)])
        table, matrices = np.searchsorted(plan.offsets, lines[:, 0], side="right") - 1, mixing.matrices.copy()
        weights = np.where(is_join[table], share[lines[:, 0]], 0.0)
        for first, count, _, start in heads.tolist():
            matrices[start : start + count**2].reshape(count, count)[...] *= weights[first : first + count, None]
        return heads, outer, lines, table, matrices

    def estimate(self, cells: Float, others: Sequence[Float], classes: Index) -> Float:
        """Estimates of some leaves from their tables.

        Parameters
        ----------
        cells : ndarray, (G, cells, K)
            Of the finest one.
        others : sequence of ndarray, (G, size, K)
        classes : ndarray of int, (G,) or (1,)
            One of them all, where it is the same.

        Returns
        -------
        ndarray, (G, cells, K)
        """
        if self._is_apart(classes):
            found = np.empty_like(cells)
            for own in self._by_class(classes):
                found[own] = self.estimate(cells[own], [table[own] for table in others], classes[own])
            return found
        room, parts, finest = self._room(*cells.shape[::2])
        finest[...] = cells
        room.go_down(self._spread.sums, self._spread.lists)
        for i, table in zip(self._numbers, others, strict=True):
            np.subtract(table, parts[i], out=parts[i])
        self._multiply(parts, self._precisions, classes)
        room.go_up(self._up, self._plan.lists)
        self._weigh(room, parts, classes, False)
        room.go_up(self._spread.shares, self._spread.lists)
        return finest

    def transpose(self, cells: Float, classes: Index) -> tuple[Float, list[Float]]:
        """The transpose of `estimate`: of the finest table, and of the others."""
        if self._is_apart(classes):
            order = self._by_class(classes)
            found = [self.transpose(cells[own], classes[own]) for own in order]
            back = np.argsort(np.concatenate(order))
            finest, *others = (np.concatenate(own)[back] for own in zip(*([a, *b] for a, b in found), strict=True))
            return finest, others
        room, parts, finest = self._room(*cells.shape[::2])
        finest[...] = cells
        room.go_down(self._spread.sums, self._spread.lists)
        self._weigh(room, parts, classes, True)
        room.go_down(self._down, self._plan.lists)
        self._multiply(parts, -self._precisions, classes)
        others = [-parts[i] for i in self._numbers]
        room.go_up(self._spread.shares, self._spread.lists)
        return finest, others

    def _is_apart(self, classes: Index) -> bool:
        """Whether leaves are of several classes, each with matrices of its own."""
        return bool(self._mixings) and bool((classes != classes[0]).any())

    def _by_class(self, classes: Index) -> list[Index]:
        return [np.flatnonzero(classes == own) for own in np.unique(classes)]

    def _room(self, count: int, columns: int) -> tuple[Tables, list[Float], Float]:
        """Room for so many leaves, the parts of it of all tables of the sweeps, and of the finest one."""
        plan, room = self._plan, Tables(self._rows, count, columns)
        parts = [room.part(*own) for own in zip(plan.offsets.tolist(), plan.sizes.tolist(), strict=True)]
        return room, parts, room.part(plan.cells, self._spread.cells - plan.cells)

    def _multiply(self, parts: list[Float], by_class: Float, classes: Index) -> None:
        """Multiply the parts of all tables by numbers (classes, tables)."""
        for own, numbers in zip(parts, by_class[classes].T, strict=True):
            own *= numbers[:, None, None]

    def _weigh(self, room: Tables, parts: list[Float], classes: Index, transpose: bool) -> None:
        """What all tables say of each of their finest cells, from the information about their own."""
        self._multiply(parts, self._scales, classes)
        if self._mixings:
            heads, outer, lines, table, matrices = self._mixings[classes[0]]
            leaves = np.column_stack([lines, self._plan.sizes[table]])
            leaves[:, 0] += (len(parts[0]) - 1) * self._plan.offsets[table]
            outer = np.column_stack([outer, np.full(len(outer), len(parts[0]))])
            mix_lines.fastest()(room.cells, heads, outer, leaves, matrices, transpose)

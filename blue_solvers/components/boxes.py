"""Margins of the finest table: along every variable its levels, groups of them, or the sum over all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.batches import distinct, one_or_all
from blue_solvers.components.component_products import Component, kept_size, product
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.reflections import Basis
from blue_solvers.components.row_program import RowProgram
from blue_solvers.components.subspaces import kronecker
from blue_solvers.components.table_access import TableAccess
from blue_solvers.components.tree.coefficients import Coefficients
from blue_solvers.components.tree.level_plan import LevelPlan
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table

TOTAL, GROUPS, LEVELS = range(3)  # how finely a box tells a variable's levels apart
Fineness = list[int]


def choose_boxes(plan: TreePlan, tables: list[Table]) -> list[tuple[Fineness, list[int]]]:
    """Fineness along every variable, and numbers of the components that are corrected there.

    Greedily, from the components of most contrasts down: each joins the first box that tells enough apart.
    """
    chosen: list[tuple[Fineness, list[int]]] = []
    for place in sorted(range(len(plan.components)), key=lambda i: -sum(plan.components[i].contrasts)):
        fineness = _fineness_needed(plan, plan.components[place], tables)
        if fineness is None:
            continue
        for own, members in chosen:
            if all(has >= needed for has, needed in zip(own, fineness, strict=True)):
                members.append(place)
                break
        else:
            chosen.append((fineness, [place]))
    return chosen


def _fineness_needed(plan: TreePlan, component: Component, tables: list[Table]) -> Fineness | None:
    """How finely some table that sees the component tells every variable apart; None if no table does."""
    seeing = [table for table in tables if plan.sees(table, component)]
    if not seeing:
        return None
    return [
        LEVELS if contrast else GROUPS if g.sizes.size > 1 and any(g.axis in t.axes for t in seeing) else TOTAL
        for g, contrast in zip(plan.groupings, component.contrasts, strict=True)
    ]


class Box:
    """What tables beside the finest one add to it, as a table of its margins.

    Parameters
    ----------
    level : LevelPlan
    plan : TreePlan
    coefficients : list of Coefficients
    fineness : list of int
        `TOTAL`, `GROUPS` or `LEVELS` for every variable.
    members : list of int
        Which components are corrected here.
    tables : list of (block of the observed layout, Table)
        The others.
    readers : list of TableAccess
        Of these.
    classes : ndarray of int
    precisions : list of ndarray
        Of these tables in each class.
    """

    def __init__(
        self,
        level: LevelPlan,
        plan: TreePlan,
        coefficients: list[Coefficients],
        fineness: Fineness,
        members: list[int],
        tables: Sequence[tuple[int, Table]],
        readers: Sequence[TableAccess],
        classes: Index,
        precisions: list[Float],
    ) -> None:
        along_axes = list(zip(plan.groupings, fineness, strict=True))
        self._shape = tuple(_length(*own) for own in along_axes)
        self._regrouped = [(i, g.groups) for i, (g, own) in enumerate(along_axes, 1) if own == GROUPS]
        self._basis = Basis([grouping if own == LEVELS else None for grouping, own in along_axes])
        self._precisions = precisions
        self._readers = readers
        numbers = [i for i in members if plan.components[i].size == 1]
        self._numbers = [
            (_component_in(plan.components[i], along_axes), self._scaled(plan, coefficients, i, along_axes, classes))
            for i in numbers
        ]
        self._places = [
            reader.place_in([own == LEVELS for own in fineness])
            if any(plan.sees(t, plan.components[i]) for i in numbers)
            else None
            for (_, t), reader in zip(tables, readers, strict=True)
        ]
        self._matrices: list[tuple[Component, Float, list[tuple[int, tuple[slice, ...]]]]] = []
        for i in set(members) - set(numbers):
            to_box = _group_coordinates(plan.components[i], along_axes).T
            seeing = [j for j, (t, _) in enumerate(tables) if t in coefficients[i].measured]
            gains = [coefficients[i].measured[tables[j][0]][classes - level.first_class] for j in seeing]
            parts = [(j, readers[j].part(plan.components[i])) for j in seeing]
            own = _component_in(plan.components[i], along_axes)
            self._matrices.append((own, to_box @ np.concatenate(gains, axis=2), parts))

    @staticmethod
    def size_of(plan: TreePlan, fineness: Fineness) -> int:
        """Cells of a box."""
        return prod(_length(*own) for own in zip(plan.groupings, fineness, strict=True))

    @staticmethod
    def _scaled(
        plan: TreePlan, coefficients: list[Coefficients], i: int, along_axes: list[tuple[Grouping, int]], classes: Index
    ) -> Float:
        """Variances by class, in the units of the box's cells."""
        return coefficients[i].own[classes][:, 0, 0] * float(_group_coordinates(plan.components[i], along_axes)[0, 0])

    def correction(self, differences: list[Float], classes: Index) -> Float:
        """Sum of gains times how far every other table is from the finest one's sums, in the box's cells, (G, ..., K).

        Parameters
        ----------
        differences : list of ndarray, (G, ..., K)
            Of the others, in their coordinates.
        classes : ndarray of int, (G,)
        """
        box = np.zeros((len(classes), *self._shape, differences[0].shape[-1]))
        if self._numbers:
            for own, precisions, place in zip(differences, self._precisions, self._places, strict=True):
                if place is not None:
                    slots, taken, scale = place
                    box[slots] += own[taken] * (scale * precisions[classes]).reshape(-1, *[1] * (box.ndim - 1))
            box *= self._factors(classes)
        places = one_or_all(classes)
        for component, gains, seen in self._matrices:
            parts = [differences[j][part] for j, part in seen]
            box[component.place] = product(component, gains[places], parts, component.groups)
        self._basis.to_cells(box)
        return box

    def rows(self, program: RowProgram, differences: list[Index], classes: Index) -> Index:
        """`correction` of numbered rows, in cells of the finest table: of variables summed out an axis of 1.

        Classes are all those that `program` has factors for, in its order.
        """
        box = program.new(*self._shape)
        matrices = []
        in_matrices = np.zeros(box.shape, dtype=bool)
        for component, gains, seen in self._matrices:
            parts = [differences[j][part[1:]][None, ..., None] for j, part in seen]
            fronts = np.concatenate([component.to_front(part, kept_size(component, part))[0] for part in parts])
            targets = component.to_front(box[component.slots][None, ..., None], gains.shape[1])[0]
            matrices.append((targets, gains[classes], fronts))
            in_matrices[component.slots] = True
        self._gather_numbers(program, box, in_matrices, differences, classes)
        for targets, gains, fronts in matrices:
            program.multiply(targets, gains, fronts)
        cells = self._basis.cell_rows(program, box)
        for axis, groups in self._regrouped:
            cells = np.take(cells, groups, axis=axis - 1)
        return cells

    def _gather_numbers(
        self, program: RowProgram, box: Index, others: Flags, differences: list[Index], classes: Index
    ) -> None:
        """What components of one group sum are, or 0 where there are none, but for what is worked out otherwise."""
        places, sources, factors = [], [], []
        if self._numbers:
            place_of = np.cumsum(~others).reshape(box.shape) - 1
            scaled = np.broadcast_to(self._factors(classes)[..., 0], (classes.size, *self._shape))
            for own, precisions, place in zip(differences, self._precisions, self._places, strict=True):
                if place is not None:
                    slots, taken, scale = place
                    used = scaled[slots] * (scale * precisions[classes]).reshape(-1, *[1] * box.ndim)
                    here = used.any(axis=0) & ~others[slots[1:]]
                    places.append(place_of[slots[1:]][here])
                    sources.append(np.broadcast_to(own[taken[1:]], here.shape)[here])
                    factors.append(used[:, here])
        nothing = np.zeros(0, dtype=np.intp)
        given = np.concatenate([np.zeros((classes.size, 0)), *factors], axis=1)
        program.gather(box[~others], np.concatenate([nothing, *places]), np.concatenate([nothing, *sources]), given)

    def _factors(self, classes: Index) -> Float:
        """Variances of components of one group sum in their slots, (1 or G, ..., 1); all others are 0."""
        different, of = distinct(classes)
        factors = np.zeros((different.size, *self._shape, 1))
        for component, own in self._numbers:
            factors[component.place] = own[different].reshape(-1, *[1] * (factors.ndim - 1))
        return factors if different.size == 1 else factors[of]

    def spread(self, correction: Float, estimates: Float) -> None:
        """Add to every cell of the finest table its cell here."""
        for axis, groups in self._regrouped:
            correction = np.take(correction, groups, axis=axis)
        estimates += correction


def _length(grouping: Grouping, fineness: int) -> int:
    """Cells of a box along a variable."""
    return {TOTAL: 1, GROUPS: grouping.sizes.size, LEVELS: grouping.levels}[fineness]


def _component_in(component: Component, along_axes: list[tuple[Grouping, int]]) -> Component:
    """Where a component lies among a box's slots."""
    slots, groups = [], []
    for contrast, (grouping, fineness) in zip(component.contrasts, along_axes, strict=True):
        count = grouping.sizes.size
        if fineness == LEVELS:
            first = grouping.levels - count
            slots.append(slice(0, first) if contrast else slice(first, None))
        else:
            slots.append(slice(None))
        if not contrast:
            groups.append(1 if fineness == TOTAL else count)
    return Component(component.contrasts, tuple(slots), tuple(groups))


def _group_coordinates(component: Component, along_axes: list[tuple[Grouping, int]]) -> Float:
    """Orthonormal group coordinates from a box's sums, (m, own size); the transpose spreads them over levels."""
    matrices = []
    for contrast, (grouping, fineness) in zip(component.contrasts, along_axes, strict=True):
        if not contrast:
            roots = np.sqrt(grouping.sizes)
            matrices.append(
                roots[:, None] / grouping.levels
                if fineness == TOTAL
                else np.diag(1 / roots)
                if fineness == GROUPS
                else np.eye(roots.size)
            )
    return kronecker(matrices)

"""Tables of many places by component: contrasts along some variables, sums over groups along the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from blue_solvers.components.grouping import Grouping, sees_contrasts
from blue_solvers.components.reflections import Basis
from constraint_builders import Schema
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table

Component = frozenset[int]  # its variables along which it has contrasts, by their axes in the schema


def cells_of_groups(schema: Schema, grouping: Grouping, factor: str) -> tuple[tuple[int, ...], Index | None]:
    """For every group the cell of a recode in use that it lies in, these numbered as they first come.

    With the recode's cells in that order; None where that is their own.
    """
    found = np.zeros(grouping.sizes.size, dtype=np.intp)
    found[grouping.groups] = schema.groups_of(factor)
    order = found[np.sort(np.unique(found, return_index=True)[1])]
    numbers = np.argsort(order)[found]
    return tuple(numbers.tolist()), None if (np.diff(order) > 0).all() else order


def contrasts_of(schema: Schema, groupings: Sequence[Grouping], table: Table) -> Component:
    """The variables along which a table has contrasts."""
    factors = dict(zip(table.axes, table.factors, strict=True))
    return frozenset(own.axis for own in groupings if sees_contrasts(schema, own, factors.get(own.axis)))


class AxisSlots(NamedTuple):
    """An axis of a table.

    Attributes
    ----------
    axis : int
        The variable, as the schema numbers it.
    grouping : Grouping or None
        Of a variable that is kept whole, and in slots; None leaves cells as they are.
    length : int
    contrasts : int
        Number of the first slots, which are contrasts.
    """

    axis: int
    grouping: Grouping | None
    length: int
    contrasts: int

    @property
    def sizes(self) -> Float:
        """Levels in every group; 1 of cells that stay as they are."""
        return np.ones(self.length) if self.grouping is None else self.grouping.sizes.astype(float)


class TableSlots:
    """A table's cells in orthonormal slots along every variable that it keeps whole, and parts of these.

    Parameters
    ----------
    schema : Schema
    groupings : sequence of Grouping
        Of the variables in use.
    table : Table
        In the schema's order.
    apart : Component
        Variables whose cells nothing ties to one another, and so all belong to every component.

    Attributes
    ----------
    contrasts : Component
        The variables along which it has contrasts.
    """

    def __init__(
        self, schema: Schema, groupings: Sequence[Grouping], table: Table, apart: Component = frozenset()
    ) -> None:
        by_axis, self._shape = {own.axis: own for own in groupings}, table.shape
        self.contrasts = apart | contrasts_of(schema, groupings, table)
        self._axes, self._turns = list[AxisSlots](), list[tuple[int, Index]]()
        for i, (axis, factor, length) in enumerate(zip(table.axes, table.factors, table.shape, strict=True), start=1):
            own, whole = by_axis[axis], factor == schema.names[axis] and axis not in apart
            contrasts = length if axis in apart else own.levels - own.sizes.size if whole else 0
            self._axes.append(AxisSlots(axis, own if whole else None, length, contrasts))
            if factor != schema.names[axis] and (order := cells_of_groups(schema, own, factor)[1]) is not None:
                self._turns.append((i, order))
        self._basis = Basis([own.grouping for own in self._axes])

    def slots(self, cells: Float) -> Float:
        """From cells (G, *table's shape, K) to slots, a copy."""
        array = np.array(cells, order="C", copy=True)
        for i, order in self._turns:
            array = np.take(array, order, axis=i)
        self._basis.to_slots(array)
        return array

    def cells(self, slots: Float) -> Float:
        """The inverse, and the transpose; in their place."""
        self._basis.to_cells(slots)
        return self._turned_back(slots)

    def _turned_back(self, array: Float) -> Float:
        for i, order in self._turns:
            array = np.take(array, np.argsort(order), axis=i)
        return array

    def grouped_shape(self, component: Component) -> tuple[int, ...]:
        """Lengths along the axes that are no contrasts of a component."""
        return tuple(own.sizes.size for own in self._axes if own.axis not in component)

    def _place(self, component: Component) -> tuple[slice, ...]:
        contrasts = (
            slice(own.contrasts) if own.axis in component else slice(own.contrasts, None) for own in self._axes
        )
        return slice(None), *contrasts

    def _order(self, component: Component) -> tuple[int, ...]:
        """Axes of (G, *shape, K): places, groups, contrasts, columns."""
        along = [i for i, own in enumerate(self._axes, start=1) if own.axis in component]
        groups = [i for i, own in enumerate(self._axes, start=1) if own.axis not in component]
        return 0, *groups, *along, len(self._axes) + 1

    def roots(self, component: Component) -> Float:
        """What turns slots of groups into sums over groups: roots of their sizes, of every group cell."""
        found = np.ones(1)
        for own in self._axes:
            if own.axis not in component:
                found = np.outer(found, np.sqrt(own.sizes)).ravel()
        return found

    def part(self, slots: Float, component: Component) -> Float:
        """A component's part of slots, (G * group cells, contrasts * K)."""
        part = slots[self._place(component)].transpose(self._order(component))
        return part.reshape(len(slots) * prod(self.grouped_shape(component)), -1)

    def put(self, slots: Float, component: Component, values: Float) -> None:
        """The inverse of `part`, and its transpose, into slots."""
        place, order = slots[self._place(component)], self._order(component)
        place[...] = values.reshape([place.shape[i] for i in order]).transpose(np.argsort(order))

    def shared(self, variances: Float, component: Component) -> Float:
        """What a component's variances, (G * group cells,), are of a cell's, (G, *groups along every axis)."""
        array = variances.reshape(-1, *self.grouped_shape(component))
        for i, own in enumerate(self._axes, start=1):
            if own.axis in component:
                array = np.expand_dims(array, i)
            if own.grouping is not None:
                share = 1 - 1 / own.sizes if own.axis in component else own.sizes**-2
                array = array * share.reshape(-1, *[1] * (array.ndim - 1 - i))
        return array

    def spread_groups(self, by_group: Float) -> Float:
        """From (G, *groups along every axis) to (G, *shape): every level has what its group has."""
        for i, own in enumerate(self._axes, start=1):
            if own.grouping is not None and own.sizes.size > 1:
                by_group = np.take(by_group, own.grouping.groups, axis=i)
        by_group = self._turned_back(by_group)
        return np.broadcast_to(by_group, (len(by_group), *self._shape))

"""Tables of many places by component: contrasts along some variables, sums over groups along the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
        by_axis = {own.axis: own for own in groupings}
        pairs = [(by_axis[axis], factor) for axis, factor in zip(table.axes, table.factors, strict=True)]
        self._table = table
        self._whole = [
            own if factor == schema.names[own.axis] and own.axis not in apart else None for own, factor in pairs
        ]
        self._turns = [
            (i, order)
            for i, (own, factor) in enumerate(pairs, start=1)
            if factor != schema.names[own.axis] and (order := cells_of_groups(schema, own, factor)[1]) is not None
        ]
        self.contrasts: Component = apart.union(
            own.axis for own, factor in pairs if sees_contrasts(schema, own, factor)
        )
        self._basis = Basis(self._whole)
        self._first = [
            length if axis in apart else 0 if own is None else own.levels - own.sizes.size
            for axis, own, length in zip(table.axes, self._whole, table.shape, strict=True)
        ]

    def slots(self, cells: Float) -> Float:
        """From cells (G, *table's shape, K) to slots, a copy."""
        array = np.array(cells, order="C", copy=True)
        for axis, order in self._turns:
            array = np.take(array, order, axis=axis)
        self._basis.to_slots(array)
        return array

    def cells(self, slots: Float) -> Float:
        """The inverse, and the transpose; in their place."""
        self._basis.to_cells(slots)
        for axis, order in self._turns:
            slots = np.take(slots, np.argsort(order), axis=axis)
        return slots

    def grouped_shape(self, component: Component) -> tuple[int, ...]:
        """Lengths along the axes that are no contrasts of a component."""
        return tuple(
            length if own is None else own.sizes.size
            for axis, own, length in zip(self._table.axes, self._whole, self._table.shape, strict=True)
            if axis not in component
        )

    def _place(self, component: Component) -> tuple[slice, ...]:
        found = [slice(None)]
        for axis, first in zip(self._table.axes, self._first, strict=True):
            found.append(slice(0, first) if axis in component else slice(first, None))
        return tuple(found)

    def _order(self, component: Component) -> tuple[int, ...]:
        """Axes of (G, *shape, K): places, groups, contrasts, columns."""
        axes = range(1, len(self._table.axes) + 1)
        along = [i for i in axes if self._table.axes[i - 1] in component]
        return (0, *(i for i in axes if i not in along), *along, len(self._table.axes) + 1)

    def roots(self, component: Component) -> Float:
        """What turns slots of groups into sums over groups: roots of their sizes, of every group cell."""
        found = np.ones(())
        for axis, own, length in zip(self._table.axes, self._whole, self._table.shape, strict=True):
            if axis not in component:
                found = np.multiply.outer(found, np.ones(length) if own is None else np.sqrt(own.sizes))
        return found.ravel()

    def part(self, slots: Float, component: Component, power: int) -> Float:
        """A component's part of slots, (G * group cells, contrasts * K); slots of groups times a power of `roots`."""
        part = slots[self._place(component)].transpose(self._order(component))
        rows = part.shape[0] * prod(self.grouped_shape(component))
        found = part.reshape(rows, -1)
        scale = self._scale(component, len(slots), power)
        return found * scale if scale is not None else found

    def put(self, slots: Float, component: Component, values: Float, power: int) -> None:
        """The inverse of `part`, and with the same power its transpose, into slots."""
        scale = self._scale(component, len(slots), power)
        place, order = slots[self._place(component)], self._order(component)
        shape = [place.shape[i] for i in order]
        scaled = values if scale is None else values * scale
        place[...] = scaled.reshape(shape).transpose(np.argsort(order))

    def _scale(self, component: Component, count: int, power: int) -> Float | None:
        scale = self.roots(component) ** power
        return None if (scale == 1).all() else np.tile(scale, count)[:, None]

    def shared(self, variances: Float, component: Component) -> Float:
        """What a component's variances, (G * group cells,), are of a cell's, (G, *groups along every axis)."""
        shape = self.grouped_shape(component)
        array = variances.reshape(-1, *shape)
        for i, (axis, own) in enumerate(zip(self._table.axes, self._whole, strict=True), start=1):
            if axis in component:
                array = np.expand_dims(array, i)
            if own is not None:
                share = 1 - 1 / own.sizes if axis in component else 1 / own.sizes.astype(float) ** 2
                array = array * share.reshape(-1, *[1] * (array.ndim - 1 - i))
        return array

    def spread_groups(self, by_group: Float) -> Float:
        """From (G, *groups along every axis) to (G, *shape): every level has what its group has."""
        for i, own in enumerate(self._whole, start=1):
            if own is not None and own.sizes.size > 1:
                by_group = np.take(by_group, own.groups, axis=i)
        for axis, order in self._turns:
            by_group = np.take(by_group, np.argsort(order), axis=axis)
        return np.broadcast_to(by_group, (len(by_group), *self._table.shape))

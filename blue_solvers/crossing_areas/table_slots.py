"""Tables of many places by component: contrasts along some variables, sums over groups along the others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.grouping import Grouping
from blue_solvers.components.reflections import Basis
from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table

Component = frozenset[int]  # its variables along which it has contrasts, by their axes in the schema


def axes_of(schema: Schema, groupings: Sequence[Grouping], table: Table) -> list[Grouping]:
    """How every axis of a table is divided: cells of a recode stay as they are, each a group of its own."""
    by_axis = {own.axis: own for own in groupings}
    return [
        by_axis[axis] if factor == schema.names[axis] else Grouping(axis, np.arange(length))
        for axis, factor, length in zip(table.axes, table.factors, table.shape, strict=True)
    ]


def contrasts_of(axes: Sequence[Grouping]) -> Component:
    """The variables along which a table has contrasts."""
    return frozenset(own.axis for own in axes if own.has_contrasts)


class TableSlots:
    """A table's cells in orthonormal slots along every variable that it keeps whole, and parts of these.

    Parameters
    ----------
    axes : sequence of Grouping
        Of the table, in the schema's order.

    Attributes
    ----------
    contrasts : Component
        The variables along which it has contrasts.
    shape : tuple of int
    basis : Basis
        From cells (G, *shape, K) to slots and back, in place.
    """

    def __init__(self, axes: Sequence[Grouping]) -> None:
        self._axes, self.contrasts = axes, contrasts_of(axes)
        self.shape, self.basis = tuple(own.levels for own in axes), Basis(axes)

    def grouped_shape(self, component: Component = frozenset()) -> tuple[int, ...]:
        """Numbers of groups along the axes that are no contrasts of a component."""
        return tuple(own.sizes.size for own in self._axes if own.axis not in component)

    def _place(self, component: Component) -> tuple[slice, ...]:
        """Contrasts are the first slots of an axis, groups the last ones."""
        starts = [(own, own.levels - own.sizes.size) for own in self._axes]
        return slice(None), *(slice(n) if own.axis in component else slice(n, None) for own, n in starts)

    def _order(self, component: Component) -> tuple[int, ...]:
        """Axes of (G, *shape, K): places, groups, contrasts, columns."""
        along = [own.axis in component for own in self._axes]
        return 0, *(np.argsort(along, kind="stable") + 1).tolist(), len(along) + 1

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
            share = 1 / own.sizes**2
            if own.axis in component:
                array, share = np.expand_dims(array, i), 1 - 1 / own.sizes
            array = array * share.reshape(-1, *[1] * (array.ndim - 1 - i))
        return array

    def spread_groups(self, by_group: Float) -> Float:
        """From (G, *groups along every axis) to (G, *shape): every level has what its group has."""
        for i, own in enumerate(self._axes, start=1):
            by_group = np.take(by_group, own.groups, axis=i)
        return by_group

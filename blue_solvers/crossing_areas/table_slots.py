"""Tables of many places by component: contrasts along some variables, sums over groups along the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from blue_solvers.components.component_products import Component
from blue_solvers.components.grouping import Grouping
from blue_solvers.components.reflections import Basis
from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table

Contrasts = frozenset[int]  # the variables along which a component has contrasts, by their axes in the schema


def axes_of(schema: Schema, groupings: Sequence[Grouping], table: Table) -> list[Grouping]:
    """How every axis of a table is divided: cells of a recode stay as they are, each a group of its own."""
    by_axis = {own.axis: own for own in groupings}
    return [
        by_axis[axis] if factor == schema.names[axis] else Grouping(axis, np.arange(length))
        for axis, factor, length in zip(table.axes, table.factors, table.shape, strict=True)
    ]


def contrasts_of(axes: Sequence[Grouping]) -> Contrasts:
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
    contrasts : Contrasts
        The variables along which it has contrasts.
    shape : tuple of int
    basis : Basis
        From cells (G, *shape, K) to slots and back, in place.
    """

    def __init__(self, axes: Sequence[Grouping]) -> None:
        self._axes, self.contrasts = axes, contrasts_of(axes)
        self.shape, self.basis = tuple(own.levels for own in axes), Basis(axes)
        self.groups = tuple(own.sizes.size for own in axes)

    def component(self, contrasts: Contrasts) -> Component:
        """The part of its slots, (G, *shape, K), that is contrasts along some variables."""
        return Component.of(self._axes, [own.axis in contrasts for own in self._axes])

    def roots(self, contrasts: Contrasts) -> Float:
        """What turns slots of groups into sums over groups: roots of their sizes, of every group cell."""
        return _outer([np.sqrt(own.sizes) for own in self._axes if own.axis not in contrasts]).ravel()

    def shared(self, variances: Float, contrasts: Contrasts) -> Float:
        """What a component's variances, (G * group cells,), are of a cell's, (G, *groups along every axis)."""
        along = [own.axis in contrasts for own in self._axes]
        sizes = [own.sizes for own in self._axes]
        shares = _outer([1 - 1 / own if other else 1 / own**2 for own, other in zip(sizes, along, strict=True)])
        shape = [1 if other else own.size for own, other in zip(sizes, along, strict=True)]
        return variances.reshape(-1, *shape) * shares

    def spread_groups(self, by_group: Float) -> Float:
        """From (G, *groups along every axis) to (G, *shape): every level has what its group has."""
        for i, own in enumerate(self._axes, start=1):
            by_group = np.take(by_group, own.groups, axis=i)
        return by_group


def _outer(factors: Sequence[Float]) -> Float:
    """Products of the entries of some vectors, an axis for each."""
    return reduce(np.multiply.outer, factors, np.ones(()))

"""A table's cells in coordinates that every component has its own part of, and products with its matrices."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from blue_solvers.components.component_products import Component
from blue_solvers.components.reflections import Basis
from blue_solvers.components.tree.piecewise import Composed
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table


class TableAccess:
    """Coordinates of a table, and what components make of them.

    Along a variable that the table keeps whole, coordinates are slots; along others they are its cells.

    Parameters
    ----------
    plan : TreePlan
    table : Table
    matrices : iterable of (Component, Composed)
        Of components that the table sees what multiplies their part of its coordinates, (entries, m, k).
    """

    def __init__(self, plan: TreePlan, table: Table, matrices: Iterable[tuple[Component, Composed]]) -> None:
        self._maps, self._slots = plan.table_maps(table), tuple(grouping.levels for grouping in plan.groupings)
        pairs = list(zip(self._maps, plan.groupings, strict=True))
        self._lengths = tuple(g.levels if sums is None else len(sums) for sums, g in pairs)
        self._kept = Basis([g if sums is None else None for sums, g in pairs])
        self._shape = table.shape
        own = list(matrices)
        self._several = [(component, found.put_together()) for component, found in own if component.size > 1]
        # Components of one group sum are multiplied by a number each, all of them at once.
        numbers = [(component, found.toarray()[:, :, 0]) for component, found in own if component.size == 1]
        whole = (slice(None) if sums is None else slice(g.levels - len(sums), None) for sums, g in pairs)
        self._place = (slice(None), *whole)
        self._number_of = np.zeros(self._lengths if numbers else 0, dtype=np.intp)
        for i, (component, _) in enumerate(numbers, 1):
            self._number_of[self._part(component)[1:]] = i
        nothing = np.zeros((len(own[0][1]) if own else 0, 1))
        self._numbers = np.concatenate([nothing, *(found for _, found in numbers)], axis=1)

    def coordinates(self, cells: Float) -> Float:
        """From cells (G, *shape, K) to coordinates (G, ..., K), a copy."""
        array = np.array(cells, order="C", copy=True).reshape(len(cells), *self._lengths, cells.shape[-1])
        self._kept.to_slots(array)
        return array

    def cells(self, coordinates: Float) -> Float:
        """The inverse of `coordinates`, and its transpose; it works in their place."""
        self._kept.to_cells(coordinates)
        return coordinates.reshape(len(coordinates), *self._shape, coordinates.shape[-1])

    def to_slots(self, coordinates: Float, entries: Index) -> Float:
        """Slots (G, ..., K) from coordinates, each geounit's by the matrices of its entry."""
        slots = np.zeros((len(coordinates), *self._slots, coordinates.shape[-1]))
        if len(slots) and self._number_of.size:
            np.multiply(self._factors(entries), coordinates, out=slots[self._place])
        for component, matrices in self._several if len(slots) else ():
            own = matrices[_one_or_all(entries)]
            component.multiply(own, coordinates[self._part(component)], slots[component.place])
        return slots

    def from_slots(self, slots: Float, entries: Index) -> Float:
        """The transpose."""
        coordinates = np.zeros((len(slots), *self._lengths, slots.shape[-1]))
        if len(slots) and self._number_of.size:
            np.multiply(self._factors(entries), slots[self._place], out=coordinates)
        for component, matrices in self._several if len(slots) else ():
            own = matrices[_one_or_all(entries)].swapaxes(1, 2)
            component.multiply(own, slots[component.place], coordinates[self._part(component)])
        return coordinates

    def _factors(self, entries: Index) -> Float:
        return self._numbers[_one_or_all(entries)].take(self._number_of, axis=1)[..., None]

    def _part(self, component: Component) -> tuple[slice, ...]:
        """Where a component's part of coordinates lies, of a table that sees it."""
        own = (slots if sums is None else slice(None) for slots, sums in zip(component.slots, self._maps, strict=True))
        return (slice(None), *own)


def _one_or_all(entries: Index) -> slice | Index:
    """A single entry where all are the same."""
    if entries.size and (entries == entries[0]).all():
        return slice(int(entries[0]), int(entries[0]) + 1)
    return entries

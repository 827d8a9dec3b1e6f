"""A table's cells in coordinates that every component has its own part of."""

from __future__ import annotations

from math import prod

import numpy as np

from blue_solvers.components.component_products import Component
from blue_solvers.components.reflections import Basis
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.table import Table


class TableAccess:
    """Coordinates of a table, and what components make of them.

    Along a variable that the table keeps whole, coordinates are slots; along others they are its cells.

    Parameters
    ----------
    plan : TreePlan
    table : Table
    """

    def __init__(self, plan: TreePlan, table: Table) -> None:
        self._plan, self._table = plan, table
        self._maps = plan.table_maps(table)
        pairs = list(zip(self._maps, plan.groupings, strict=True))
        self._lengths = [g.levels if sums is None else len(sums) for sums, g in pairs]
        self._kept = Basis([g if sums is None else None for sums, g in pairs])
        self._shape = table.shape
        self._slots = tuple(slice(None) if sums is None else slice(g.levels - g.sizes.size, None) for sums, g in pairs)
        # Where variables that are summed out have one group, a component of one group sum sees a multiple of the table.
        self.has_numbers = all(sums is None or sums.shape == (1, 1) for sums in self._maps)
        self._scale = prod(float(sums[0, 0]) for sums in self._maps if sums is not None and sums.shape == (1, 1))

    def coordinates(self, cells: Float) -> Float:
        """From cells (G, *shape, K) to coordinates (G, ..., K), a copy."""
        array = np.array(cells, order="C", copy=True).reshape(len(cells), *self._lengths, cells.shape[-1])
        self._kept.to_slots(array)
        return array

    def cells(self, coordinates: Float) -> Float:
        """The inverse of `coordinates`, and its transpose; it works in their place."""
        self._kept.to_cells(coordinates)
        return coordinates.reshape(len(coordinates), *self._shape, coordinates.shape[-1])

    def part(self, component: Component) -> tuple[slice, ...]:
        """Where a component's part of coordinates lies, of a table that sees it."""
        own = (slots if sums is None else slice(None) for slots, sums in zip(component.slots, self._maps, strict=True))
        return (slice(None), *own)

    def lengths(self, component: Component) -> tuple[int, ...]:
        """Its lengths along axes that are no contrasts."""
        pairs = zip(self._maps, component.contrasts, self._plan.groupings, strict=True)
        return tuple(g.sizes.size if sums is None else len(sums) for sums, contrast, g in pairs if not contrast)

    def empty(self, block: Float) -> Float:
        """Coordinates of zeros for as many geounits and columns as slots have."""
        return np.zeros((len(block), *self._lengths, block.shape[-1]))

    def add_numbers(self, coordinates: Float, weights: Float | Flags, block: Float) -> None:
        """Add to slots (G, ..., K) the information about components of one group sum, times weights (G,).

        What it adds elsewhere means nothing.
        """
        if self.has_numbers:
            factors = (self._scale * weights).reshape(-1, *[1] * (block.ndim - 1))
            block[(slice(None), *self._slots)] += coordinates * factors

    def read_numbers(self, block: Float, weights: Float | Flags, coordinates: Float) -> None:
        """The transpose of `add_numbers`, added to coordinates."""
        if self.has_numbers:
            factors = (self._scale * weights).reshape(-1, *[1] * (block.ndim - 1))
            coordinates += block[(slice(None), *self._slots)] * factors

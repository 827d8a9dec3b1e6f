"""A table's information in the slots of its geounits, and the table from slots."""

from __future__ import annotations

import numpy as np

from blue_solvers.components.reflections import Basis
from blue_solvers.components.table_sums import along
from blue_solvers.components.tree_plan import TreePlan
from blue_solvers.solver import Float
from constraint_builders.table import Table


class TableAccess:
    """A table's cells from slots, and the transpose.

    Along a variable that the table keeps whole, slots are reflected to levels; along others group coordinates are
    summed.

    Parameters
    ----------
    plan : TreePlan
    table : Table

    Attributes
    ----------
    is_whole : bool
        Whether it is the finest table, whose cells are as many as the slots.
    """

    def __init__(self, plan: TreePlan, table: Table) -> None:
        self._maps = plan.table_maps(table)
        pairs = list(zip(self._maps, plan.groupings, strict=True))
        self._lengths = [g.levels if sums is None else len(sums) for sums, g in pairs]
        self._kept = Basis([g if sums is None else None for sums, g in pairs])
        self._basis = Basis(plan.groupings)
        self._shape = table.shape
        self.is_whole = table.name == plan.finest.name
        self._slots = tuple(slice(None) if sums is None else slice(g.levels - g.sizes.size, None) for sums, g in pairs)

    def set_information(self, cells: Float, weights: Float, block: Float) -> None:
        """As `add_information` of a whole table to an empty block."""
        np.multiply(cells.reshape(block.shape), weights.reshape(-1, *[1] * (block.ndim - 1)), out=block)
        self._basis.to_slots(block)

    def read(self, block: Float) -> Float:
        """The table's cells, (G, *shape, K), of slots (G, ..., K)."""
        cells = block[(slice(None), *self._slots)]
        for axis, sums in enumerate(self._maps, start=1):
            if sums is not None:
                cells = along(sums, cells, axis)
        cells = np.array(cells, order="C", copy=True)
        self._kept.to_cells(cells)
        return cells.reshape(len(block), *self._shape, block.shape[-1])

    def add_information(self, cells: Float, weights: Float, block: Float) -> None:
        """Add the transpose of `read`, each geounit times its weight, to slots."""
        cells = np.ascontiguousarray(cells).reshape(len(cells), *self._lengths, cells.shape[-1])
        slots = cells * weights.reshape(-1, *[1] * (cells.ndim - 1))
        self._kept.to_slots(slots)
        for axis, sums in enumerate(self._maps, start=1):
            if sums is not None:
                slots = along(sums.T, slots, axis)
        block[(slice(None), *self._slots)] += slots

"""Which cells of a table a count takes, where it restricts the levels of some variables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table

Levels = Mapping[str, NDArray[np.bool_]]  # for each variable that a count restricts which of its levels are counted


def cells_counted(schema: Schema, table: Table, levels: Levels) -> Float | None:
    """1 for the cells of a table that are counted, 0 for the others, or None if some cell is counted in part."""
    if not levels.keys() <= {schema.names[axis] for axis in table.axes}:
        return None
    cells = np.ones(1)
    for axis, factor in zip(table.axes, table.factors, strict=True):
        share = _share_counted(schema, factor, levels.get(schema.names[axis]))
        if not np.isin(share, (0, 1)).all():
            return None
        cells = np.multiply.outer(cells, share).ravel()
    return cells


def _share_counted(schema: Schema, factor: str, levels: NDArray[np.bool_] | None) -> Float:
    """Which share of each group of a factor is counted."""
    groups = np.array(schema.groups_of(factor))
    counted = np.ones(groups.size) if levels is None else levels
    return np.bincount(groups, weights=counted) / np.bincount(groups)

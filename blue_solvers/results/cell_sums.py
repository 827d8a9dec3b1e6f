"""Which cells of a table a count takes, where it restricts the levels of some variables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table

Levels = Mapping[str, NDArray[np.bool_]]  # for each variable that a count restricts which of its levels are counted


def factors_counted(schema: Schema, table: Table, levels: Levels) -> list[Float] | None:
    """For every factor of a table 1 for its groups that are counted, 0 for the others; None if one is in part."""
    if not levels.keys() <= {schema.names[axis] for axis in table.axes}:
        return None
    shares = []
    for axis, factor in zip(table.axes, table.factors, strict=True):
        shares.append(_share_counted(schema, factor, levels.get(schema.names[axis])))
        if not np.isin(shares[-1], (0, 1)).all():
            return None
    return shares


def cells_counted(schema: Schema, table: Table, levels: Levels) -> Float | None:
    """1 for the cells of a table that are counted, 0 for the others, (cells,), or None if some is counted in part."""
    shares = factors_counted(schema, table, levels)
    return None if shares is None else reduce(np.multiply.outer, shares, np.ones(())).ravel()


def sum_counted(cells: Float, shares: list[Float]) -> Float:
    """Sums of the cells that are counted, (n,), of cells (n, cells) and what `factors_counted` gives."""
    left = cells.reshape(len(cells), *(share.size for share in shares))
    for share in reversed(shares):
        left = left @ share
    return left.reshape(len(cells))


def _share_counted(schema: Schema, factor: str, levels: NDArray[np.bool_] | None) -> Float:
    """Which share of each group of a factor is counted."""
    groups = np.array(schema.groups_of(factor))
    counted = np.ones(groups.size) if levels is None else levels
    return np.bincount(groups, weights=counted) / np.bincount(groups)

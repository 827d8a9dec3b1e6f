"""Which figures may follow from tables that are known exactly."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from blue_solvers.verification.weighed_noise import NotCertifiedError
from constraint_builders import Schema
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines

LevelTable = tuple[int, Table]


def finest_known(schema: Schema, known: Iterable[LevelTable]) -> LevelTable | None:
    """The table of those known exactly that all others are sums of; None without any.

    Raises
    ------
    NotCertifiedError
        If there is none.
    """
    nested = sorted(known, key=lambda own: (own[0], own[1].size))
    if not all(refines(schema, b, a) for (_, a), (_, b) in pairwise(nested)):
        raise NotCertifiedError("tables are known exactly that do not nest: the least standard errors are not known")
    return nested[-1] if nested else None


def holds_whole_cells(schema: Schema, table: Table, known: Table) -> bool:
    """Whether some cell of a table is made of whole cells of another."""
    for axis, name in enumerate(schema.names):
        own, other = (_groups(schema, one, axis, name) for one in (table, known))
        cut = np.bincount(np.unique(np.stack([other, own]), axis=1)[0]) > 1  # of the other's groups
        if not np.setdiff1d(own, own[cut[other]]).size:
            return False
    return True


def _groups(schema: Schema, table: Table, axis: int, name: str) -> np.ndarray:
    factor = table.factors[table.axes.index(axis)] if axis in table.axes else None
    return np.zeros(schema.size_of(name), dtype=np.intp) if factor is None else np.array(schema.groups_of(factor))

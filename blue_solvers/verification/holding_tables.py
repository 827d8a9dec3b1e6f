"""Which tables of places hold all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.verification.placed_tables import LevelTable, TableAtLevel
from constraint_builders import Schema
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines

MOST_FREE = 2**18  # cells of leaves, where tables that hold others were measured in areas alone


def finest_tables(
    schema: Schema, levels: int, observed: Sequence[TableAtLevel], claimed: Sequence[TableAtLevel] = ()
) -> list[Table] | None:
    """For every geolevel a table that holds all of it and of those above; None where that of the last does not."""
    found: list[Table] = []
    for level in reversed(range(levels)):
        over = (table for own, table in (*observed, *claimed) if own <= level)
        holding = max((table for own, table in observed if own == level), key=lambda table: table.size, default=None)
        if holding is not None:
            factors = {*holding.factors}
            if not all(factors.issuperset(table.factors) or refines(schema, holding, table) for table in over):
                holding = None
        if holding is None and not found:
            return None
        found.append(found[-1] if holding is None else holding)
    return found[::-1]


def tables_that_hold(schema: Schema, in_use: Sequence[LevelTable], last: int, leaves: int) -> tuple[Table, ...]:
    """Tables of so many leaves, those of level `last`, that hold all in use: measured in all leaves, or in some.

    Where these do not hold all, also tables that were measured in areas alone: cells of leaves are free then.
    """
    of_leaves = [placed for placed in in_use if placed.level == last]
    everywhere, somewhere = (
        [placed for placed in of_leaves if measured(np.isfinite(placed.variance))] for measured in (np.all, np.any)
    )
    found: tuple[Table, ...] = ()
    for candidates in (everywhere, somewhere, in_use):
        tables = _covering_tables(candidates, schema, last)
        if candidates is in_use and sum(table.size for table in tables) * leaves > MOST_FREE:
            break
        found = tables
        if all(any(refines(schema, own, placed.table) for own in tables) for placed in in_use):
            break
    return found


def _covering_tables(candidates: Sequence[LevelTable], schema: Schema, last: int) -> tuple[Table, ...]:
    """Tables of which none holds another: those not measured everywhere, then those that say most of what they share.

    What tables have in common lies in the first of them: of cells that were not measured all sums that hold them tell.
    """
    found = list[int]()
    for i in sorted(range(len(candidates)), key=lambda i: -candidates[i].table.size):
        if not any(refines(schema, candidates[j].table, candidates[i].table) for j in found):
            found.append(i)
    says = {own.table.name: own.table.size * float(own.variance.mean()) for own in candidates if own.level == last}
    variances = ((says.get(candidates[i].table.name, np.inf), i) for i in found)
    return tuple(candidates[i].table for _, _, i in sorted((own < np.inf, own, i) for own, i in variances))

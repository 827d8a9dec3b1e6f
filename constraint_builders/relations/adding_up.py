"""How far plain tables of one place are from adding up, table by table: 2^12 in 0.4 s, by their equations in 30."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.relations.closed_tables import ClosedTables, TooManyTablesError
from constraint_builders.relations.measurements import Measurements

MOST_CELLS = 4.0  # of all tables that some observed table contains, for each observed cell


class Gap(NamedTuple):
    """The largest difference between the sums of two observed tables, and their numbers."""

    size: float
    first: int
    second: int


def largest_gap(measured: Measurements, values: Float) -> Gap | None:
    """Of values over the observed layout, (n,); None where more is known than the sums of whole plain tables."""
    if not (measured.is_tabular and measured.has_only_tables):
        return None
    layout, schema = measured.observed, measured.domain.schema
    lacking = np.add.reduceat(measured.unmeasured.astype(int), layout.offsets[:-1])
    names = set(schema.names)
    plain = all(names.issuperset(table.factors) and not table.is_turned for table in measured.observed_tables)
    if not plain or ((lacking > 0) & (lacking < layout.sizes)).any():
        return None
    keys = tuple(table.axes for table in measured.observed_tables)
    try:
        tables = ClosedTables.of(schema.shape, keys, MOST_CELLS * layout.size + 1e6)
    except TooManyTablesError:
        return None
    cells, source = np.zeros(tables.cells), np.full(tables.sizes.size, -1)
    cells[: values.size] = values
    source[: lacking.size] = np.where(lacking == 0, np.arange(lacking.size), -1)
    worst = Gap(0.0, 0, 0)
    for table, without, _, before, levels, after in tables.up.tolist():
        if source[table] < 0:
            continue
        start, end, size = tables.offsets[table], tables.offsets[without], before * after
        sums = cells[start : start + size * levels].reshape(before, levels, after).sum(axis=1).ravel()
        known = cells[end : end + size]
        if source[without] < 0:
            known[...], source[without] = sums, source[table]
        elif (gap := float(abs(sums - known).max())) > worst.size:
            worst = Gap(gap, int(source[table]), int(source[without]))
    return worst

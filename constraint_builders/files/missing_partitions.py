"""Noticing that geounits are missing from measurements of a spine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table

MOST_DEVIATIONS = 20.0  # so far from zero no noise comes, Laplace's tails over 10^9 counts included

ByTable = Mapping[str, Mapping[str, Float]]


def refuse_missing_children(schema: Schema, spine: Spine, variances: ByTable, totals: ByTable) -> None:
    """Refuse measurements in which a geounit's count is not that of its children together, by far more than noise.

    Then children are missing: a partition was not copied, say. For every table measured at a geounit and at all its
    children the sums of all cells are compared.

    Parameters
    ----------
    schema : Schema
    spine : Spine
    variances : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Of every cell of the table; infinite where it was not measured.
    totals : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Sum of the measurements of all cells; 0 where there is none.

    Raises
    ------
    ValueError
        If one differs by more than `MOST_DEVIATIONS` standard deviations; it is named.
    """
    for name in dict.fromkeys(table for tables in variances.values() for table in tables):
        counts, spread = np.zeros(spine.size), np.full(spine.size, np.inf)
        for level, tables in variances.items():
            if name in tables:
                members = spine.members[spine.level_index(level)]
                counts[members] = totals[level][name]
                spread[members] = tables[name] * parse_table(schema, name).size
        _compare(spine, name, counts, spread)


def _compare(spine: Spine, name: str, counts: Float, variances: Float) -> None:
    """Compare sums of all cells of a table in every geounit, (N,), with those of its children."""
    children = np.flatnonzero(spine.parent >= 0)
    of_children, variance_of_children = (
        np.bincount(spine.parent[children], weights=column[children], minlength=spine.size)
        for column in (counts, variances)
    )
    variance = variances + variance_of_children
    compared = (spine.child_counts > 0) & np.isfinite(variance)
    excess = np.where(compared, counts - of_children, 0.0)
    worst = int(np.argmax(abs(excess) - MOST_DEVIATIONS * np.sqrt(np.where(compared, variance, np.inf))))
    if compared[worst] and abs(excess[worst]) > MOST_DEVIATIONS * np.sqrt(variance[worst]) + 0.5:
        level, code = spine.levels[spine.level_of[worst]], spine.geocodes[worst]
        raise ValueError(
            f"{level} {code!r} counts {counts[worst]:,.0f} in table {name!r}, its {spine.child_counts[worst]} "
            f"children {of_children[worst]:,.0f}: no noise explains that; a partition is missing, or "
            "within= should leave the level out"
        )

"""Moving back to tables what cells have in common: the share that leaves least, in variances."""

from __future__ import annotations

import numpy as np

from blue_solvers.verification.placed_tables import Leaves, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import NO_MAP, Cells, Reach, finite, plus, summed
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines


def put_back(
    level: Level, placed: LevelTable, own: Float, said: Cells, variance: Float, known: Float | None = None
) -> Float:
    """Move to a table the share that leaves least, and give it, (rows, cells).

    Parameters
    ----------
    level : Level
    placed : LevelTable
        One of its tables.
    own : ndarray, (rows, 1) or (rows, cells)
        The table's variances; nothing is moved where they are infinite.
    said : Cells, (2, rows, cells of the tables that hold all others)
        What is said of cells; changed.
    variance : ndarray, (rows, cells of the tables that hold all others)
    known : ndarray, (rows, cells), optional
        What was moved there before.
    """
    columns, into, size = level.columns[placed.cover], placed.of_cover, placed.table.size
    noise, own = variance[:, columns], np.broadcast_to(own, (len(variance), size))
    finite_noise, usable = finite(noise), np.isfinite(own)
    weight, total = (summed(into, size, of[None])[0] for of in (finite_noise, finite_noise * said[0][:, columns]))
    usable &= weight > 0
    if finite_noise is not noise:  # where anything would have to be moved at any cost
        usable &= summed(into, size, np.isinf(noise).astype(float)[None])[0] == 0
    if known is not None:
        total = total - np.where(usable, own, 0.0) * known
    share = np.divide(total, weight + own, out=np.zeros(own.shape), where=usable)
    plus(said[:, :, columns], -share[:, into])
    return share


def cost_to_pass(level: Level, cost: Float, is_measured: bool, free: bool) -> Float:
    """What it costs to leave to places, (rows, cells), what those above could take, beside the cost to those below.

    Their own finest table takes its part where it was measured; if `free`, a table that is known exactly takes all.
    """
    if free:
        exact = ((own.variance == 0).all(axis=1) for own in level.exact)  # all of some table
        return np.where(np.any([np.zeros(level.rows), *exact], axis=0)[:, None], 0.0, cost)
    if not is_measured:
        return cost
    own = np.broadcast_to(level.variances(slice(None)), cost.shape)
    both = (cost + own > 0) & (cost + own < np.inf)
    return np.divide(finite(cost) * finite(own), cost + own, out=np.minimum(cost, own), where=both)


def under_exact(places: PlacedTables, some: Leaves, first: int, table: Table | None = None) -> Flags:
    """Which leaves, (leaves,), are in places, from a level on, of which a table is known exactly that holds `table`."""
    found = np.zeros(some.rows.size, dtype=bool)
    for level in places.levels[first:]:
        reach = Reach.of_sets(some.rows, NO_MAP) if level.number == some.level else some.reach.get(level.number)
        for placed in level.exact if reach is not None else ():
            if reach is not None and (table is None or refines(places.schema, placed.table, table)):
                np.logical_or.at(found, reach.rows, (placed.variance == 0).all(axis=1)[reach.areas])
    return found


def known_in_all(places: PlacedTables) -> list[str]:
    """Tables that are known exactly in all leaves."""
    exact = (placed for level in places.levels for placed in level.exact if (placed.variance == 0).all(axis=1).any())
    held = {own.table.name: own.table for own in exact if refines(places.schema, places.levels[0].tables[0], own.table)}
    leaves = places.leaves
    return [name for name in sorted(held) if all(under_exact(places, some, 0, held[name]).all() for some in leaves)]

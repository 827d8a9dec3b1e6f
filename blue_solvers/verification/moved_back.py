"""Moving back to tables what cells have in common: the share that leaves least, in variances."""

from __future__ import annotations

import numpy as np

from blue_solvers.verification.placed_tables import NOTHING, Leaves, Level, LevelTable, PlacedTables
from blue_solvers.verification.reaches import NO_MAP, Cells, Reach, finite, plus
from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.compiled import compiled
from constraint_builders.description.table import Table
from constraint_builders.relations.marginals import refines


def put_back(
    level: Level, placed: LevelTable, own: Float, said: Cells, variance: Float, known: Float | None = None
) -> tuple[Float, float]:
    """Move to a table the share that leaves least: gives it, (rows, cells), and about how much less is left.

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
    share, start = np.zeros((len(variance), placed.table.size)), level.columns[placed.cover].start
    own, variance = contiguous(np.broadcast_to(own, share.shape)), contiguous(variance)
    known, into = NOTHING if known is None else known, placed.of_cover
    return share, move_shares(into, start, own, known, variance, said, share)


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


def contiguous(cells: Float) -> Float:
    """Cells one after another, of any shape: themselves where they lie so and may be written to."""
    return np.require(cells, requirements=("C", "W"))


def move_shares_in_numpy(
    into: Index, start: int, own: Float, known: Float, variance: Float, said: Cells, share: Float
) -> float:
    """Move cells' means to the cells of a table; gives how much smaller that makes squares in variances.

    Parameters
    ----------
    into : ndarray of int, (k,)
        For each of k cells of a row, the first of which is at `start`, that of the table.
    start : int
    own, known : ndarray (rows, cells), the latter (0, 0) of nothing
        Variances of the table, and what was moved there before.
    variance, said : ndarray (rows, columns), (2, rows, columns)
        Of the cells; the latter is changed, but with cells of infinite variances, which nothing may be moved off.
    share : ndarray (rows, cells)
        Where to put what is moved.
    """
    rows, columns = np.arange(len(variance))[:, None], slice(start, start + into.size)
    usable, noise = np.isfinite(own), variance[:, columns]
    weight, total = np.zeros(share.shape), np.zeros(share.shape)
    np.add.at(weight, (rows, into), noise)
    np.add.at(total, (rows, into), finite(noise) * said[0][:, columns])
    usable &= weight > 0
    if known.size:
        total -= np.where(usable, own, 0.0) * known
    np.divide(total, weight + own, out=share, where=usable)
    gained = float((share * np.where(usable, total, 0.0)).sum())
    plus(said[:, :, columns], -share[:, into])
    return gained


@compiled(reference=move_shares_in_numpy)
def move_shares(into: Index, start: int, own: Float, known: Float, variance: Float, said: Cells, share: Float) -> float:
    """See `move_shares_in_numpy`: own and share are (rows, cells), variance and said (rows, columns)."""
    rows, count = share.shape
    weight, end, gained = np.zeros(count), start + into.size, 0.0
    for i in range(rows):
        noise, high, low, found = variance[i, start:end], said[0, i, start:end], said[1, i, start:end], share[i]
        weight[:] = 0.0
        for j in range(into.size):
            weight[into[j]] += noise[j]
            if noise[j] < np.inf:
                found[into[j]] += noise[j] * high[j]
        for k in range(count):
            if not (weight[k] > 0 and own[i, k] < np.inf):
                found[k] = 0.0
                continue
            if known.size:
                found[k] -= own[i, k] * known[i, k]
            total = found[k]
            found[k] /= weight[k] + own[i, k]
            gained += found[k] * total
        for j in range(into.size):
            total = high[j] - found[into[j]]
            part = total - high[j]
            low[j] += (high[j] - (total - part)) - (found[into[j]] + part)
            high[j] = total
    return gained

"""Residuals of single tables: weighted, spread over the cells of the tables that hold all others, and moved back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blue_solvers.verification.compensated_sums import EXACTLY, Cells, Reach, spread, summed
from blue_solvers.verification.placed_tables import Level, Sheet
from blue_solvers.verification.weighed_noise import ROUNDING
from constraint_builders.arrays import Float, Index


def weighted_residuals(sheet: Sheet, rows: Index, x: Float | None) -> tuple[Float | None, float]:
    """(y - x) / variance of a table, a new array, or None where nothing was measured; and its squared rounding."""
    if sheet.rho is not None:
        return np.array(sheet.rho[rows]), 0.0
    variance = sheet.variance[rows]
    measured = np.isfinite(variance) & (variance > 0)
    if sheet.y is None or x is None or not measured.any():
        return None, 0.0
    q = sheet.y[rows] - x
    if not measured.all():
        q = np.where(measured, q, 0.0)
    weighted = q * np.divide(1.0, variance, out=np.zeros_like(variance), where=measured)
    rounding = float(np.einsum("ij,ij->", q, weighted)) * (6 * ROUNDING) ** 2
    return weighted, rounding if sheet.tied is None else rounding + sheet.tied.pull(weighted, variance, rows)


def said_by_tables(level: Level, rows: int, residuals: Callable[[Sheet], Float | None]) -> Cells:
    """What residuals of all tables say of the cells of those that hold all others, from the coarsest on."""
    said = level.room(rows)
    for sheet in level.sheets:
        rho, columns = residuals(sheet), level.columns[sheet.holder]
        if rho is None:
            continue
        held = np.ascontiguousarray(said[0][:, columns]), np.ascontiguousarray(said[1][:, columns])
        spread((rho, EXACTLY), Reach.itself(rows, sheet.into), held)
        said[0][:, columns], said[1][:, columns] = held
    return said


def sums_of_table(level: Level, sheet: Sheet, cells: Cells) -> Cells:
    """A table as sums of the leaves' cells."""
    columns = level.columns[sheet.holder]
    held = cells[0][:, columns], cells[1][:, columns] if cells[1].size else EXACTLY
    return summed(sheet.into, sheet.table.size, held)


def put_back(level: Level, sheet: Sheet, own: Float, said: Cells, variance: Float, known: Float | None = None) -> Float:
    """Move to a table, whose variances are `own`, the share that leaves least: gives it, (rows, cells).

    `known` is what was moved there before.
    """
    columns, size = level.columns[sheet.holder], sheet.table.size
    high, low = (np.ascontiguousarray(part[:, columns]) for part in said)
    finite = np.where(np.isfinite(variance[:, columns]), variance[:, columns], 0.0)
    reach, own = Reach.itself(len(high), sheet.into), np.broadcast_to(own, (len(high), size))
    (weight, _), (total, _) = (summed(sheet.into, size, (cells, EXACTLY)) for cells in (finite, finite * high))
    usable = np.isfinite(own) & (weight > 0)
    if known is not None:
        total = total - np.where(usable, own, 0.0) * known
    share, rest = np.divide(total, weight + own, out=np.zeros(own.shape), where=usable), np.zeros(own.shape)
    into = sheet.into if sheet.into.size else np.arange(size)
    row, cell = np.nonzero(np.isinf(variance[:, columns]) & np.isfinite(own[:, into]))
    share[row, into[cell]], rest[row, into[cell]] = high[row, cell], low[row, cell]  # nothing else takes it there
    spread((-share, -rest), reach, (high, low))
    said[0][:, columns], said[1][:, columns] = high, low
    return share


def weighed(cells: Float, variance: Float) -> float:
    """Squares in variances; nothing is nothing however large a variance is."""
    if np.isfinite(variance).all():
        return float((cells**2 * variance).sum())
    with np.errstate(invalid="ignore"):
        return float(np.where(cells == 0, 0.0, cells**2 * variance).sum())

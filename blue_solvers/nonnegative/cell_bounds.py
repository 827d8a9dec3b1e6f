"""Bounds on cells that follow from bounds on rows: interval arithmetic, swept over all rows until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram
from constraint_builders.arrays import Flags, Float

SWEEPS = 20
ROUNDING = 1e-13  # of the terms of a row
CONTRADICTION = 1e-9  # of the largest count


@dataclass(frozen=True)
class Ranges:
    """Bounds on cells, (d,) each; infinite where there are none."""

    low: Float
    high: Float

    @property
    def finite(self) -> Flags:
        """Where there is one, (d,)."""
        found: Flags = np.isfinite(self.low) | np.isfinite(self.high)
        return found


def tightened(p: QuadraticProgram) -> QuadraticProgram:
    """The same program with the cells held that rows known exactly leave no room, such as the parts of a zero sum.

    Raises
    ------
    NotConvergedError
        If rows known exactly and the bounds contradict one another.
    """
    exact = np.flatnonzero(p.variance == 0)
    if not exact.size:
        return _weighted(p)
    rows = p.M if exact.size == p.variance.size else sparse.csc_array(p.M.tocsr()[exact])
    finite = np.isfinite(p.lower), np.isfinite(p.upper)
    told = b"".join(own.tobytes() for own in (*finite, p.variance == 0))
    if not p.once("can be held", lambda: _can_have_both_ends(rows, *finite), told):
        return _weighted(p)
    terms = abs(rows) @ np.maximum(abs(p.target), np.where(np.isfinite(p.lower), abs(p.lower), 0.0))
    slack = ROUNDING * (abs(p.answer[exact]) + terms)
    contradiction = CONTRADICTION * p.scale
    box = propagated(rows, Ranges(p.lower, p.upper), p.answer[exact] - slack, p.answer[exact] + slack, contradiction)
    room = ROUNDING * p.scale * max(1.0, float(np.bincount(rows.indices, minlength=1).max()))
    if (box.high < box.low - contradiction).any():
        cell = int(np.argmin(box.high - box.low))
        raise NotConvergedError(
            f"what is known exactly leaves a cell between {box.low[cell]:.6g} and {box.high[cell]:.6g}: no "
            f"{p.kind} meet it. Correct the exact values, or give one a variance above 0"
        )
    held = (p.lower < p.upper) & (box.high - box.low <= 2 * room)
    if not held.any():
        return _weighted(p)
    box = propagated(rows, Ranges(p.lower, p.upper), p.answer[exact], p.answer[exact], contradiction)
    values = np.clip((box.low[held] + box.high[held]) / 2, p.lower[held], p.upper[held])
    values = np.where(abs(values - p.lower[held]) <= 2 * room, p.lower[held], values)
    low, high = p.lower.copy(), p.upper.copy()
    low[held] = high[held] = values
    return _weighted(replace(p, lower=low, upper=high))


def _can_have_both_ends(rows: sparse.csc_array, low: Flags, high: Flags) -> bool:
    """Whether cells, (d,), some of which have lower or upper ends, have both by rows, (k, d), known exactly."""
    ends, nothing = Ranges(np.where(low, 0.0, -np.inf), np.where(high, 0.0, np.inf)), np.zeros(rows.shape[0])
    box = propagated(rows, ends, nothing, nothing, 0.0)
    return bool(np.isfinite(box.high - box.low).any())


def _weighted(p: QuadraticProgram) -> QuadraticProgram:
    """The same program with a weight for cells that are held, which no weight moves."""
    loose = (p.weight == 0) & (p.lower == p.upper)
    if not loose.any():
        return p
    return replace(p, target=np.where(loose, p.lower, p.target), weight=np.where(loose, 1.0, p.weight))


def propagated(M: sparse.csc_array, box: Ranges, row_low: Float, row_high: Float, room: float) -> Ranges:
    """Tighten bounds on cells x by ``row_low <= M x <= row_high``; never beyond what holds for all such x.

    Parameters
    ----------
    M : csc_array, (m, d)
    box : Ranges
    row_low, row_high : ndarray, (m,)
    room : float
        What counts as rounding: bounds are not tightened by less, and may contradict one another by as much; they then
        meet in the middle.

    Returns
    -------
    Ranges
        With a low bound above a high one by more, where there are no such x.
    """
    entry = M.data != 0
    rows, a = M.indices[entry], M.data[entry]
    cells = np.repeat(np.arange(M.shape[1]), np.diff(M.indptr))[entry]
    rising = a > 0
    low, high = box.low.copy(), box.high.copy()
    for _ in range(SWEEPS):
        least = a * np.where(rising, low[cells], high[cells])
        most = a * np.where(rising, high[cells], low[cells])
        above = row_high[rows] - _others(least, rows, M.shape[0])
        below = row_low[rows] - _others(most, rows, M.shape[0])
        lower, higher = low.copy(), high.copy()
        np.minimum.at(higher, cells, np.where(rising, above, below) / a)
        np.maximum.at(lower, cells, np.where(rising, below, above) / a)
        up, down = lower > low + room, higher < high - room  # less is rounding, which sweeps would add up
        low[up], high[down] = lower[up], higher[down]
        crossed = low > high
        if (low - high > room)[crossed].any() or not (up.any() or down.any()):
            break
        low[crossed] = high[crossed] = (low[crossed] + high[crossed]) / 2
    return Ranges(low, high)


def _others(terms: Float, rows: np.ndarray, size: int) -> Float:
    """For every entry, (nnz,), the sum of the other terms in its row; infinite, with their sign, where one is."""
    finite = np.isfinite(terms)
    sums = np.bincount(rows, np.where(finite, terms, 0.0), size)
    infinite = np.bincount(rows, ~finite, size)
    sign = np.sign(terms[~finite][0]) if (~finite).any() else 1.0
    alone = infinite[rows] - ~finite == 0
    return np.where(alone, sums[rows] - np.where(finite, terms, 0.0), sign * np.inf)

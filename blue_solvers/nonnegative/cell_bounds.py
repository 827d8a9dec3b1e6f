"""Bounds on cells that follow from bounds on rows: interval arithmetic, swept over all rows until nothing changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram
from constraint_builders.arrays import Flags, Float

SWEEPS = 20
ROUNDING = 2e-13  # of the largest count and the most entries of a row
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
    exact, contradiction = p.variance == 0, CONTRADICTION * p.scale
    rows, answer = p.M[np.flatnonzero(exact)], p.answer[exact]
    box = propagated(rows, Ranges(p.lower, p.upper), answer, answer, contradiction)
    if (box.high < box.low - contradiction).any():
        cell = int(np.argmin(box.high - box.low))
        raise NotConvergedError(
            f"what is known exactly leaves a cell between {box.low[cell]:.6g} and {box.high[cell]:.6g}: no "
            f"{p.kind} meet it. Correct the exact values, or give one a variance above 0"
        )
    room = ROUNDING * p.scale * max(1.0, float(np.bincount(rows.indices, minlength=1).max()))
    held = box.high - box.low <= room
    values = np.clip((box.low[held] + box.high[held]) / 2, p.lower[held], p.upper[held])
    lower, upper, target, weight = p.lower.copy(), p.upper.copy(), p.target.copy(), p.weight.copy()
    lower[held] = upper[held] = np.where(values <= p.lower[held] + room, p.lower[held], values)
    loose = held & (p.weight == 0)  # what no weight moves
    target[loose], weight[loose] = lower[loose], 1.0
    return replace(p, lower=lower, upper=upper, target=target, weight=weight)


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

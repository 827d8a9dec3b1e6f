"""Small programs that differ in their measurements alone, solved together: by which cells are at bounds.

With H the second derivatives in cells, E the rows known exactly, F the cells off bounds, x and multipliers l solve

    H_FF x_F + E_F' l = h_F - H_FB x_B,    E_F x_F = e - E_B x_B.

Cells that then pass a bound are put at it, and those at bounds that the objective would move inwards are freed, all at
once; after some rounds one at a time, which ends where no cell is at its bound by chance. What has not ended by then,
or is not proved, is left to others.

References
----------
Portugal, Judice and Vicente, "A comparison of block pivoting and interior-point algorithms for linear least squares
problems with nonnegative variables", Math. Comp. 63 (1994).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blue_solvers.nonnegative.quadratic_program import QuadraticProgram
from constraint_builders.arrays import Flags, Float, Index

MOST_UNKNOWNS = 200  # cells and rows known exactly: more are solved faster one by one
MOST_ENTRIES = 4e6  # of matrices at once
ROUNDS, SINGLE = 40, 15  # of pivoting, and from which on single cells are moved
LOOSE = 1e-13  # of a unit diagonal: what makes matrices regular whatever is not determined
PASSED = 1e-10  # of the largest number, or of a gradient's terms: by which rounding may pass a bound, or push
PROVED, MET = 1e-8, 1e-9  # of 1 and the objective, and of the largest number: as in `solving`


class Together(NamedTuple):
    """Cells, (K, d), half their sums of squares, (K,), and which of them are proved to be the least, (K,)."""

    cells: Float
    objectives: Float
    proved: Flags


def fits_in(p: QuadraticProgram) -> bool:
    """Whether a program is so small."""
    return p.weight.size + int((p.variance == 0).sum()) <= MOST_UNKNOWNS


def solve_together(p: QuadraticProgram) -> Together:
    """Solve programs that stand together, (K, d) and (K, m), in units of their noise."""
    exact, M, precise = p.variance == 0, p.M.toarray(), np.sqrt(p.precision)[p.variance > 0]
    E, noisy, answers = M[exact], M[~exact] * precise[:, None], p.answer[:, ~exact] * precise
    equations = _Equations(p, np.diag(p.weight) + noisy.T @ noisy, E, p.weight * p.target + answers @ noisy)
    x, prices = np.clip(p.target, p.lower, p.upper), np.zeros((p.target.shape[0], E.shape[0]))
    likely, held = (p.weight > 0) & (p.lower < p.upper), p.lower == p.upper
    low, high = held | (likely & (x <= p.lower)), likely & (x >= p.upper)
    left, most = np.arange(x.shape[0]), max(1, int(MOST_ENTRIES / (x.shape[1] + E.shape[0]) ** 2))
    for number in range(ROUNDS):
        for own in np.split(left, np.arange(most, left.size, most)):
            x[own], prices[own] = equations.at_bounds(own, low[own], high[own])
        low[left], high[left], changed = equations.pivoted(left, x[left], prices[left], low[left], high[left], number)
        left = left[changed]
        if not left.size:
            break
    x = np.clip(x, p.lower, p.upper)
    deviation, missed = x @ noisy.T - answers, abs(x @ E.T - p.answer[:, exact])
    objectives = ((p.weight * (x - p.target) ** 2).sum(axis=1) + (deviation**2).sum(axis=1)) / 2
    scale = np.maximum(1.0, np.maximum(abs(p.answer).max(axis=1, initial=0.0), abs(p.target).max(axis=1)))
    slope = p.weight * (x - p.target) + deviation @ noisy + prices @ E
    gain = abs(slope) * np.minimum(abs(x - np.where(slope > 0, p.lower, p.upper)), abs(x) + scale[:, None])
    gaps = gain.sum(axis=1) + (abs(prices) * missed).sum(axis=1)
    proved = (gaps <= PROVED * (1 + objectives)) & (missed.max(axis=1, initial=0.0) <= MET * scale)
    return Together(x, objectives, proved)


class _Equations:
    """The equations of cells and multipliers, at changing bounds.

    Parameters
    ----------
    p : QuadraticProgram
    H, E : ndarray, (d, d) and (e, d)
    wanted : ndarray, (K, d)
    """

    def __init__(self, p: QuadraticProgram, H: Float, E: Float, wanted: Float) -> None:
        self._lower, self._upper, self._known = p.lower, p.upper, p.answer[:, p.variance == 0]
        self._H, self._E, self._wanted, self._sizes = H, E, wanted, abs(H)

    def at_bounds(self, own: Index, low: Flags, high: Flags) -> tuple[Float, Float]:
        """Cells, (k, d), and multipliers, (k, e), of programs (k,), with cells at bounds that flags, (k, d), say."""
        H, E, free = self._H, self._E, ~(low | high)
        x = np.where(low, self._lower, np.where(high, self._upper, 0.0))
        most = int(free.sum(axis=1).max())
        cells = np.argsort(~free, axis=1, kind="stable")[:, :most]  # those that are free first
        place, is_free = np.arange(most + E.shape[0]), np.take_along_axis(free, cells, axis=1)
        matrix = np.zeros((own.size, place.size, place.size))
        matrix[:, :most, :most] = H[cells[:, :, None], cells[:, None]] * (is_free[:, :, None] & is_free[:, None])
        matrix[:, :most, most:] = E.T[cells] * is_free[:, :, None]
        matrix[:, most:, :most] = matrix[:, :most, most:].transpose(0, 2, 1)
        matrix[:, place[:most], place[:most]] += np.where(is_free, LOOSE, 1.0)
        matrix[:, place[most:], place[most:]] -= LOOSE
        right = np.where(is_free, np.take_along_axis(self._wanted[own] - x @ H, cells, axis=1), 0.0)
        found = np.linalg.solve(matrix, np.hstack([right, self._known[own] - x @ E.T])[:, :, None])[:, :, 0]
        x[np.arange(own.size)[:, None], cells] += np.where(is_free, found[:, :most], 0.0)
        return x, found[:, most:]

    def pivoted(
        self, own: Index, x: Float, prices: Float, low: Flags, high: Flags, number: int
    ) -> tuple[Flags, Flags, Flags]:
        """Which cells, (k, d), are to be at bounds after so many rounds, and which programs, (k,), that changes."""
        slope = x @ self._H - self._wanted[own] + prices @ self._E
        doubt = PASSED * (abs(x) @ self._sizes + abs(self._wanted[own]) + abs(prices) @ abs(self._E))
        room, free = PASSED * np.maximum(1.0, abs(x).max(axis=1))[:, None], ~(low | high)
        under, over = free & (x < self._lower - room), free & (x > self._upper + room)
        freed = (self._lower < self._upper) & ((low & (slope < -doubt)) | (high & (slope > doubt)))
        changed = under | over | freed
        if number >= SINGLE:
            changed &= np.cumsum(changed[:, ::-1], axis=1)[:, ::-1] == 1
        return np.where(changed, under, low), np.where(changed, over, high), changed.any(axis=1)

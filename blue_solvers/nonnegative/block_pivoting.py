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
    """Cells, (d, K), half their sums of squares, (K,), and which of them are proved to be the least, (K,)."""

    cells: Float
    objectives: Float
    proved: Flags


def fits_in(p: QuadraticProgram) -> bool:
    """Whether a program is so small, and all its rows measured or known exactly, without bounds of their own."""
    return p.target.shape[0] + int((p.variance == 0).sum()) <= MOST_UNKNOWNS and bool(np.isinf(p.radius).all())


def solve_together(p: QuadraticProgram) -> Together:
    """Solve a program in units of its noise, whose targets and answers are columns, (d, K) and (m, K)."""
    exact, M = p.variance == 0, p.M.toarray()
    E, noisy = M[exact], M[~exact] * np.sqrt(p.precision[~exact])[:, None]
    H = np.diag(p.weight) + noisy.T @ noisy
    answers = p.answer[~exact] * np.sqrt(p.precision[~exact])[:, None]
    wanted, known = p.weight[:, None] * p.target + noisy.T @ answers, p.answer[exact]
    columns, size = p.target.shape[1], p.target.shape[0]
    x, prices = np.clip(p.target, p.lower[:, None], p.upper[:, None]), np.zeros((E.shape[0], columns))
    likely = ((p.weight > 0) & (p.lower < p.upper))[:, None]
    low, high = likely & (x <= p.lower[:, None]), likely & (x >= p.upper[:, None])
    low |= (p.lower == p.upper)[:, None]
    rows = max(1, int(MOST_ENTRIES / (size + E.shape[0]) ** 2))
    left = np.arange(columns)
    for number in range(ROUNDS):
        for own in np.split(left, np.arange(rows, left.size, rows)):
            x[:, own], prices[:, own] = _at_bounds(p, H, E, wanted[:, own], known[:, own], low[:, own], high[:, own])
        left = _pivoted(p, H, E, wanted, x, prices, low, high, left, number >= SINGLE)
        if not left.size:
            break
    x = np.clip(x, p.lower[:, None], p.upper[:, None])
    deviation = noisy @ x - answers
    objectives = ((p.weight[:, None] * (x - p.target) ** 2).sum(axis=0) + (deviation**2).sum(axis=0)) / 2
    scale = np.maximum(1.0, np.maximum(abs(p.answer).max(axis=0, initial=0.0), abs(p.target).max(axis=0)))
    missed = abs(E @ x - known)
    slope = p.weight[:, None] * (x - p.target) + noisy.T @ deviation + E.T @ prices
    end = np.where(slope > 0, p.lower[:, None], p.upper[:, None])
    gain = abs(slope) * np.minimum(abs(x - end), abs(x) + scale)
    gaps = gain.sum(axis=0) + (abs(prices) * missed).sum(axis=0)
    proved = (gaps <= PROVED * (1 + objectives)) & (missed.max(axis=0, initial=0.0) <= MET * scale)
    return Together(x, objectives, proved)


def _at_bounds(
    p: QuadraticProgram, H: Float, E: Float, wanted: Float, known: Float, low: Flags, high: Flags
) -> tuple[Float, Float]:
    """Cells, (d, K), and multipliers of rows known exactly, (e, K), with cells at bounds that flags, (d, K), say."""
    free = ~(low | high).T
    held = np.where(low.T, p.lower, np.where(high.T, p.upper, 0.0))
    most, rows = int(free.sum(axis=1).max()), np.arange(free.shape[0])[:, None]
    cells = np.argsort(~free, axis=1, kind="stable")[:, :most]  # those that are free first
    place, own = np.arange(most + E.shape[0]), np.take_along_axis(free, cells, axis=1)
    matrix = np.zeros((free.shape[0], place.size, place.size))
    matrix[:, :most, :most] = H[cells[:, :, None], cells[:, None]] * (own[:, :, None] & own[:, None])
    matrix[:, :most, most:] = E.T[cells] * own[:, :, None]
    matrix[:, most:, :most] = matrix[:, :most, most:].transpose(0, 2, 1)
    matrix[:, place[:most], place[:most]] += np.where(own, LOOSE, 1.0)
    matrix[:, place[most:], place[most:]] -= LOOSE
    right = np.where(own, np.take_along_axis(wanted.T - held @ H, cells, axis=1), 0.0)
    found = np.linalg.solve(matrix, np.hstack([right, known.T - held @ E.T])[:, :, None])[:, :, 0]
    held[rows, cells] += np.where(own, found[:, :most], 0.0)
    return held.T, found[:, most:].T


def _pivoted(
    p: QuadraticProgram, H: Float, E: Float, wanted: Float, x: Float, prices: Float, low: Flags, high: Flags,
    left: Index, single: bool,
) -> Index:  # fmt: skip
    """Change which cells of the columns `left` are at bounds, flags (d, K), and say which columns had to change."""
    own, multipliers = x[:, left], prices[:, left]
    lower, upper = p.lower[:, None], p.upper[:, None]
    slope = H @ own - wanted[:, left] + E.T @ multipliers
    doubt = PASSED * (abs(H) @ abs(own) + abs(wanted[:, left]) + abs(E).T @ abs(multipliers))
    room, movable = PASSED * np.maximum(1.0, abs(own).max(axis=0)), lower < upper
    at_low, at_high = low[:, left], high[:, left]
    free = ~(at_low | at_high)
    under, over = free & (own < lower - room), free & (own > upper + room)
    freed = movable & ((at_low & (slope < -doubt)) | (at_high & (slope > doubt)))
    changed = under | over | freed
    if single:
        changed &= np.cumsum(changed[::-1], axis=0)[::-1] == 1
    low[:, left] = np.where(changed, under, at_low)
    high[:, left] = np.where(changed, over, at_high)
    return left[changed.any(axis=0)]

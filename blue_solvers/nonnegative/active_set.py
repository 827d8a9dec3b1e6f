"""A primal active-set method by dense factors: slow, and exact where precisions differ by many decades.

The cells are split into free ones and ones that sit on a bound. The free ones take the step to their least squares
subject to the rows known exactly: with W the weights, V the variances, F the free cells, x and multipliers l solve

    W_F (x - t)_F + M_F' l = 0,    M x - V l = a,

where no precision is squared, nor added to another. Where several solve them it is the nearest, by a proximal point
method. A step stops at the first bound that it meets. At the least squares, the cell on a bound whose gradient pulls
hardest inwards is freed; where there is none the cells are optimal. Where cells were freed in vain, as the sum of
squares did not fall, multipliers come from all on bounds together.

References
----------
Lawson and Hanson, "Solving least squares problems", 1974, chapters 22 and 23; Bjorck, "Numerical methods for least
squares problems", 1996, section 2.5.3, for the augmented system.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy import sparse
from scipy.sparse.linalg import splu

from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, Solution, csc
from constraint_builders.arrays import Flags, Float

MOST_CELLS = 400
LEAST_SPARSE = 400  # cells and rows: measured, dense factors of fewer take less time
MOST_ENTRIES = 0.01  # of a matrix that is held sparse: measured too
LOOSE, PROXIMAL_STEPS = 3e-13, 8  # of a unit diagonal: what makes matrices regular whatever is not determined
SIGN = 1e-11  # of the terms of a gradient: what is less is rounding
LESS = 1e-13  # of the least sum of squares so far: what falls by less, by rounding, might do so for ever
STILL = 1e-15  # of the largest cell: a step that is none
STEPS_PER_CELL = 6


def fits_in(p: QuadraticProgram) -> bool:
    """Whether a program is small enough."""
    return p.target.size <= MOST_CELLS


def polish(p: QuadraticProgram, start: Float) -> Solution:
    """Solve a program from cells that meet its bounds, and what is known exactly nearly.

    Parameters
    ----------
    p : QuadraticProgram
    start : ndarray, (d,)

    Returns
    -------
    Solution
        Whether it is one, its certificate says.
    """
    M, u, fixed = p.M.toarray(), np.clip(start, p.lower, p.upper), p.lower == p.upper
    free, steps, least = (p.lower < u) & (u < p.upper), 0, np.inf
    banned = np.zeros(u.size, dtype=bool)  # freed in vain since the sum of squares last fell
    while steps < STEPS_PER_CELL * u.size + 20:
        steps += 1
        step, prices = _step(p, M, u, free)
        length, blocking = _first_bound(p, u, step, free)
        u = np.clip(u + length * step, p.lower, p.upper)
        value = float(p.weight @ (u - p.target) ** 2 + p.precision @ (M @ u - p.answer) ** 2)
        falls, least = value < least * (1 - LESS), min(value, least)
        if falls:
            banned[:] = False
        if blocking.any():
            u[blocking] = np.where(step[blocking] < 0, p.lower[blocking], p.upper[blocking])
            free &= ~blocking
            banned |= blocking & (not falls)
            continue
        reduced = p.weight * (u - p.target) + prices @ M
        doubt = p.weight * abs(u - p.target) + abs(prices) @ abs(M)
        inward = np.where(u <= p.lower, -reduced, np.where(u >= p.upper, reduced, 0.0))
        inward[free | fixed | (inward <= SIGN * doubt)] = 0
        inward[banned] = 0
        if not inward.any():
            if banned.any():
                prices = _together(p, M, u)
            break
        free[int(np.argmax(inward / np.maximum(doubt, np.finfo(float).tiny)))] = True
    else:
        prices = _together(p, M, u)
    return Solution(u, prices, steps)


def _step(p: QuadraticProgram, M: Float, u: Float, free: Flags) -> tuple[Float, Float]:
    """From u, (cells,), to the least squares over the free cells, and multipliers there, (rows,); M, (rows, cells)."""
    cells, step, prices = np.flatnonzero(free), np.zeros(u.size), np.zeros(p.answer.size)
    rows = np.flatnonzero((p.variance > 0) | M[:, cells].any(axis=1))
    N, weight, variance = M[np.ix_(rows, cells)], p.weight[cells], p.variance[rows]
    curvature = p.curvature[cells]
    of_cells = np.where(curvature > 0, curvature, curvature.max(initial=0.0) or 1.0)
    of_rows = variance + N**2 @ (1 / of_cells)
    units = np.concatenate([of_cells, of_rows]) ** -0.5
    loose = LOOSE * np.repeat([1.0, -1.0], [cells.size, rows.size])
    N *= units[cells.size :, None] * units[: cells.size]
    matrix = _augmented(N, np.concatenate([weight, -variance]) * units**2 + loose)
    found = np.zeros(units.size)
    if isinstance(matrix, np.ndarray):
        solve = partial(scipy.linalg.lu_solve, scipy.linalg.lu_factor(matrix))
    else:
        solve = splu(matrix, permc_spec="MMD_AT_PLUS_A").solve
    right = left = units * np.concatenate([weight * (p.target - u)[cells], (p.answer - M @ u)[rows]])
    for _ in range(PROXIMAL_STEPS):
        change = solve(left)
        found += change
        if abs(change).max(initial=0.0) <= STILL * abs(found).max(initial=0.0):
            break
        left = right - matrix @ found + loose * found
    step[cells], prices[rows] = np.split(units * found, [cells.size])
    return step, prices


def _augmented(N: Float, diagonal: Float) -> Any:
    """The matrix of rows N, (rows, cells), beside its transpose; sparse where it is large and mostly 0."""
    if diagonal.size > LEAST_SPARSE and np.count_nonzero(N) <= MOST_ENTRIES * diagonal.size**2:
        rows = sparse.csr_array(N)
        return csc(sparse.block_array([[None, rows.T], [rows, None]]) + sparse.diags_array(diagonal))
    matrix, count = np.diag(diagonal), N.shape[1]
    matrix[count:, :count], matrix[:count, count:] = N, N.T
    return matrix


def _first_bound(p: QuadraticProgram, u: Float, step: Float, free: Flags) -> tuple[float, Flags]:
    """How much of a step, (cells,), stays within the bounds, at most all of it, and which cells stop it."""
    room = np.full(u.size, np.inf)
    still = STILL * max(1.0, float(abs(u).max(initial=0.0)))
    falling, rising = free & (step < -still), free & (step > still)
    room[falling] = (u - p.lower)[falling] / -step[falling]
    room[rising] = (p.upper - u)[rising] / step[rising]
    length = min(1.0, float(room.min(initial=np.inf)))
    return max(length, 0.0), (room <= length) & (room < 1.0)


def _together(p: QuadraticProgram, M: Float, u: Float) -> Float:
    """Multipliers of rows, (rows, cells), that leave gradients of the right signs on bounds.

    Where bounds follow from others multipliers are not unique, and cells are freed in vain one by one. What is off a
    bound by rounding is at it.
    """
    exact, own, room = p.variance == 0, np.eye(u.size), SIGN * float(abs(u).max(initial=0.0))
    prices = (M @ u - p.answer) * p.precision
    gradient = p.weight * (u - p.target) + prices @ M
    columns = np.hstack([M[exact].T, -own[:, u - p.lower <= room], own[:, p.upper - u <= room]])
    held = int(exact.sum())
    least = np.where(np.arange(columns.shape[1]) < held, -np.inf, 0.0)
    found = scipy.optimize.lsq_linear(columns, -gradient, (least, np.inf), method="bvls", tol=SIGN)
    prices[exact] = found.x[:held]
    return prices

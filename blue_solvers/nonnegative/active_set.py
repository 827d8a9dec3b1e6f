"""A primal active-set method with dense orthogonal factors: slow, and exact where precisions differ by many decades.

The cells are split into free ones and ones that sit on a bound. The free ones take the step to their least squares
subject to the rows known exactly, by orthogonal factors of the weighted rows, the heaviest first; normal equations
would square their condition. A step stops at the first bound that it meets. At the least squares, the cell on a bound
whose gradient pulls hardest inwards is freed; where there is none the cells are optimal. Where cells were freed in
vain, all on bounds are looked at together.

References
----------
Lawson and Hanson, "Solving least squares problems", 1974, chapters 22 and 23; Bjorck, "Numerical methods for least
squares problems", 1996, section 4.4, for the order of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize

from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, Solution
from constraint_builders.arrays import Flags, Float

MOST_CELLS = 400
RANK = 1e-11  # of the largest singular value
UNSEEN = 1e-12  # of a row's largest weight
SIGN = 1e-11  # of the terms of a gradient: what is less is rounding
STILL = 1e-15  # of the largest cell: a step that is none
STEPS_PER_CELL = 6


@dataclass(frozen=True)
class DenseProgram:
    """Minimise ``|A u - b|^2 / 2`` subject to ``C u = e`` and ``low <= u <= high``.

    Rows of A come heaviest first.
    """

    A: Float
    b: Float
    C: Float
    e: Float
    low: Float
    high: Float


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
    dense, u = _dense(p), np.clip(start, p.lower, p.upper)
    cells, prices, steps = _descend(dense, u, (dense.low < u) & (u < dense.high))
    deviation = p.M @ cells - p.answer
    multipliers = np.divide(deviation, p.variance, out=np.zeros_like(deviation), where=p.variance > 0)
    multipliers[p.variance == 0] = prices
    return Solution(cells, multipliers, steps)


def _dense(p: QuadraticProgram) -> DenseProgram:
    M, exact, own = p.M.toarray(), p.variance == 0, np.flatnonzero(p.weight > 0)
    roots = np.concatenate([np.sqrt(p.weight[own]), 1 / np.sqrt(p.variance[~exact])])
    A, b = np.vstack([np.eye(p.target.size)[own], M[~exact]]), np.concatenate([p.target[own], p.answer[~exact]])
    order = np.argsort(-roots, kind="stable")
    heavy = (roots[:, None] * A)[order], (roots * b)[order]
    return DenseProgram(*heavy, M[exact], p.answer[exact], p.lower, p.upper)


def _descend(q: DenseProgram, u: Float, free: Flags) -> tuple[Float, Float, int]:
    """From a point, (cells,), and its free cells to the optimum: cells, multipliers of C, and the steps."""
    fixed = q.low == q.high
    free, prices = free.copy(), np.zeros(q.e.size)
    banned = np.zeros(u.size, dtype=bool)  # freed in vain since the last step of any length
    steps = 0
    while steps < STEPS_PER_CELL * u.size + 20:
        steps += 1
        step = _step(q, u, free)
        length, blocking = _first_bound(q, u, step, free)
        u, moves = np.clip(u + length * step, q.low, q.high), _moves(u, length * step)
        if moves:
            banned[:] = False
        if blocking.any():
            u[blocking] = np.where(step[blocking] < 0, q.low[blocking], q.high[blocking])
            free &= ~blocking
            banned |= blocking & (not moves)
            continue
        prices, reduced, doubt = _prices(q, u, free)
        inward = np.where(u <= q.low, -reduced, np.where(u >= q.high, reduced, 0.0))
        inward[free | fixed | (inward <= SIGN * doubt)] = 0
        inward[banned] = 0
        if not inward.any():
            if banned.any():
                prices, step = _together(q, u)
                length, _ = _first_bound(q, u, step, ~fixed)
                if _moves(u, length * step):
                    u = np.clip(u + length * step, q.low, q.high)
                    free, banned[:] = (q.low < u) & (u < q.high), False
                    continue
            break
        free[int(np.argmax(inward / np.maximum(doubt, np.finfo(float).tiny)))] = True
    else:
        prices, _ = _together(q, u)
    return u, prices, steps


def _moves(u: Float, step: Float) -> bool:
    """Whether a step is more than rounding of cells, (cells,) each."""
    size = float(abs(step).max(initial=0.0))
    return size > SIGN * max(size, float(abs(u).max(initial=0.0)))


def _step(q: DenseProgram, u: Float, free: Flags) -> Float:
    """From u, (cells,), to the least squares over the free cells; the shortest step where several do."""
    step = np.zeros(u.size)
    if not free.any():
        return step
    C, left = q.C[:, free], q.e - q.C @ u
    toward, along = _null_space(C, left)
    right = q.b - q.A @ (u + _spread(toward, free))
    B = q.A[:, free] @ along
    B[abs(B) <= UNSEEN * abs(q.A).max(axis=1, initial=0.0)[:, None]] = 0  # what a heavy row does not see is rounding
    step[free] = toward + along @ scipy.linalg.lstsq(B, right, cond=RANK, lapack_driver="gelsy")[0]  # by pivoted QR
    return step


def _spread(values: Float, free: Flags) -> Float:
    """Values of the free cells, (free,), among all, (cells,), 0 elsewhere."""
    full = np.zeros(free.size)
    full[free] = values
    return full


def _null_space(C: Float, left: Float) -> tuple[Float, Float]:
    """The shortest solution of C p = left, (cells,), and an orthonormal basis of what C does not see, (cells, q)."""
    if not C.shape[0]:
        return np.zeros(C.shape[1]), np.eye(C.shape[1])
    U, s, Vt = scipy.linalg.svd(C)
    rank = int((s > RANK * max(1.0, s[0])).sum())
    return Vt[:rank].T @ ((U[:, :rank].T @ left) / s[:rank]), Vt[rank:].T


def _first_bound(q: DenseProgram, u: Float, step: Float, free: Flags) -> tuple[float, Flags]:
    """How much of a step, (cells,), stays within the bounds, at most all of it, and which cells stop it."""
    room = np.full(u.size, np.inf)
    still = STILL * max(1.0, float(abs(u).max(initial=0.0)))
    falling, rising = free & (step < -still), free & (step > still)
    room[falling] = (u - q.low)[falling] / -step[falling]
    room[rising] = (q.high - u)[rising] / step[rising]
    length = min(1.0, float(room.min(initial=np.inf)))
    return max(length, 0.0), (room <= length) & (room < 1.0)


def _together(q: DenseProgram, u: Float) -> tuple[Float, Float]:
    """Multipliers of C, (held,), that leave gradients of the right signs on bounds; a step, (cells,), down the rest.

    Where bounds follow from others multipliers are not unique, and cells are freed in vain one by one.
    """
    gradient, own = q.A.T @ (q.A @ u - q.b), np.eye(u.size)
    columns = np.hstack([q.C.T, -own[:, u <= q.low], own[:, u >= q.high]])
    least = np.where(np.arange(columns.shape[1]) < q.e.size, -np.inf, 0.0)
    found = scipy.optimize.lsq_linear(columns, -gradient, (least, np.inf), method="bvls", tol=SIGN)
    left = gradient + columns @ found.x
    curvature = float(np.sum((q.A @ left) ** 2))
    return found.x[: q.e.size], -left * (left @ left / curvature if curvature > 0 else 0.0)


def _prices(q: DenseProgram, u: Float, free: Flags) -> tuple[Float, Float, Float]:
    """Multipliers of C, (held,), the gradient that they leave, (cells,), and the size of its terms, (cells,)."""
    residual = q.A @ u - q.b
    gradient = q.A.T @ residual
    prices: Float = np.zeros(q.e.size)
    if free.any():
        prices = scipy.linalg.lstsq(q.C[:, free].T, -gradient[free], cond=RANK)[0]
    doubt = abs(q.A).T @ abs(residual) + abs(q.C).T @ abs(prices)
    return prices, gradient + q.C.T @ prices, doubt

"""The proof that fitted cells are what a programme asks for: how far its objective is from the optimum, at most.

For any multipliers of the rows the Lagrangian's minimum over cells and rows bounds the optimum from below (weak
duality). What the objective of given cells exceeds it by is a sum over cells and rows of terms that are not negative,

    of a cell    w/2 (x - x^)^2 + (w (x^ - t) + pull) (x - x^),    x^ = clip(t - pull / w) its minimiser,
    of a row     (z - z^)^2 / 2v + ((z^ - a) / v - lambda) (z - z^),    z^ = a + clip(v lambda),

so that nothing cancels. A cell without a weight of its own is bounded by what the objective leaves its rows. Where
nothing bounds it either, as cells of any sign, the proof is against all cells that are no farther away than the largest
count; by convexity what is k times as far gains k times the gap at most.

The objective is half a chi-square, and strongly convex in the weighted sums: cells whose objective is within g of the
optimum have every sum within sqrt(2 g) of its own standard errors of the optimum's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import lsqr

from blue_solvers.nonnegative.boxes import Box, propagated
from blue_solvers.nonnegative.programme import Float, Programme, Solution, kkt_residual

EPSILON = float(np.finfo(float).eps)
INFLATION = 1e-9  # relative, of bounds that were worked out in floating point
MOST_DENSE = 400
LSQR_STEPS = 2000


@dataclass(frozen=True)
class Certified:
    """Cells that solve a programme, and how well.

    Attributes
    ----------
    cells : ndarray, (d,)
    multipliers : ndarray, (m,)
    iterations : int
    objective : float
        Of the cells: half the sum of squares in standard deviations.
    gap : float
        What the objective exceeds the optimum by, at most, rounding included.
    rounding : float
        How much of the gap is allowed for the rounding of its own terms.
    kkt_residual : float
        See `blue_solvers.nonnegative.programme.kkt_residual`.
    margin_residual : float
        How far the cells are from the rows known exactly, in counts.
    """

    cells: Float
    multipliers: Float
    iterations: int
    objective: float
    gap: float
    rounding: float
    kkt_residual: float
    margin_residual: float


def certify(p: Programme, solution: Solution) -> Certified:
    """A solution with its certificate.

    Parameters
    ----------
    p : Programme
    solution : Solution

    Returns
    -------
    Certified
    """
    x = solution.cells
    exact = p.variance == 0
    missed = abs(p.M @ x - p.answer)[exact]
    objective = objective_of(p, x)
    gap, rounding = duality_gap(p, solution, objective)
    residual = kkt_residual(p, solution)
    return Certified(
        x, solution.multipliers, solution.iterations, objective, gap, rounding, residual, float(missed.max(initial=0.0))
    )


def objective_of(p: Programme, x: Float) -> float:
    """Half the sum of squares in standard deviations, over cells and rows that have a variance."""
    deviation = p.M @ x - p.answer
    noisy = p.variance > 0
    return float(0.5 * (p.weight * (x - p.target) ** 2).sum() + 0.5 * (deviation[noisy] ** 2 / p.variance[noisy]).sum())


def duality_gap(p: Programme, solution: Solution, objective: float) -> tuple[float, float]:
    """What an objective exceeds the optimum by, at most, and how much of that allows for rounding.

    By the solution's multipliers, or those that its cells imply, whichever prove more.
    """
    deviation = p.M @ solution.cells - p.answer
    implied = np.divide(deviation, p.variance, out=np.zeros_like(deviation), where=p.variance > 0)
    implied = np.where((p.variance > 0) & np.isinf(p.radius), implied, solution.multipliers)
    box = _reachable(p, solution.cells, objective)
    inner = (p.weight == 0) & (p.lower < solution.cells) & (solution.cells < p.upper)
    candidates = [implied, solution.multipliers]
    if inner.any():
        candidates.append(_without_pull(p, implied, inner))
    found = []
    for multipliers in candidates:
        pull, doubt = p.M.T @ multipliers, 4 * EPSILON * (abs(p.M).T @ abs(multipliers))
        sharp = _gap(p, solution.cells, deviation, box, multipliers, pull, np.zeros_like(doubt))
        gap = _gap(p, solution.cells, deviation, box, multipliers, pull, doubt)
        found.append((gap, gap - sharp))
    return min(found)


def _reachable(p: Programme, x: Float, objective: float) -> Box:
    """Bounds on the untied cells of every solution that is no worse than x; finite, see the module."""
    untied = (p.weight == 0) & (p.lower < p.upper)
    if not untied.any():
        return Box(p.lower, p.upper)
    reach = np.sqrt(2 * objective / np.where(p.weight > 0, p.weight, np.inf))
    low = np.where(p.weight > 0, np.maximum(p.lower, p.target - reach), p.lower)
    high = np.where(p.weight > 0, np.minimum(p.upper, p.target + reach), p.upper)
    reach = np.minimum(p.radius, np.sqrt(2 * objective * p.variance)) + INFLATION * p.scale
    found = propagated(p.M, Box(low, high), p.answer - reach, p.answer + reach, INFLATION * p.scale)
    low, high = found.low - INFLATION * abs(found.low), found.high + INFLATION * abs(found.high)
    around = abs(x) + p.scale
    low = np.where(np.isinf(low), x - around, np.minimum(low, x))
    high = np.where(np.isinf(high), x + around, np.maximum(high, x))
    return Box(
        np.where(untied, np.maximum(low, p.lower), p.lower), np.where(untied, np.minimum(high, p.upper), p.upper)
    )


def _gap(p: Programme, x: Float, deviation: Float, box: Box, multipliers: Float, pull: Float, doubt: Float) -> float:
    tied, free = p.weight > 0, (p.weight == 0) & (p.lower < p.upper)
    untied = _of_untied(x[free], pull[free], doubt[free], box.low[free], box.high[free])
    return _of_rows(p, deviation, multipliers) + _of_tied(p, x, pull, doubt, tied) + untied


def _of_rows(p: Programme, deviation: Float, multipliers: Float) -> float:
    noisy = p.variance > 0
    v, dev, m = p.variance[noisy], deviation[noisy], multipliers[noisy]
    nearest = np.clip(v * m, -p.radius[noisy], p.radius[noisy])
    step = dev - nearest
    # The product is not negative for a row within its radius; beyond it by rounding, no gain is claimed.
    terms = step**2 / (2 * v) + abs((nearest / v - m) * step)
    return float(terms.sum() + abs(multipliers * deviation)[~noisy].sum())


def _of_tied(p: Programme, x: Float, pull: Float, doubt: Float, tied: NDArray[np.bool_]) -> float:
    w, t, pull, doubt = p.weight[tied], p.target[tied], pull[tied], doubt[tied]
    nearest = np.clip(t - pull / w, p.lower[tied], p.upper[tied])
    step = x[tied] - nearest
    terms = w / 2 * step**2 + (w * (nearest - t) + pull) * step
    return float((np.maximum(terms, 0.0) + doubt * abs(step) + doubt**2 / (2 * w)).sum())


def _of_untied(x: Float, pull: Float, doubt: Float, low: Float, high: Float) -> float:
    """Cells without weight: what their linear term gains by moving to its better bound."""
    worst = np.zeros(x.size)
    for slope in (pull - doubt, pull + doubt):
        worst = np.maximum(worst, np.where(slope > 0, slope * (x - low), slope * (x - high)))
    return float(worst.sum())


def _without_pull(p: Programme, multipliers: Float, cells: NDArray[np.bool_]) -> Float:
    """Multipliers that pull at no cell off its bounds, changed by the least sum of squares in standard deviations."""
    noisy = p.variance > 0
    scale = np.sqrt(np.where(noisy, p.variance, 1.0))
    inverse = np.where(noisy, 1 / scale, 1e3 * (1 / scale[noisy]).max(initial=1.0))
    columns = np.flatnonzero(cells)
    matrix = sparse.csr_array(p.M[:, columns].T @ sparse.diags_array(inverse))
    pull = p.M[:, columns].T @ multipliers
    if max(matrix.shape) <= MOST_DENSE:
        change = np.linalg.lstsq(matrix.toarray(), pull, rcond=1e-13)[0]
    else:
        change = lsqr(matrix, pull, atol=1e-15, btol=1e-15, iter_lim=LSQR_STEPS)[0]
    return multipliers - inverse * change

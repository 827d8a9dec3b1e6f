"""The proof that fitted cells are what a program asks for: how far its objective is from the optimum, at most.

For any multipliers of the rows the Lagrangian's minimum over cells and rows bounds the optimum from below (weak
duality). What the objective of given cells exceeds it by is a sum over cells and rows of terms that are not negative,

    of a cell    w/2 (x - x^)^2 + (w (x^ - t) + pull) (x - x^),    x^ = clip(t - pull / w) its minimiser,
    of a row     (z - z^)^2 / 2v,    z^ = a + v lambda,

so that nothing cancels. A cell without a weight of its own is bounded by what the objective leaves its rows. Where
nothing bounds it either, as cells of any sign, the proof is against all cells that are no farther away than the largest
count; by convexity what is k times as far gains k times the gap at most.

The objective is half a chi-square, and strongly convex in the weighted sums: cells whose objective is within g of the
optimum have every sum within sqrt(2 g) of its own standard errors of the optimum's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import lsqr

from blue_solvers.nonnegative.cell_bounds import Ranges, propagated
from blue_solvers.nonnegative.quadratic_program import QuadraticProgram, Solution, kkt_residual
from blue_solvers.normal_equations.factorisation import factorise
from constraint_builders.arrays import Float

EPSILON = float(np.finfo(float).eps)
INFLATION = 1e-9  # relative, of bounds that were worked out in floating point
SHARP = 1e-12  # of 1 and the objective: sums are within 1.4e-6 of their standard errors
MOST_PAIRS = 1e8  # in rows, up to which multipliers are balanced by a factor: 1.6 s in New Zealand, not 27 of LSQR
DAMPING, PROXIMAL_STEPS = 1e-9, 3
LSQR_STEPS = 2000


@dataclass(frozen=True)
class Certified:
    """Cells that solve a program, and how well.

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
        See `blue_solvers.nonnegative.quadratic_program.kkt_residual`.
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


def certify(p: QuadraticProgram, solution: Solution) -> Certified:
    """A solution with its certificate.

    Parameters
    ----------
    p : QuadraticProgram
    solution : Solution

    Returns
    -------
    Certified
    """
    x, deviation = solution.cells, p.plain @ solution.cells - p.answer
    missed = float(abs(deviation[p.variance == 0]).max(initial=0.0))
    objective = float((p.weight * (x - p.target) ** 2).sum() + (deviation**2 * p.precision).sum()) / 2
    gap, rounding = _duality_gap(p, solution, objective, deviation)
    residual = kkt_residual(p, solution, deviation)
    return Certified(x, solution.multipliers, solution.iterations, objective, gap, rounding, residual, missed)


def _duality_gap(p: QuadraticProgram, solution: Solution, objective: float, deviation: Float) -> tuple[float, float]:
    """What an objective exceeds the optimum by, at most, and how much of that would not be there without rounding.

    By the solution's multipliers, or those that its cells imply by the deviation of rows, (rows,), whichever prove
    more.
    """
    implied = np.divide(deviation, p.variance, out=np.zeros_like(deviation), where=p.variance > 0)
    implied = np.where(p.variance == 0, solution.multipliers, implied)
    box = _reachable(p, solution.cells, objective)
    found = [_proved(p, solution.cells, deviation, box, implied)]
    if found[0][0] > SHARP * (1 + objective):
        others = (solution.multipliers, _balanced(p, solution.cells, implied))
        found += [_proved(p, solution.cells, deviation, box, one) for one in others]
    gap = min(gap for gap, _ in found)
    if objective < gap:  # no sum of squares is below 0
        return objective, 0.0
    return gap, max(0.0, gap - min(gap - rounding for gap, rounding in found))


def _proved(p: QuadraticProgram, x: Float, deviation: Float, box: Ranges, multipliers: Float) -> tuple[float, float]:
    """What multipliers, (rows,), prove, and how much of it allows for rounding: of gradients, and of exact sums."""
    pull, doubt = p.upright(p.plain) @ multipliers, 4 * EPSILON * (p.upright(p.sizes) @ abs(multipliers))
    rows = float(((deviation - p.variance * multipliers) ** 2 * p.precision).sum()) / 2
    cells, rounded = _of_cells(p, x, pull, doubt, box)
    exact = p.variance == 0
    missed = abs(deviation[exact])
    unavoidable = np.minimum(missed, 4 * EPSILON * (p.sizes @ abs(x) + abs(p.answer))[exact])
    prices = abs(multipliers[exact])
    return rows + cells + float(prices @ missed), rounded + float(prices @ unavoidable)


def _reachable(p: QuadraticProgram, x: Float, objective: float) -> Ranges:
    """Bounds on the untied cells of every solution that is no worse than x, (cells,); finite, see the module."""
    untied = (p.weight == 0) & (p.lower < p.upper)
    if not untied.any():
        return Ranges(p.lower, p.upper)
    reach = np.sqrt(2 * objective / np.where(p.weight > 0, p.weight, np.inf))
    low = np.where(p.weight > 0, np.maximum(p.lower, p.target - reach), p.lower)
    high = np.where(p.weight > 0, np.minimum(p.upper, p.target + reach), p.upper)
    reach = np.sqrt(2 * objective * p.variance) + INFLATION * p.scale
    found = propagated(p.M, Ranges(low, high), p.answer - reach, p.answer + reach, INFLATION * p.scale)
    low, high = found.low - INFLATION * abs(found.low), found.high + INFLATION * abs(found.high)
    around = abs(x) + p.scale
    low = np.where(np.isinf(low), x - around, np.minimum(low, x))
    high = np.where(np.isinf(high), x + around, np.maximum(high, x))
    return Ranges(
        np.where(untied, np.maximum(low, p.lower), p.lower), np.where(untied, np.minimum(high, p.upper), p.upper)
    )


def _of_cells(p: QuadraticProgram, x: Float, pull: Float, doubt: Float, box: Ranges) -> tuple[float, float]:
    """What all cells, (cells,), may still gain, with and without weight, and how much of it is for what is doubtful."""
    gain, rounding = _of_tied(p, x, pull, doubt)
    free = (p.weight == 0) & (p.lower < p.upper)
    if free.any():
        own = x[free], pull[free], doubt[free], box.low[free], box.high[free]
        untied = _of_untied(*own)
        rounding += untied - _of_untied(*own[:2], np.zeros(own[2].size), *own[3:])
        gain += untied
    return gain, rounding


def _of_tied(p: QuadraticProgram, x: Float, pull: Float, doubt: Float) -> tuple[float, float]:
    """What cells with a weight, of all (cells,), may still gain, and how much of it is for what is doubtful."""
    tied = p.weight > 0
    own = (p.weight, p.target, p.lower, p.upper, x, pull, doubt)
    w, t, lower, upper, x, pull, doubt = own if tied.all() else (one[tied] for one in own)
    nearest = np.clip(t - pull / w, lower, upper)
    step = x - nearest
    terms = w / 2 * step**2 + (w * (nearest - t) + pull) * step
    rounding = float((doubt * abs(step) + doubt**2 / (2 * w)).sum())
    return float(np.maximum(terms, 0.0).sum()) + rounding, rounding


def _of_untied(x: Float, pull: Float, doubt: Float, low: Float, high: Float) -> float:
    """Cells without weight, (untied,): what their linear term gains by moving to its better bound."""
    worst = np.zeros(x.size)
    for slope in (pull - doubt, pull + doubt):
        worst = np.maximum(worst, np.where(slope > 0, slope * (x - low), slope * (x - high)))
    return float(worst.sum())


def _balanced(p: QuadraticProgram, x: Float, multipliers: Float) -> Float:
    """Multipliers, (rows,), by the least change in standard deviations that holds every cell off its bounds as it is.

    A row's deviation is known to the rounding of counts; divided by a small variance that is much. Cells with a weight
    of their own may stay out of balance by as much as that takes up.
    """
    inner = np.flatnonzero((p.lower < x) & (x < p.upper))
    tied = inner[p.weight[inner] > 0]
    exact = p.variance == 0
    precise = 1 / np.sqrt(np.where(exact, 1.0, p.variance))
    inverse = np.where(exact, 1e3 * precise.max(initial=1.0), precise)
    own = (np.sqrt(p.weight[tied]), (np.searchsorted(inner, tied), np.arange(tied.size)))
    taken_up = sparse.csr_array(own, shape=(inner.size, tied.size))
    matrix = sparse.csr_array(sparse.hstack([p.M[:, inner].T @ sparse.diags_array(inverse), taken_up]))
    unbalanced = (p.weight * (x - p.target))[inner] + p.M[:, inner].T @ multipliers
    if float((np.diff(matrix.indptr).astype(float) ** 2).sum()) <= MOST_PAIRS:
        change = _least_change(matrix, unbalanced)
    else:
        change = lsqr(matrix, unbalanced, atol=1e-15, btol=1e-15, iter_lim=LSQR_STEPS)[0]
    return multipliers - inverse * change[: inverse.size]


def _least_change(matrix: sparse.csr_array, unbalanced: Float) -> Float:
    """The least solution of least squares, (columns,), by steps of a proximal point method that begin at 0."""
    gram = sparse.csc_array(matrix.T @ matrix)
    diagonal = gram.diagonal()
    largest = diagonal.max(initial=0.0)
    if not largest:
        return np.zeros(diagonal.size)
    factor = factorise(gram + sparse.diags_array(DAMPING * np.maximum(diagonal, DAMPING * largest)))
    change = np.zeros(diagonal.size)
    for _ in range(PROXIMAL_STEPS):
        change += factor.solve(matrix.T @ (unbalanced - matrix @ change))
    return change

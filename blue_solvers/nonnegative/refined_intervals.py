"""Intervals beside non-negative fits: the unbiased ones refined, and what the fits' own would cover.

A fitted answer is biased by an amount that depends on the unknown truth, so no interval around it is valid on every
data set; neither is one around an answer held from an earlier stage. What stays valid is the interval of the unbiased
estimate, intersected with what the truth is known to satisfy: that loses no coverage. `coverage` simulates how often
each holds. `limits` says between what desired cells lie if no detailed cell is negative, given what is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.nonnegative.cells import Cells
from blue_solvers.nonnegative.fit import NonnegativeFit
from blue_solvers.operator import blue
from blue_solvers.quantiles import normal_multiple, read_level, takes_confidence_level
from blue_solvers.verification.weighed_noise import rounding_of
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import whole_number
from noise_mechanisms import draw_noise
from noise_mechanisms.laws import PublishedCount

ROUNDING = 1e-9  # of the largest standard deviation: intervals of exact values have no width


def refine_intervals(problem: Problem, y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[Float, Float]:
    """Intersect intervals with what every truth satisfies: no cell negative, nor above exact sums that hold it.

    Cells are the detailed ones. Sums of them with negative weights may be negative, as far as exact sums leave them.

    Coverage is that of the intervals given: the truth is never cut off. An interval that lies outside altogether
    becomes the nearest admissible point.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,)
        Measurements, for the values known exactly.
    lower, upper : array_like, (m,)
        Intervals around the unbiased estimates over the desired layout.

    Returns
    -------
    lower, upper : ndarray, (m,)

    Raises
    ------
    ValueError
        If a shape does not fit, a value is not finite, values known exactly contradict one another, an exact sum is
        negative, or a lower bound is above its upper one.
    """
    values, size = _read_vector(problem, y, "y"), problem.desired.size
    problem.check_vector(values)
    values = problem.noise.centred(values)
    bounds = [problem.desired.flat(lower, "lower"), problem.desired.flat(upper, "upper")]
    if any(bound.shape != (size,) for bound in bounds):
        raise ValueError(
            f"lower and upper must have shape ({size},), the desired layout's: got {bounds[0].shape} and "
            f"{bounds[1].shape}"
        )
    if any(np.isnan(bound).any() for bound in bounds):
        raise ValueError("lower or upper holds NaN: give numbers, or infinite bounds where there are none")
    why = "lower is above upper in {}: an empty interval has nothing to refine, give both in order"
    problem.desired.refuse(bounds[0] > bounds[1], why)
    low, high = limits(problem, values)
    return np.clip(bounds[0], low, high), np.clip(bounds[1], low, high)


def _read_vector(problem: Problem, y: ArrayLike, what: str) -> Float:
    """One vector, (n,), over the observed layout; its unmeasured cells may hold anything."""
    values = problem.observed.one_vector(y, what)
    lost = ~problem.unmeasured & ~np.isfinite(values)
    problem.observed.refuse(lost, f"{what}: {{}} is {{}}: give a finite number", values)
    return values


@dataclass(frozen=True)
class Coverage:
    """How often intervals hold the truth, and how fits err, over the desired layout; NaN where not estimable.

    Attributes
    ----------
    refined : ndarray, (m,)
        Share of draws in which the refined interval of the unbiased estimate holds the truth.
    fitted : ndarray, (m,)
        Share in which an interval of the same width around the fitted value does, refined likewise.
    bias, error : ndarray, (m,)
        Mean and mean square of fitted minus true, in counts and squared counts.
    draws : int
    """

    refined: Float
    fitted: Float
    bias: Float
    error: Float
    draws: int


@takes_confidence_level
def coverage(
    problem: Problem,
    truth: ArrayLike,
    method: Callable[[Problem, Float], NonnegativeFit],
    draws: int,
    rng: np.random.Generator,
    confidence_level: float = 0.95,
) -> Coverage:
    """Simulate what intervals around a method's fitted values would cover on a given truth.

    Parameters
    ----------
    problem : Problem
    truth : array_like, (n,)
        True values over the observed layout.
    method : callable
        ``nnls``, ``max_fit``, ``sequential_fit``, ``reweighted_fit``, or any function of a problem and (n, K)
        measurements.
    draws : int
        Draws of the noise.
    rng : numpy.random.Generator
    confidence_level : float
        Of the unbiased intervals, which are normal: estimate plus or minus ``z`` standard errors.

    Returns
    -------
    Coverage

    Raises
    ------
    ValueError
        If `truth` has another shape, does not add up or, where figures are published of it, is not whole;
        `confidence_level` is not between 0 and 1, or `draws` is not positive.
    """
    confidence_level, draws = read_level(confidence_level), whole_number(draws, "draws", 1)
    true = _read_vector(problem, truth, "truth")
    if not np.isfinite(true).all():
        raise ValueError("truth holds NaN or infinite counts: give the true values of cells that were not measured too")
    problem.check_truth(true)
    y, P = _measured(problem, true, draws, rng), blue(problem)
    unbiased = P @ y + P.offset[:, None]
    width = normal_multiple(confidence_level) * np.sqrt(np.maximum(P.variances(), 0))[:, None]
    fitted = method(problem, y).desired
    wanted = problem.tabulate(true[:, None])
    held = [_holds(problem, true, wanted, center - width, center + width) for center in (unbiased, fitted)]
    deviation = fitted - wanted
    return Coverage(held[0], held[1], deviation.mean(axis=1), (deviation**2).mean(axis=1), draws)


def _measured(problem: Problem, truth: Float, draws: int, rng: np.random.Generator) -> Float:
    """Measurements of a truth, (n,), as often as there are draws, (n, draws): figures that its law publishes."""
    law = problem.noise.law
    if not isinstance(law, PublishedCount):
        return truth[:, None] + draw_noise(problem, draws, rng)
    y, noisy = np.repeat(truth[:, None], draws, axis=1), ~(problem.exact | problem.unmeasured)
    y[noisy] = law.publish(y[noisy], rng)
    return y


def _holds(problem: Problem, truth: Float, wanted: Float, lower: Float, upper: Float) -> Float:
    """Share of columns in which the refined intervals hold what is wanted, (m,)."""
    low, high = (limit[:, None] for limit in limits(problem, truth))
    noise = problem.variances[np.isfinite(problem.variances)]
    rounding = ROUNDING * np.sqrt(noise.max(initial=0.0)) + rounding_of(truth)
    inside = (np.clip(lower, low, high) <= wanted + rounding) & (wanted <= np.clip(upper, low, high) + rounding)
    return np.where(problem.lost, np.nan, inside.mean(axis=1))


def limits(problem: Problem, y: Float) -> tuple[Float, Float]:
    """For every desired cell what exact sums of non-negative cells leave it: infinite where none holds it.

    A sum that is known exactly bounds each of its parts, and so any weighted sum of them. A desired cell is at most
    what its positive weights, and at least what its negative ones, can bring. Exact sums are observed cells of variance
    0, equalities whose coefficients have one sign, and structural zeros.

    Parameters
    ----------
    problem : Problem
    y : ndarray, (n,)
        Measurements, for the values known exactly.

    Returns
    -------
    low, high : ndarray, (m,)

    Raises
    ------
    ValueError
        If an exact sum of non-negative cells is negative.
    MemoryError
        If the matrices from the detailed cells would not fit.
    """
    cells = Cells(problem)
    desired = cells.to_desired()
    sums, values = _exact_sums(problem, y, cells)
    return 0.0 - ceilings((-desired).maximum(0), sums, values), ceilings(desired.maximum(0), sums, values)


def ceilings(weighted: sparse.csr_array, sums: sparse.csr_array, values: Float) -> Float:
    """For every row of weights above 0, (rows,), the largest that an exact sum that holds all its cells leaves it."""
    weighted.eliminate_zeros()
    least = np.where(np.diff(weighted.indptr) > 0, np.inf, 0.0)
    low, high = _extremes(sums)
    even = low == high
    _bound_by_sums(least, weighted, sums[even], values[even])
    for row in np.flatnonzero(~even):
        _bound_by_weights(least, weighted, sums[[row]].toarray().ravel(), float(values[row]))
    return least


def _exact_sums(problem: Problem, y: Float, cells: Cells) -> tuple[sparse.csr_array, Float]:
    """Rows over the possible cells with positive entries, (k, d), none empty, and what they sum to, (k,)."""
    M = cells.to_observed()
    equations, right = cells.equations()
    matrix = sparse.csr_array(sparse.vstack([M[problem.exact], equations @ M]))
    matrix.eliminate_zeros()
    filled = np.diff(matrix.indptr) > 0
    matrix, values = matrix[filled], np.concatenate([y[problem.exact], right])[filled]
    low, high = _extremes(matrix)
    sign = np.where(low > 0, 1.0, np.where(high < 0, -1.0, 0.0))
    kept = np.flatnonzero(sign)
    matrix, values = sparse.csr_array(sparse.diags_array(sign[kept]) @ matrix[kept]), sign[kept] * values[kept]
    if (values < 0).any():
        raise ValueError(
            f"cells that are known exactly sum to {values.min():g}: no non-negative ones do. Correct what is known "
            "exactly, or do not refine"
        )
    return matrix, values


def _extremes(matrix: sparse.csr_array) -> tuple[Float, Float]:
    """The least and the largest entry of every row, (rows,) each, none of which is empty."""
    starts = matrix.indptr[:-1]
    if not starts.size:
        return np.zeros(0), np.zeros(0)
    return np.minimum.reduceat(matrix.data, starts), np.maximum.reduceat(matrix.data, starts)


def _bound_by_sums(least: Float, weighted: sparse.csr_array, sums: sparse.csr_array, values: Float) -> None:
    """Lower `least`, (rows,), by sums of equal coefficients, of which a row may count all at its largest weight."""
    filled = np.flatnonzero(np.diff(weighted.indptr))
    if not sums.shape[0] or not filled.size:
        return
    coefficients = sums.data[sums.indptr[:-1]]
    largest = np.zeros(least.size)
    largest[filled] = _extremes(weighted[filled])[1]
    shared = sparse.coo_array(weighted.sign() @ sums.sign().T)
    cells, rows = shared.coords
    within = shared.data == np.diff(weighted.indptr)[cells]
    np.minimum.at(least, cells[within], largest[cells[within]] * (values / coefficients)[rows[within]])


def _bound_by_weights(least: Float, weighted: sparse.csr_array, coefficients: Float, value: float) -> None:
    """Lower `least`, (rows,), by one sum: at most its value times the largest ratio of a weight to a coefficient."""
    filled = np.flatnonzero(np.diff(weighted.indptr))
    if not filled.size:
        return
    own = coefficients[weighted.indices]
    ratio = np.divide(weighted.data, own, out=np.full(own.size, np.inf), where=own > 0)
    largest = np.maximum.reduceat(ratio, weighted.indptr[filled])
    within = np.isfinite(largest)
    least[filled[within]] = np.minimum(least[filled[within]], value * largest[within])

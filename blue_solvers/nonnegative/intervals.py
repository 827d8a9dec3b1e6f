"""Intervals beside non-negative fits: the unbiased ones refined, and what the fits' own would cover.

A fitted answer is biased by an amount that depends on the unknown truth, so no interval around it is valid on every
data set; neither is one around an answer held from an earlier stage. What stays valid is the interval of the unbiased
estimate, intersected with what the truth is known to satisfy: that loses no coverage. `coverage` simulates how often
each holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from blue_solvers.nonnegative.fit import Fit
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.partitions import first_cells, refines
from blue_solvers.nonnegative.programme import Float
from blue_solvers.operator import blue
from constraint_builders import Problem
from constraint_builders.marginals import cell_map
from constraint_builders.table import make_table
from noise_mechanisms import draw_noise

ROUNDING = 1e-9  # counts: intervals of exact values have no width


def refine_intervals(problem: Problem, y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[Float, Float]:
    """Intersect intervals with what every truth satisfies: cells not negative, nor above exact sums that hold them.

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
        If a shape does not fit.
    """
    values = np.asarray(y, dtype=np.float64)
    bounds = [np.asarray(bound, dtype=np.float64) for bound in (lower, upper)]
    size = problem.desired.size
    if values.shape != (problem.observed.size,) or any(bound.shape != (size,) for bound in bounds):
        raise ValueError(
            f"y must have shape ({problem.observed.size},), lower and upper ({size},): got {values.shape}, "
            f"{bounds[0].shape} and {bounds[1].shape}"
        )
    ceiling = _ceilings(problem, values)
    return np.clip(bounds[0], 0.0, ceiling), np.clip(bounds[1], 0.0, ceiling)


def _ceilings(problem: Problem, y: Float) -> Float:
    """For every desired cell the least exact sum that holds it, (m,); infinite where there is none."""
    if problem.schema is None:
        return np.full(problem.desired.size, np.inf)
    model = FittingModel.of(problem)
    detailed = make_table(problem.schema, problem.schema.names)
    ceilings = []
    for table in problem.desired_tables:
        cells = cell_map(problem.schema, detailed, table)
        ceiling = np.full(table.size, np.inf)
        for name in model.exact_tables:
            sums = model.labels(name)
            if refines(cells, sums):
                ceiling = np.minimum(ceiling, y[model.place_of(name)][sums[first_cells(cells)]])
        ceilings.append(ceiling)
    return np.concatenate(ceilings)


@dataclass(frozen=True)
class Coverage:
    """How often intervals hold the truth, and how fits err, over the desired layout.

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


def coverage(
    problem: Problem,
    truth: ArrayLike,
    method: Callable[[Problem, Float], Fit],
    draws: int,
    rng: np.random.Generator,
    level: float = 0.95,
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
    level : float
        Of the unbiased intervals, which are normal: estimate plus or minus ``z`` standard errors.

    Returns
    -------
    Coverage

    Raises
    ------
    ValueError
        If `truth` has another shape, or `level` is not between 0 and 1, or `draws` is not positive.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1: got {level!r}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1: got {draws!r}")
    true = np.asarray(truth, dtype=np.float64)
    if true.shape != (problem.observed.size,):
        raise ValueError(f"truth must have shape ({problem.observed.size},): got {true.shape}")
    y = true[:, None] + draw_noise(problem, draws, rng)
    P = blue(problem)
    width = ndtri(0.5 + level / 2) * np.sqrt(P.variances())[:, None]
    fitted = method(problem, y).desired
    wanted = problem.tabulate(true[:, None])
    held = [
        _holds(problem, true, wanted, center - width, center + width) for center in (P @ y + P.offset[:, None], fitted)
    ]
    deviation = fitted - wanted
    return Coverage(held[0], held[1], deviation.mean(axis=1), (deviation**2).mean(axis=1), draws)


def _holds(problem: Problem, truth: Float, wanted: Float, lower: Float, upper: Float) -> Float:
    """Share of columns in which the refined intervals hold what is wanted, (m,)."""
    ceiling = _ceilings(problem, truth)[:, None]
    inside = (np.clip(lower, 0, ceiling) <= wanted + ROUNDING) & (wanted <= np.clip(upper, 0, ceiling) + ROUNDING)
    return inside.mean(axis=1)

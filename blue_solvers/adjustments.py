"""What an estimate moved: what was measured of every desired cell, by how much it moved, and how unlikely that is.

The best linear unbiased estimate x of y has Cov(y - x) = Sigma - Cov(x), so that an adjustment is judged by two
variances that are at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blue_solvers.verification.goodness_of_fit import LEAST_CHECKED
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Name


@dataclass(frozen=True)
class Adjustments:
    """Measurements of the desired cells beside their estimates; no array is writable in an `Estimate`'s.

    Attributes
    ----------
    value, variance : ndarray, (m,)
        What was measured, NaN where nothing was, and the variance of its noise, infinite there.
    adjustment : ndarray, (m,)
        Estimate less value; NaN where nothing was measured or estimated.
    adjustment_z : ndarray, (m,)
        The adjustment in its own standard errors, standard normal where the noise is as declared and normal; NaN where
        no other measurement checks the cell, and where the estimate is not the best one.
    """

    value: Float
    variance: Float
    adjustment: Float
    adjustment_z: Float


def adjustments(problem: Problem, y: Float, noise: Float, values: Float, variances: Float, best: bool) -> Adjustments:
    """Compare estimates with what was measured.

    Parameters
    ----------
    problem : Problem
    y, noise : ndarray, (n,)
        What was measured over the observed layout, and the variances of its noise, infinite where nothing was.
    values, variances : ndarray, (m,)
        Estimates over the desired layout, and their variances.
    best : bool
        Whether they are the best linear unbiased estimates.

    Returns
    -------
    Adjustments
    """
    place = measured_places(problem)
    measured = (place >= 0) & np.isfinite(noise[place])
    value, variance = np.full(place.size, np.nan), np.full(place.size, np.inf)
    value[measured], variance[measured] = y[place[measured]], noise[place[measured]]
    adjustment = values - value
    z = np.full(place.size, np.nan)
    if best:
        left = np.where(measured, variance - variances, 0.0)
        checked = left > LEAST_CHECKED * np.where(measured, variance, 0.0)
        z[checked] = adjustment[checked] / np.sqrt(left[checked])
    return Adjustments(value, variance, adjustment, z)


def measured_places(problem: Problem) -> Index:
    """For every desired cell its position in the observed layout, -1 where it was not measured, (m,)."""
    place = np.full(problem.desired.size, -1, dtype=np.intp)
    observed = np.arange(problem.observed.size)
    for name, own in shared_tables(problem):
        place[own] = observed[problem.observed.slice(name)]
    place[problem.unmeasured[place]] = -1  # those at -1 stay there
    return place


def shared_tables(problem: Problem) -> list[tuple[Name, Index]]:
    """The observed tables that are desired too, and where their cells sit in the desired layout, in their own order."""
    cells = np.arange(problem.desired.size)
    shared = []
    for name in problem.observed.names:
        try:
            shared.append((name, problem.desired.turned(cells, name)))
        except ValueError:  # it is not wanted
            continue
    return shared

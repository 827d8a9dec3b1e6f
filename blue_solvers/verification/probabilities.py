"""How probable statistics and residuals are that are as far from what is expected, by laws or by replicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy  # which takes its parts when they are named: `special` costs more than all of this package
from numpy.typing import ArrayLike

from blue_solvers.verification.weighed_noise import WeighedNoise, reciprocal
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Name

LEAST_CHECKED = 1e-9  # of a cell's variance: where others leave less to check, rounding decides
DOUBTFUL = 1e-4  # the probability of a chi-square, or of a residual, below which measurements do not fit their noise
LEAST_EXCESS = 1e-12  # kurtosis of a law that is as good as normal
MOST_SQUARED = 1e150  # of residuals: the square of a larger one is infinite
LARGEST_RESIDUAL, HALVINGS = 1e9, 90  # between which and 0 a quantile is looked for, until nothing changes


class Outlier(NamedTuple):
    """A measured cell, what the others say of it, and how likely that is.

    Attributes
    ----------
    table : str or tuple
    cell : tuple of int
        With a spine its first number is the geounit's within its geolevel.
    value, expected : float
        What was published, and what all other measurements predict; NaN where that is not known.
    residual : float
        Studentised.
    probability : float
        Of a residual as large among all cells that are checked, if all noise is as declared.
    source : str
        Who measured it, where several sources did.
    labels : str
        Of the cell, such as ``(age=3, sex=male)`` or ``(node=north)``; its indices where it has none.
    """

    table: Name
    cell: tuple[int, ...]
    value: float
    expected: float
    residual: float
    probability: float
    source: str = ""
    labels: str = ""


class FitOfCells(NamedTuple):
    """Weighted squares of some cells' residuals, what they are expected to be, and how many standard deviations off."""

    statistic: float
    expectation: float
    z: float


def of_chi_square(
    statistic: float, degrees: ArrayLike, excess: ArrayLike = 0.0, missing: float = 0.0, by_proxy: float = 0.0
) -> float:
    """The probability, two-sided, of a statistic as far from what is expected, by the residuals' excess kurtosis.

    Of lots of cells, (lots,), with so many degrees each; less than one are one that is weighed by less. The variance of
    the statistic is 2 + excess times the degrees at most, and a gamma law's has that; above, one residual may be as
    large by itself, and below, most may be 0. `missing` squares may be so because figures are whole.
    """
    total = float(np.sum(degrees))
    scale = min(total, 1.0)
    mean = float(np.sum(np.multiply(degrees, excess))) / total
    statistic, total, missing = statistic / scale, total / scale, missing / scale
    even = 2 / (2 + mean)
    above = scipy.special.chdtrc(even * total, even * statistic)
    if mean:
        others = total - 1
        by_one = np.sqrt(max(statistic - others - np.sqrt(mean * others), 0.0))
        above = max(above, 2 * np.sum(degrees * np.exp(log_tail(by_one, excess, by_proxy))) / scale)
    below = scipy.special.chdtr(even * total, even * (statistic + mean + missing))
    return float(min(1.0, 2 * above, 2 * below))


def of_largest(residual: float, checked: int, excess: float = 0.0, by_proxy: float = 0.0) -> float:
    """The probability of a residual as large among so many, by its excess kurtosis; Sidak's, never too small."""
    own = float(np.exp(log_tail(residual, excess, by_proxy)))
    with np.errstate(divide="ignore"):  # of a residual of 0, which every other is as large as
        return float(-np.expm1(checked * np.log1p(-2 * min(own, 0.5))))


def log_tail(residual: ArrayLike, excess: ArrayLike, by_proxy: float = 0.0) -> Float:
    """Logarithms of the probabilities that combinations of noise are beyond residuals, (...), by their excess kurtosis.

    Saddlepoint approximation of the variance-gamma law of that kurtosis: those of Laplace noise and its sums, the
    normal one where it is 0, and of heavier tails than discrete Laplace noise of any variance. Of sub-Gaussian noise no
    more than Chernoff's bound, whose proxy any combination of variance 1 has.
    """
    size, shape = np.minimum(abs(np.asarray(residual)), MOST_SQUARED), 3 / np.fmax(excess, LEAST_EXCESS)
    squares = 2 * size**2 / shape
    root = np.sqrt(1 + squares)
    less = squares / (root + 1)  # root - 1
    found = shape * (np.log1p(less / 2) - less) + np.log(scipy.special.erfcx(np.sqrt(shape * root * less / 2)) / 2)
    return np.fmax(scipy.special.log_ndtr(-size), np.fmin(found, -by_proxy * size**2 / 2))


def residual_beyond(probability: float, excess: Float, by_proxy: float = 0.0) -> Float:
    """Residuals beyond which combinations of noise are with some probability, by their excess kurtosis, (...)."""
    if probability > 1 / 2:
        return -residual_beyond(1 - probability, excess, by_proxy)
    low, high = np.full_like(excess, -scipy.special.ndtri(probability)), np.full_like(excess, LARGEST_RESIDUAL)
    if not excess.any():
        return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_less = log_tail(middle, excess, by_proxy) > np.log(probability)
        low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
    return high


def z_of(statistic: Float, expectation: Float, deviation: Float) -> Float:
    """How many standard deviations statistics are off, (lots,); 0 where these are 0."""
    return np.divide(statistic - expectation, deviation, out=np.zeros_like(statistic), where=deviation > 0)


def by_name(names: Sequence[Any], statistic: Float, expectation: Float, deviation: Float) -> dict[Any, FitOfCells]:
    """Of lots, (lots,), by their names."""
    found = zip(names, statistic, expectation, z_of(statistic, expectation, deviation), strict=True)
    return {name: FitOfCells(*map(float, values)) for name, *values in found}


def squares_and_redundancy(y: Float, x: Float, precision: Float, spread: Float) -> tuple[Float, Float]:
    """Of cells, (N,) or (G, cells), weighted squares and what these are expected to be, 0 where none was measured."""
    measured = precision > 0
    redundancy = np.where(measured, np.clip(1.0 - spread * precision, 0.0, 1.0), 0.0)
    return np.where(measured, np.square(y - x) * precision, 0.0), redundancy


@dataclass(frozen=True)
class ResidualReplicates:
    """Residuals of data that were drawn with the declared noise.

    Attributes
    ----------
    totals : ndarray, (draws,)
        Weighted squares of all residuals.
    tables : ndarray, (draws, tables)
        Those of every table.
    largest : ndarray, (draws,)
        Largest studentised residual.
    """

    totals: Float
    tables: Float
    largest: Float


def replicated(
    noise: WeighedNoise,
    table: Index,
    weight: Float,
    replicate: Callable[[np.random.Generator], Float],
    draws: int,
    rng: np.random.Generator,
) -> ResidualReplicates:
    """Draw; `table` is the number of every measurement's table, (N,)."""
    precision, count = reciprocal(noise.sd**2), int(table.max(initial=-1)) + 1
    totals, tables, largest = [], [], []
    for _ in range(draws):
        e = np.where(noise.noisy, replicate(rng), 0.0)
        totals.append(float(e @ noise.weighted(e)[0]))
        tables.append(np.bincount(table, e**2 * precision, count))
        largest.append(float(np.nanmax(abs(e * weight), initial=0.0)))
    return ResidualReplicates(np.array(totals), np.array(tables), np.array(largest))


def share_beyond(values: Float, bound: float) -> float:
    """The share of replicates, (draws,), with the real data among them, that are not below a bound."""
    return float((1 + (values >= bound).sum()) / (1 + values.size))

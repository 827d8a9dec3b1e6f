"""The mechanisms of Theorem 4: private, non-negative, and accurate either on every point or on their sum.

For simulation, not for release: continuous noise from floating-point generators.

References
----------
"An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, Theorem 4; Geng, Ding, Guo and
Kumar, "Tight analysis of privacy and utility tradeoff in approximate differential privacy", AISTATS 2020, for the
truncated Laplace law.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.nonnegative.price.bounds import ApproximateDP, Privacy, ZeroConcentratedDP, truncation
from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array, real_number


def accurate_points(counts: ArrayLike, privacy: Privacy, rng: np.random.Generator) -> Float:
    """Noise on every point, negative results set to 0; the sum is whatever comes out.

    Parameters
    ----------
    counts : array_like, (d,)
        Disjoint counts, non-negative.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, (d,)
        Non-negative weights. Errors are bounded by `bounds.upper_bounds_accurate_points`.

    Raises
    ------
    ValueError
        If `counts` is not a vector of finite non-negative numbers.
    """
    values = _checked_counts(counts)
    if isinstance(privacy, ZeroConcentratedDP):
        noise = rng.normal(scale=np.sqrt(1 / (2 * privacy.rho)), size=values.size)
    else:
        noise = rng.laplace(scale=1 / privacy.epsilon, size=values.size)
    return np.maximum(values + noise, 0.0)


def accurate_sum(counts: ArrayLike, privacy: Privacy, rng: np.random.Generator) -> Float:
    """Noise on every point and on the sum; the nearest non-negative points with the noisy sum (0 at least).

    Under approximate privacy the points' noise is Laplace noise cut off at `bounds.truncation`, so that no point is
    ever far off, however many there are.

    Parameters
    ----------
    counts : array_like, (d,)
        Disjoint counts, non-negative.
    privacy : PureDP, ApproximateDP or ZeroConcentratedDP
    rng : numpy.random.Generator

    Returns
    -------
    ndarray, (d,)
        Non-negative weights. Errors are bounded by `bounds.upper_bounds_accurate_sum`.

    Raises
    ------
    ValueError
        If `counts` is not a vector of finite non-negative numbers.
    """
    values = _checked_counts(counts)
    if isinstance(privacy, ZeroConcentratedDP):
        noise = rng.normal(scale=np.sqrt(1 / privacy.rho), size=values.size + 1)
    elif isinstance(privacy, ApproximateDP):
        scale = 2 / privacy.epsilon
        noise = np.append(truncated_laplace(scale, truncation(privacy), values.size, rng), rng.laplace(scale=scale))
    else:
        noise = rng.laplace(scale=2 / privacy.epsilon, size=values.size + 1)
    return project_to_simplex(values + noise[:-1], max(0.0, float(values.sum() + noise[-1])))


def truncated_laplace(scale: float, limit: float, size: int, rng: np.random.Generator) -> Float:
    """Draws from the density proportional to ``exp(-abs(x) / scale)`` on ``[-limit, limit]``, (size,)."""
    magnitude = -scale * np.log1p(rng.random(size) * np.expm1(-limit / scale))
    return np.where(rng.random(size) < 0.5, -magnitude, magnitude)


def project_to_simplex(values: ArrayLike, total: float) -> Float:
    """The nearest non-negative vector with a given sum, by sorting.

    Parameters
    ----------
    values : array_like, (d,)
    total : float
        0 or more.

    Returns
    -------
    ndarray, (d,)

    Raises
    ------
    ValueError
        If `total` is negative.
    """
    if not 0 <= real_number(total, "total") < np.inf:
        raise ValueError(f"non-negative numbers cannot sum to {total!r}")
    vector = real_array(values, "values")
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise ValueError("values must be a vector of finite numbers")
    if total == 0:
        return np.zeros_like(vector)
    descending = np.sort(vector)[::-1]
    shifts = (np.cumsum(descending) - total) / np.arange(1, vector.size + 1)
    shift = shifts[np.flatnonzero(descending > shifts)[-1]]
    return np.maximum(vector - shift, 0.0)


def _checked_counts(counts: ArrayLike) -> Float:
    """Counts as a vector, (d,); `ValueError` for what is none."""
    values = real_array(counts, "counts")
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all() or values.min() < 0:
        raise ValueError("counts must be a vector of finite numbers, 0 or more")
    return values

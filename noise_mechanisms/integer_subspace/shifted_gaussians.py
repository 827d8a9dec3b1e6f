"""Discrete Gaussians of one dimension around any center, many at once in float64: draws, and normalisers."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from constraint_builders.arrays import Float

_NARROW = 0.5  # below, draw from a window of whole numbers; above, round normal values
_WINDOW = np.arange(-8, 9)


def shifted_gaussian(center: Float, width: Float, rng: np.random.Generator) -> Float:
    """Whole numbers k with probabilities proportional to exp(-(k - center)^2 / (2 width^2)), elementwise.

    Parameters
    ----------
    center, width : ndarray, (n,)
        Widths are positive.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of float64, (n,)

    Notes
    -----
    A normal value x = k + u rounds to k. The density of k and |u| is that of the law wanted and an independent |u|,
    times cosh((k - center) u / width^2): accepting with its inverse leaves exactly the law.
    """
    drawn = np.empty(center.size)
    narrow = width < _NARROW
    if narrow.any():
        drawn[narrow] = _from_window(center[narrow], width[narrow], rng)
    pending = np.flatnonzero(~narrow)
    while pending.size:
        c, s = center[pending], width[pending]
        x = c + s * rng.standard_normal(pending.size)
        k = np.rint(x)
        drawn[pending] = k
        pending = pending[rng.random(pending.size) * np.cosh((k - c) * (x - k) / s**2) > 1]
    return drawn


def _from_window(center: Float, width: Float, rng: np.random.Generator) -> Float:
    """By inversion among the 17 nearest whole numbers; the others have less than 2^-180 together."""
    candidates = np.rint(center)[:, None] + _WINDOW
    least = np.square(np.rint(center) - center)[:, None]
    weight = np.exp((least - np.square(candidates - center[:, None])) / (2 * np.square(width)[:, None]))
    cumulative = np.cumsum(weight, axis=1)
    chosen = (cumulative < rng.random(center.size)[:, None] * cumulative[:, -1:]).sum(axis=1)
    return candidates[np.arange(center.size), chosen]


def log_theta(center: Float, width: Float) -> Float:
    """Logarithm of the sum over all whole k of exp(-(k - center)^2 / (2 width^2)), elementwise."""
    rest = center - np.rint(center)
    wide = width >= 1
    if wide.all():
        return _log_theta_wide(rest, width)
    value = np.empty(rest.size)
    value[wide] = _log_theta_wide(rest[wide], width[wide])
    value[~wide] = _log_theta_narrow(rest[~wide], width[~wide])
    return value


def _log_theta_wide(rest: Float, width: Float) -> Float:
    """By Poisson summation; from width 1 on the second term is below 1e-34."""
    ripple = 2 * np.exp(-2 * np.square(np.pi * width)) * np.cos(2 * np.pi * rest)
    return np.asarray(np.log(math.sqrt(2 * math.pi) * width) + np.log1p(ripple))


def _log_theta_narrow(rest: Float, width: Float) -> Float:
    return np.asarray(logsumexp(-np.square(_WINDOW - rest[:, None]) / (2 * np.square(width[:, None])), axis=1))

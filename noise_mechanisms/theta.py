"""Sums over whole numbers of Gaussian weights: the normaliser of the discrete Gaussian, its variance, its draws.

With x = exp(-1 / (2 sigma2)) the discrete Gaussian has the normaliser theta = 1 + 2 x m0 and
the variance 2 x m2 / theta, where m_p = sum over k >= 1 of k^p x^(k^2 - 1). From sigma2 = 1 on, Poisson
summation gives the same with q = exp(-2 pi^2 sigma2) < 3e-9, of which one power is enough:

    theta = sqrt(2 pi sigma2) (1 + 2 q),    variance = sigma2 - 8 pi^2 sigma2^2 q / (1 + 2 q).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from constraint_builders.arrays import Float

_LAST = 8  # term of the sums: the next is below 2e-16 of them up to sigma2 = 1


def _direct_sums(x: Float) -> tuple[Float, Float, Float]:
    """The sums m0, m2 and m4 above, in the shape of x, for sigma2 up to 1."""
    power, ratio = np.ones_like(x), x
    m0, m2, m4 = np.ones_like(x), np.ones_like(x), np.ones_like(x)
    for k in range(2, _LAST + 1):
        ratio = ratio * x**2
        power = power * ratio
        m0 += power
        m2 += k**2 * power
        m4 += k**4 * power
    return m0, m2, m4


def _dual_variance(sigma2: Float) -> Float:
    """The variance by Poisson summation, in the shape of sigma2."""
    return sigma2 - _dual_deficit(sigma2)


def _dual_deficit(sigma2: Float) -> Float:
    """How much the variance falls short of sigma2, in its shape, for sigma2 of at least 0.9."""
    q = np.exp(-2 * np.pi**2 * sigma2)
    return np.asarray(8 * np.pi**2 * sigma2**2 * q / (1 + 2 * q))


def _direct_variance(sigma2: Float) -> Float:
    """The variance by direct sums, in the shape of sigma2."""
    x, root = _first_power(sigma2), _first_power(2 * sigma2)
    m0, m2, _ = _direct_sums(x)
    return root * (2 * root * m2 / (1 + 2 * x * m0))  # rounded once where it is subnormal


def _direct_excess(sigma2: Float) -> Float:
    """Theta - 1 by direct sums, in the shape of sigma2."""
    x = _first_power(sigma2)
    return 2 * x * _direct_sums(x)[0]


def _dual_excess(sigma2: Float) -> Float:
    """Theta - 1 by Poisson summation, in the shape of sigma2."""
    return np.asarray(np.sqrt(2 * np.pi * sigma2) * (1 + 2 * np.exp(-2 * np.pi**2 * sigma2)) - 1)


def _first_power(sigma2: Float) -> Float:
    """The x above, exp(-1 / (2 sigma2)), in the shape of sigma2."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.exp(-0.5 / sigma2)


def theta_variance(sigma2: Float) -> Float:
    """Variance of the discrete Gaussian, elementwise, in the shape of sigma2."""
    return np.piecewise(sigma2, [sigma2 < 1], [_direct_variance, _dual_variance])


def theta_excess(sigma2: Float) -> Float:
    """Theta - 1, in the shape of sigma2: the weight of all that is not zero, zero itself weighing 1."""
    return np.piecewise(sigma2, [sigma2 < 1], [_direct_excess, _dual_excess])


def theta_parameter(variance: Float) -> Float:
    """The sigma2 of discrete Gaussians with the given variances, in their shape: inverts `theta_variance`."""
    small = (variance > 0) & (variance < 0.99)
    middle = (variance >= 0.99) & (variance < 4)
    return np.piecewise(variance, [small, middle], [_solve_direct, _solve_dual, lambda large: large])


def _solve_dual(variance: Float) -> Float:
    """Fixed point of sigma2 = variance + deficit(sigma2), (n,): every step gains five digits."""
    sigma2 = variance
    for _ in range(2):
        sigma2 = variance + _dual_deficit(sigma2)
    return sigma2


def _solve_direct(variance: Float) -> Float:
    """Newton's method on log(variance), (n,), as a function of t = 1 / sigma2, which is convex and nearly linear."""
    log_variance = np.log(variance)
    t = 2 * (math.log(2) - log_variance)  # exact in the limit of variance 0
    for _ in range(5):
        x = np.exp(-t / 2)
        m0, m2, m4 = _direct_sums(x)
        theta = 1 + 2 * x * m0
        slope = (2 * x * m2 / theta - m4 / m2) / 2
        t -= (math.log(2) - t / 2 + np.log(m2 / theta) - log_variance) / slope
    return 1 / t


def magnitudes(sigma2: Float, rng: np.random.Generator) -> Float:
    """Draw |k| of discrete Gaussians conditioned on k != 0, one for each parameter, (n,)."""
    small = sigma2 < 1
    if not small.any():
        return _reject(sigma2, _propose_half_normal, rng)
    magnitude = np.empty_like(sigma2)
    magnitude[small] = _reject(sigma2[small], _propose_geometric, rng)
    magnitude[~small] = _reject(sigma2[~small], _propose_half_normal, rng)
    return magnitude


Proposal: TypeAlias = Callable[[Float, np.random.Generator], tuple[Float, Float]]


def _reject(sigma2: Float, propose: Proposal, rng: np.random.Generator) -> Float:
    """Rejection sampling, (n,): a proposal k comes with its cost c and is accepted with probability exp(-c)."""
    magnitude, cost = propose(sigma2, rng)
    (pending,) = np.nonzero(rng.standard_exponential(sigma2.size) < cost)
    while pending.size:
        magnitude[pending], cost = propose(sigma2[pending], rng)
        pending = pending[rng.standard_exponential(pending.size) < cost]
    return magnitude


def _propose_half_normal(sigma2: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """Propose the ceiling k of |x|, (n,), x normal; exp(-k^2 / 2 sigma2) = exp(-x^2 / 2 sigma2) exp(-cost)."""
    x = np.abs(rng.standard_normal(sigma2.size)) * np.sqrt(sigma2)
    k = np.ceil(x)
    return k, (k - x) * (k + x) / (2 * sigma2)


def _propose_geometric(sigma2: Float, rng: np.random.Generator) -> tuple[Float, Float]:
    """Propose k, (n,), k - 1 geometric with ratio exp(-3 / 2 sigma2); k^2 = 1 + 3 (k - 1) + (k - 1)(k - 2)."""
    k = 1 + np.floor(rng.standard_exponential(sigma2.size) * (sigma2 / 1.5))
    return k, (k - 1) * (k - 2) / (2 * sigma2)

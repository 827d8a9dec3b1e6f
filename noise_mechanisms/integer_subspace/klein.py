"""Exact noise on any lattice by Klein's sampler: Gaussian noise, and by the L2 norm a mixture of Gaussians."""

from __future__ import annotations

import math
import secrets
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import isqrt
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import (
    WORD,
    LaplaceStream,
    ShiftedGaussian,
    decimal,
    is_below,
    place_among,
    theta_at_zero,
)
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import RejectionSampler
from noise_mechanisms.theta import theta_excess

_NARROW = 0.5  # below, draw from a window of whole numbers; above, round normal values
_WINDOW = np.arange(-8, 9)
_STEPS = 4  # rungs to a unit of epsilon sigma; sqrt(pi / 2) times it exceeds it by 1.01


class KleinSampler(RejectionSampler):
    """Draws coordinates in the basis, the last first, as one-dimensional discrete Gaussians.

    Given the later coordinates, the center c_i of coordinate i is minus the sum of mu_ij k_j over j > i and its
    standard deviation s_i = sigma / |b*_i|. The proposal so drawn has probability exp(-|z|^2 / 2 sigma^2) / product of
    theta_i(c_i), theta_i(c) being the sum over k of exp(-(k - c)^2 / 2 s_i^2). Coordinates that do not depend on one
    another are drawn together, see `GramSchmidt.fronts`.
    """

    pilot = 256

    def __init__(self, lattice: Lattice) -> None:
        self._lattice, self._records = lattice, lattice.records
        self._form = gram_schmidt(lattice)
        self._laws: dict[Fraction, list[ShiftedGaussian]] = {}
        self._streams: dict[int, LaplaceStream] = {}
        self._steps = [
            (front, np.ascontiguousarray(self._form.coefficients[front].T), self._form.norms[front])
            for front in self._form.fronts
        ]

    def _propose(self, sigma: Float, rng: np.random.Generator) -> tuple[Integers, Float]:
        """One proposal for every sigma, (tries, d), and the logarithm of its product of thetas, (tries,)."""
        shape = (sigma.size, self._lattice.dimension)
        coordinates, log_thetas = np.zeros(shape), np.zeros(shape)
        for front, coefficients, norms in self._steps:
            center = -(coordinates @ coefficients)
            width = sigma[:, None] / norms
            coordinates[:, front] = shifted_gaussian(center, width, rng)
            log_thetas[:, front] = log_theta(center, width)
        return np.asarray(coordinates.astype(np.int64) @ self._lattice.basis.T), log_thetas.sum(axis=1)

    def _release_try(self, sigma: Fraction) -> Integers | None:
        """A draw of the Gaussian law of this width, or None as soon as one factor of the acceptance fails."""
        if sigma not in self._laws:
            self._laws[sigma] = [ShiftedGaussian(sigma**2 / norm, self._streams) for norm in self._form.squared_norms]
        laws, coordinates = self._laws[sigma], np.zeros(self._lattice.dimension, dtype=np.int64)
        for i in reversed(range(len(laws))):
            numerator = -int(self._form.numerators[i, i + 1 :] @ coordinates[i + 1 :])
            center = Fraction(numerator, int(self._form.denominators[i]))
            if not laws[i].accepts(center):
                return None
            coordinates[i] = laws[i].take(center)
        return np.asarray(self._lattice.basis @ coordinates)


class GaussianSampler(KleinSampler):
    """Noise with probabilities proportional to exp(-|z|^2 / 2 sigma^2) on a lattice.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    sigma : float
        Positive.

    Notes
    -----
    Klein's proposal is accepted with probability the product of theta_i(c_i) / theta_i(0) (Brakerski, Langlois,
    Peikert, Regev and Stehle, 2013, Lemma 2.3), which leaves exactly the stated law. Margins of a two-way table have
    Gram-Schmidt norms of at most 2, so that from sigma = 1.5 on practically every proposal is accepted.
    """

    name: ClassVar[str] = "klein"

    def __init__(self, lattice: Lattice, sigma: float) -> None:
        super().__init__(lattice)
        self.sigma = positive_number(sigma, "sigma")

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        proposals, log_thetas = self._propose(np.full(tries, self.sigma), rng)
        return proposals, log_thetas - log_theta_at_zero(self.sigma / self._form.norms).sum()

    def _release_attempt(self) -> Integers | None:
        """About 0.1 ms a dimension."""
        return self._release_try(Fraction(self.sigma))


class L2LadderSampler(KleinSampler):
    """Noise with probabilities proportional to exp(-epsilon |z|), |z| being the L2 norm, on any lattice.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of L2 distance.

    Notes
    -----
    Rungs are Gaussians of the widths sigma_k = k / (4 epsilon), k = 1, 2, ..., all rational. Rung k is taken with
    probability proportional to exp(-(epsilon sigma_k)^2 / 2) times the product of theta_i(0), Klein's proposal on it
    accepted with the product of theta_i(c_i) / theta_i(0). That leaves z with probability proportional to

        g(|z|),   g(r) = sum over k of f(sigma_k),   f(sigma) = exp(-(epsilon^2 sigma^2 + r^2 / sigma^2) / 2),

    and z is accepted with probability 4 exp(-epsilon |z|) / g(|z|), which is at most 1: f rises to its only peak
    exp(-epsilon r) and falls, its integral is sqrt(pi / 2) exp(-epsilon r) / epsilon, and the sum over a grid of step
    1 / (4 epsilon) of such a function is at least 4 epsilon times the integral less the peak, 4.01
    exp(-epsilon r). About four in five are accepted. The choice of the rung and the last decision compare random bits
    with enclosures, refined until they decide; all else is rational.
    """

    name: ClassVar[str] = "l2_ladder"

    def __init__(self, lattice: Lattice, epsilon: float) -> None:
        super().__init__(lattice)
        self.epsilon = positive_number(epsilon, "epsilon")
        self._rungs: dict[int, list[Decimal]] = {}

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        log_weights, log_thetas_zero = self._float_rungs
        weights = np.exp(log_weights - logsumexp(log_weights))
        rungs = rng.choice(weights.size, size=tries, p=weights / weights.sum())
        proposals, log_thetas = self._propose((rungs + 1) / (_STEPS * self.epsilon), rng)
        costs = self.epsilon * np.linalg.norm(proposals, axis=1)
        return proposals, log_thetas - log_thetas_zero[rungs] + math.log(_STEPS) - _log_ladder(costs)

    @cached_property
    def _float_rungs(self) -> tuple[Float, Float]:
        """Logarithms of the weights of the rungs, and of their products of theta_i(0)."""
        k = np.arange(1, self._highest(20) + 1)
        widths = (k / (_STEPS * self.epsilon))[:, None] / self._form.norms
        thetas = log_theta_at_zero(widths).sum(axis=1)
        return -np.square(k) / (2 * _STEPS**2) + thetas, thetas

    def _highest(self, digits: int) -> int:
        """A rung above which all others have less than 10^-digits of the weight of the heaviest.

        theta(0; s) <= 1 + sqrt(2 pi) s bounds the weight of rung k by u_k, and u_(k+1) / u_k is at most
        exp(-(2 k + 1) / 32) ((k + 1) / k)^n, which falls with k: once it is below exp(-1/2) the rest is below 3 u_k.
        Rung `_STEPS` weighs at least exp(-1/2) (theta is at least 1).
        """
        n, k = self._lattice.dimension, _STEPS
        least = -digits * math.log(10) - 4
        while True:
            k = k + 1 + k // 16
            log_ratio = -(2 * k + 1) / (2 * _STEPS**2) + n * math.log1p(1 / k)
            widths = k / (_STEPS * self.epsilon) / self._form.norms
            log_bound = -(k**2) / (2 * _STEPS**2) + float(np.log1p(math.sqrt(2 * math.pi) * widths).sum())
            if log_ratio < -0.5 and log_bound < least:
                return k

    def _release_attempt(self) -> Integers | None:
        """About 0.1 ms a dimension, after some seconds for the first draw."""
        rung = 1 + place_among(secrets.randbits(WORD), self._cumulative)
        noise = self._release_try(rung / (_STEPS * Fraction(self.epsilon)))
        return noise if noise is not None and self._accepts(sum(int(value) ** 2 for value in noise)) else None

    def _cumulative(self, digits: int) -> list[Decimal]:
        """Probabilities of the first rungs together, to an error below 10^(guard - digits), in such a context."""
        if digits not in self._rungs:
            cumulative = list(accumulate(self._weight(k, digits) for k in range(1, self._highest(digits) + 1)))
            self._rungs[digits] = [own / cumulative[-1] for own in cumulative]
        return self._rungs[digits]

    def _weight(self, rung: int, digits: int) -> Decimal:
        product = (-Decimal(rung**2) / (2 * _STEPS**2)).exp()
        sigma2 = (rung / (_STEPS * Fraction(self.epsilon))) ** 2
        for norm in self._form.squared_norms:
            product *= theta_at_zero(sigma2 / norm, digits)
        return product

    def _accepts(self, square: int) -> bool:
        """True with probability exactly 4 exp(-epsilon |z|) / g(|z|), given |z|^2."""
        epsilon = Fraction(self.epsilon)

        def probability(digits: int) -> Decimal:
            cost = decimal(epsilon) * Decimal(square).sqrt()
            half_square, ladder = decimal(epsilon**2 * square * _STEPS**2 / 2), Decimal(0)
            # Beyond this rung less than 10^-digits of exp(-cost) remains: a quarter of g at most.
            last = isqrt(2 * _STEPS**2 * (3 * digits + int(cost) + 8)) + _STEPS
            for k in range(1, last + 1):
                ladder += (-Decimal(k**2) / (2 * _STEPS**2) - half_square / k**2).exp()
            return _STEPS * (-cost).exp() / ladder

        return is_below(secrets.randbits(WORD), probability)


def shifted_gaussian(center: Float, width: Float, rng: np.random.Generator) -> Float:
    """Whole numbers k with probabilities proportional to exp(-(k - center)^2 / (2 width^2)), elementwise.

    Parameters
    ----------
    center, width : ndarray of one shape
        Widths are positive.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of float64, of that shape

    Notes
    -----
    A normal value x = k + u rounds to k. The density of k and |u| is that of the law wanted and an independent |u|,
    times cosh((k - center) u / width^2): accepting with its inverse leaves exactly the law.
    """
    shape, center, width = center.shape, center.ravel(), width.ravel()
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
    return drawn.reshape(shape)


def _from_window(center: Float, width: Float, rng: np.random.Generator) -> Float:
    """By inversion among the 17 nearest whole numbers, (n,); the others have less than 2^-180 together."""
    candidates = np.rint(center)[:, None] + _WINDOW
    least = np.square(np.rint(center) - center)[:, None]
    weight = np.exp((least - np.square(candidates - center[:, None])) / (2 * np.square(width)[:, None]))
    cumulative = np.cumsum(weight, axis=1)
    chosen = (cumulative < rng.random(center.size)[:, None] * cumulative[:, -1:]).sum(axis=1)
    return candidates[np.arange(center.size), chosen]


def log_theta(center: Float, width: Float) -> Float:
    """Logarithm of the sum over all whole k of exp(-(k - center)^2 / (2 width^2)), elementwise, both of one shape."""
    rest = center - np.rint(center)
    wide = width >= 1
    if wide.all():
        return _log_theta_wide(rest, width)
    value = np.empty(rest.shape)
    value[wide] = _log_theta_wide(rest[wide], width[wide])
    value[~wide] = _log_theta_narrow(rest[~wide], width[~wide])
    return value


def log_theta_at_zero(width: Float) -> Float:
    """`log_theta` about 0, in the shape of the widths."""
    return np.log1p(theta_excess(np.square(width)))


def _log_theta_wide(rest: Float, width: Float) -> Float:
    """By Poisson summation, both of one shape; from width 1 on the second term is below 1e-34."""
    ripple = 2 * np.exp(-2 * np.square(np.pi * width)) * np.cos(2 * np.pi * rest)
    return np.asarray(np.log(math.sqrt(2 * math.pi) * width) + np.log1p(ripple))


def _log_theta_narrow(rest: Float, width: Float) -> Float:
    """By the sum over the 17 nearest whole numbers, (n,)."""
    return np.asarray(logsumexp(-np.square(_WINDOW - rest[:, None]) / (2 * np.square(width[:, None])), axis=1))


def _log_ladder(costs: Float) -> Float:
    """Logarithm of exp(c) g(r), (n,), c being epsilon r: the sum of exp(-(u - c / u)^2 / 2) at u = k / 4."""
    last = int(_STEPS * (math.sqrt(float(costs.max(initial=0.0))) + 10))
    u = np.arange(1, last + 1) / _STEPS
    return np.asarray(logsumexp(-np.square(u - costs[:, None] / u) / 2, axis=1))

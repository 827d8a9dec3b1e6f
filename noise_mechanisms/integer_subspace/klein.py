"""Exact Gaussian and L2-norm Laplace noise on any lattice: Klein's sampler with exact rejection."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import LaplaceStream, ShiftedGaussian
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.sampler import RejectionSampler, require_acceptance

_NARROW = 0.5  # below, draw from a window of whole numbers; above, round normal values
_WINDOW = np.arange(-8, 9)


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
            coordinates[:, front] = shifted_gaussian(center.ravel(), width.ravel(), rng).reshape(center.shape)
            log_thetas[:, front] = log_theta(center.ravel(), width.ravel()).reshape(center.shape)
        return np.asarray(coordinates.astype(np.int64) @ self._lattice.basis.T), log_thetas.sum(axis=1)

    def _release_attempt(self, laws: list[ShiftedGaussian]) -> Integers | None:
        """Coordinates of one accepted proposal, or None as soon as one factor of the acceptance fails."""
        coordinates = np.zeros(len(laws), dtype=np.int64)
        for i in reversed(range(len(laws))):
            numerator = -int(self._form.numerators[i, i + 1 :] @ coordinates[i + 1 :])
            center = Fraction(numerator, int(self._form.denominators[i]))
            if not laws[i].accepts(center):
                return None
            coordinates[i] = laws[i].take(center)
        return coordinates


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
    exact: ClassVar[bool] = True

    def __init__(self, lattice: Lattice, sigma: float) -> None:
        super().__init__(lattice)
        self.sigma = positive_number(sigma, "sigma")

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        widths = self.sigma / self._form.norms
        proposals, log_thetas = self._propose(np.full(tries, self.sigma), rng)
        return proposals, log_thetas - log_theta(np.zeros_like(widths), widths).sum()

    def release_sample(self) -> Integers:
        """See `Sampler.release_sample`. About 0.1 ms a dimension."""
        require_acceptance(self.name, self.acceptance)
        streams: dict[int, LaplaceStream] = {}
        laws = [ShiftedGaussian(Fraction(self.sigma) ** 2 / norm, streams) for norm in self._form.squared_norms]
        while True:
            coordinates = self._release_attempt(laws)
            if coordinates is not None:
                return np.asarray(self._lattice.basis @ coordinates)


class L2LaplaceSampler(KleinSampler):
    """Noise with probabilities proportional to exp(-epsilon |z|), |z| being the L2 norm, on a lattice.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of L2 distance.

    Notes
    -----
    exp(-epsilon r) is proportional to the integral over v of v^(-1/2) exp(-epsilon^2 v / 2) exp(-r^2 / 2 v). So v is
    drawn with density proportional to

        v^(-1/2) exp(-epsilon^2 v / 2) * product over i of (1 + sqrt(2 pi v) / |b*_i|),

    a mixture of gamma laws whose weights are elementary symmetric polynomials; given v, Klein's proposal with sigma^2 =
    v is accepted with probability the product of theta_i(c_i) / (1 + sqrt(2 pi v) / |b*_i|), at most 1. The law of the
    accepted noise is exact. There is no release grade: v is a real number.
    """

    name: ClassVar[str] = "klein_mixture"
    exact: ClassVar[bool] = True

    def __init__(self, lattice: Lattice, epsilon: float) -> None:
        super().__init__(lattice)
        self.epsilon = positive_number(epsilon, "epsilon")
        log_rate = 2 * math.log(self.epsilon) - math.log(2)
        self._shapes = (np.arange(lattice.dimension + 1) + 1) / 2
        log_weights = _log_elementary(np.log(np.sqrt(2 * np.pi) / self._form.norms))
        log_weights += gammaln(self._shapes) - self._shapes * log_rate
        self._weights = np.exp(log_weights - logsumexp(log_weights))

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        shapes = rng.choice(self._shapes, size=tries, p=self._weights)
        sigma = np.sqrt(2 * rng.standard_gamma(shapes)) / self.epsilon
        proposals, log_thetas = self._propose(sigma, rng)
        bounds = np.log1p(np.sqrt(2 * np.pi) * sigma[:, None] / self._form.norms).sum(axis=1)
        return proposals, log_thetas - bounds


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


def _log_elementary(log_values: Float) -> Float:
    """Logarithms of the elementary symmetric polynomials of degrees 0, ..., n of n positive numbers."""
    log_sums = np.full(log_values.size + 1, -np.inf)
    log_sums[0] = 0.0
    for log_value in log_values:
        log_sums[1:] = np.logaddexp(log_sums[1:], log_sums[:-1] + log_value)
    return log_sums

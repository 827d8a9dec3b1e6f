"""Exact Gaussian noise on any lattice by Klein's sampler: coordinates from discrete Gaussians around any center."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from scipy.special import logsumexp

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import LaplaceStream, ShiftedGaussian
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import RejectionSampler
from noise_mechanisms.theta import theta_excess

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
    exact: ClassVar[bool] = True

    def __init__(self, lattice: Lattice, sigma: float) -> None:
        super().__init__(lattice)
        self.sigma = positive_number(sigma, "sigma")

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        proposals, log_thetas = self._propose(np.full(tries, self.sigma), rng)
        return proposals, log_thetas - log_theta_at_zero(self.sigma / self._form.norms).sum()

    def _release_attempt(self) -> Integers | None:
        """About 0.1 ms a dimension."""
        return self._release_try(Fraction(self.sigma))


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
    value = np.empty(rest.shape)
    value[wide] = _log_theta_wide(rest[wide], width[wide])
    value[~wide] = _log_theta_narrow(rest[~wide], width[~wide])
    return value


def log_theta_at_zero(width: Float) -> Float:
    """`log_theta` about 0, elementwise."""
    return np.log1p(theta_excess(np.square(width)))


def _log_theta_wide(rest: Float, width: Float) -> Float:
    """By Poisson summation; from width 1 on the second term is below 1e-34."""
    ripple = 2 * np.exp(-2 * np.square(np.pi * width)) * np.cos(2 * np.pi * rest)
    return np.asarray(np.log(math.sqrt(2 * math.pi) * width) + np.log1p(ripple))


def _log_theta_narrow(rest: Float, width: Float) -> Float:
    return np.asarray(logsumexp(-np.square(_WINDOW - rest[:, None]) / (2 * np.square(width[:, None])), axis=1))

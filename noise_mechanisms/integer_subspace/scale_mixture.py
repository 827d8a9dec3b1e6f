"""Noise by the L1 norm on any lattice, as a mixture of Gaussians with a width of its own for every cell."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.klein import log_theta, log_theta_at_zero, shifted_gaussian
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import RejectionSampler, Sampler

_LARGEST_MIXED = 300  # dimension: a Cholesky factorisation a try
_FLOORS = np.geomspace(0.05, 4.0, 40)  # in mean squared lengths of Gram-Schmidt vectors


class ScaleMixtureSampler(RejectionSampler):
    """L1 noise on any lattice, exact up to the rounding of float64.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives, of at most 300 dimensions.
    epsilon : float
        Loss per unit of L1 distance.

    Raises
    ------
    ValueError
        If the lattice has more dimensions.

    Notes
    -----
    exp(-epsilon |z_j|) is the integral over v of v^(-1/2) exp(-epsilon^2 v / 2 - z_j^2 / 2 v), up to a constant. Given
    a v_j for every cell the noise is Gaussian on the lattice in the metric of 1 / v, which Klein's sampler draws
    exactly: coordinate i from a discrete Gaussian of width s_i(v), accepted with the product of theta_i(c_i) /
    theta_i(0) as in `KleinSampler`. There remains to draw v, with density proportional to the product of v_j^(-1/2)
    exp(-epsilon^2 v_j / 2) and of all theta_i(0). With w_j = max(v_j, a) for any a > 0

        product of theta_i(0; s_i(v)) <= K_a (2 pi)^(n/2) det(C'C)^(-1/2) * product of w_j^(p_j / 2),

    where p_j is the j-th diagonal entry of the projector onto the lattice's span: s_i and theta grow with every v_j;
    theta(0; s) / (sqrt(2 pi) s) falls with s, and s_i(w)^2 >= s_i(a)^2 = a / |b*_i|^2, which makes K_a the product of
    theta(0; s) / (sqrt(2 pi) s) at s = sqrt(a) / |b*_i|; and by Cauchy-Binet and the inequality of the means,
    1 / product of s_i(w)^2 = det(C' W^-1 C) >= det(C'C) * product of w_j^(-p_j). So independent v_j with densities
    proportional to v^(-1/2) max(v, a)^(p_j / 2) exp(-epsilon^2 v / 2) are accepted with the quotient of both sides.
    `a` is the one of 40 values that accepts most. Tries for one draw at epsilon = 1/4: 8 (4 x 4), 37 (6 x 6), 190
    (8 x 8), 1,200 (10 x 10), 7,500 (12 x 12); more for epsilon near 1. At 1/4 a draw takes 0.4 (4 x 4), 0.2 (5 x 5),
    0.1 (6 x 6) and 0.04 (8 x 8) of the time of `RowSampler`, which is faster at 1 and has release grade.
    """

    name: ClassVar[str] = "scale_mixture"
    pilot = 1024

    def __init__(self, lattice: Lattice, epsilon: float) -> None:
        if lattice.dimension > _LARGEST_MIXED:
            raise ValueError(
                f"the sampler {self.name!r} takes lattices of at most {_LARGEST_MIXED} dimensions, and this one has "
                f"{lattice.dimension}: use 'heat_bath', or the L2 norm or Gaussian noise, which are exact anywhere"
            )
        self.epsilon = positive_number(epsilon, "epsilon")
        self._lattice, self._records = lattice, lattice.records
        self._basis = lattice.basis.toarray().astype(np.float64)
        self._rate = self.epsilon**2 / 2
        self._power = np.clip((self._basis * np.linalg.pinv(self._basis).T).sum(axis=1), 0.0, 1.0) / 2
        self._norms = np.diagonal(np.linalg.cholesky(self._basis.T @ self._basis))  # |b*_i|
        self._floor, self._log_excess = self._best_floor()
        self._low, self._high = _log_masses(self._power, self._floor, self._rate)

    def _best_floor(self) -> tuple[float, float]:
        """The a of the notes, and log K_a."""
        floors = _FLOORS * np.square(self._norms).mean() if self._norms.size else _FLOORS
        widths = np.sqrt(floors)[:, None] / self._norms
        excess = (log_theta_at_zero(widths) - np.log(math.sqrt(2 * math.pi) * widths)).sum(axis=1)
        masses = [np.logaddexp(*_log_masses(self._power, float(a), self._rate)).sum() for a in floors]
        best = int(np.argmin(excess + masses))
        return float(floors[best]), float(excess[best])

    @property
    def _values(self) -> int:
        return max(1, self._lattice.records * self._lattice.dimension)

    def _log_acceptance(self, tries: int, rng: np.random.Generator) -> Float:
        """Of the scales alone, (tries,)."""
        return self._scales(tries, rng)[0]

    release_sample = Sampler.release_sample  # v is a real number

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        log_acceptance, factors = self._scales(tries, rng)
        coordinates, log_thetas = self._klein(factors[-rng.standard_exponential(tries) < log_acceptance], rng)
        return np.asarray(coordinates @ self._lattice.basis.T), log_thetas

    def _scales(self, tries: int, rng: np.random.Generator) -> tuple[Float, Float]:
        """Log acceptance of so many draws of all v, (tries,), and Cholesky factors of the metric, (tries, n, n)."""
        v = self._draw_scales(tries, rng)
        factors = np.linalg.cholesky(np.matmul(self._basis.T, self._basis / v[:, :, None]))
        widths = 1 / np.diagonal(factors, axis1=1, axis2=2)
        log_bound = self._log_excess + np.log(math.sqrt(2 * math.pi) / self._norms).sum()
        bound = log_bound + np.log(np.maximum(v, self._floor)) @ self._power
        return log_theta_at_zero(widths).sum(axis=1) - bound, factors

    def _draw_scales(self, tries: int, rng: np.random.Generator) -> Float:
        """Independent v of the density in the notes, (tries, d)."""
        shape = (tries, self._power.size)
        v, low = np.empty(shape), rng.random(shape) < np.exp(self._low - np.logaddexp(self._low, self._high))
        powers = np.broadcast_to(self._power, shape)
        waiting = np.nonzero(low)
        while waiting[0].size:  # below a: v^(-1/2), accepted with exp(-rate v)
            v[waiting] = self._floor * rng.random(waiting[0].size) ** 2
            wrong = rng.standard_exponential(waiting[0].size) < self._rate * v[waiting]
            waiting = (waiting[0][wrong], waiting[1][wrong])
        waiting = np.nonzero(~low)
        while waiting[0].size:
            v[waiting] = rng.standard_gamma(0.5 + powers[waiting]) / self._rate
            wrong = v[waiting] < self._floor
            waiting = (waiting[0][wrong], waiting[1][wrong])
        return np.maximum(v, np.finfo(np.float64).tiny)

    def _klein(self, factors: Float, rng: np.random.Generator) -> tuple[Integers, Float]:
        """Klein's proposals in the metrics of these factors, (m, n), and logarithms of their acceptance, (m,)."""
        count, n = factors.shape[:2]
        coordinates, log_acceptance = np.zeros((count, n)), np.zeros(count)
        for i in reversed(range(n)):
            scale = factors[:, i, i]
            center = -(factors[:, i + 1 :, i] * coordinates[:, i + 1 :]).sum(axis=1) / scale
            coordinates[:, i] = shifted_gaussian(center, 1 / scale, rng)
            log_acceptance += log_theta(center, 1 / scale) - log_theta_at_zero(1 / scale)
        return coordinates.astype(np.int64), log_acceptance


def _log_masses(power: Float, floor: float, rate: float) -> tuple[Float, Float]:
    """Logarithms of the integrals of v^(-1/2) max(v, a)^power exp(-rate v) below and above a, for every cell."""
    low = power * math.log(floor) + 0.5 * math.log(math.pi / rate) + math.log(gammainc(0.5, rate * floor))
    with np.errstate(divide="ignore"):
        above = np.log(gammaincc(power + 0.5, rate * floor))
    return low, gammaln(power + 0.5) - (power + 0.5) * math.log(rate) + above

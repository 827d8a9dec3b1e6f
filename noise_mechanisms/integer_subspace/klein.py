"""Exact Gaussian noise on any lattice by Klein's sampler, coordinate by coordinate."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import LaplaceStream, ShiftedGaussian
from noise_mechanisms.integer_subspace.gram_schmidt import gram_schmidt
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import RejectionSampler
from noise_mechanisms.integer_subspace.shifted_gaussians import log_theta, shifted_gaussian


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
            coordinates[:, front] = shifted_gaussian(center.ravel(), width.ravel(), rng).reshape(center.shape)
            log_thetas[:, front] = log_theta(center.ravel(), width.ravel()).reshape(center.shape)
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
        widths = self.sigma / self._form.norms
        proposals, log_thetas = self._propose(np.full(tries, self.sigma), rng)
        return proposals, log_thetas - log_theta(np.zeros_like(widths), widths).sum()

    def _release_attempt(self) -> Integers | None:
        """About 0.1 ms a dimension."""
        return self._release_try(Fraction(self.sigma))

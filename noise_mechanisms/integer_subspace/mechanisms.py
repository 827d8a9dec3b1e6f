"""The generalized Laplace and Gaussian mechanisms, and the projected noise that the paper compares with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from constraint_builders.arrays import Integers
from constraint_builders.compiled import has_numba
from constraint_builders.description.reals import positive_number, whole_number
from noise_mechanisms.integer_subspace.chains import ChainSampler
from noise_mechanisms.integer_subspace.guarantee import Guarantee, Norm, gaussian_sigma
from noise_mechanisms.integer_subspace.heat_bath import HeatBathKernel
from noise_mechanisms.integer_subspace.invariants import Invariants, two_way_shape
from noise_mechanisms.integer_subspace.jumps import JumpKernel
from noise_mechanisms.integer_subspace.klein import GaussianSampler, L2LadderSampler
from noise_mechanisms.integer_subspace.l1_samplers import BlockSampler, FreeCellSampler, RowSampler
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import Sampler
from noise_mechanisms.integer_subspace.scale_mixture import ScaleMixtureSampler
from noise_mechanisms.laws.base_law import LARGEST_SCALE, TOO_LARGE, Seed
from noise_mechanisms.laws.law_classes import DiscreteLaplace

_MOST_TRIES = 2_000  # of a rejection sampler, before `auto` prefers the heat bath
_SMALLEST_SCALE = 1e-4  # below it a step of 1 has probability exp(-10,000)
_LARGEST_FREE = 40  # dimensions, beyond which free cells are never accepted


@dataclass(frozen=True)
class Choice:
    """A sampler, and why it was chosen."""

    sampler: Sampler
    reason: str


@dataclass(frozen=True)
class LatticeRelease:
    """A table with noise.

    Attributes
    ----------
    table : ndarray of int64, (d,)
        Has exactly the invariants of the confidential one; may be negative.
    guarantee : Guarantee or None
        What its publication costs. None of simulations, whose noise from a seeded generator in floating point promises
        nothing: they are not to be published.
    sampler, reason : str
        Which sampler drew the noise, and why this one.
    grade : {"simulation", "release"}
    """

    table: Integers
    guarantee: Guarantee | None
    sampler: str
    reason: str
    grade: str

    def __str__(self) -> str:
        if self.guarantee is None:
            return f"simulation only, not to be published: noise by {self.sampler!r} ({self.reason}), no privacy"
        return f"release: noise by {self.sampler!r} ({self.reason}), {self.guarantee}"


class LatticeMechanism(ABC):
    """Adds noise of whole numbers that leaves all invariants as they are. The noise is symmetric, hence unbiased."""

    invariants: Invariants
    lattice: Lattice

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What one `release` costs. `add_noise` and `sample` promise nothing."""

    @abstractmethod
    def choose(self, sampler: str = "auto") -> Choice:
        """Return the named sampler, or with "auto" the best one and why it was chosen."""

    @cached_property
    def automatic(self) -> Choice:
        """What ``choose("auto")`` returns."""
        return self.choose("auto")

    def sample(self, size: int, rng: Seed = None) -> Integers:
        """Draw noise alone, (size, d), simulation only, with the automatic sampler; see `Sampler.sample`."""
        return self.automatic.sampler.sample(whole_number(size, "size", 0), rng)

    def add_noise(self, table: ArrayLike, rng: Seed = None, sampler: str = "auto") -> LatticeRelease:
        """Add noise to a table, simulation only: the result has no guarantee, whatever the sampler.

        Parameters
        ----------
        table : array_like of whole numbers, (d,)
            The confidential table.
        rng : numpy.random.Generator, SeedSequence, int or None
            Source of randomness.
        sampler : str
            See `choose`.

        Raises
        ------
        ValueError
            If the table does not hold one whole number for every record, or the sampler does not fit.
        """
        confidential = self.invariants.read_vector(table)
        choice = self.automatic if sampler == "auto" else self.choose(sampler)
        noise = choice.sampler.sample(1, rng)[0]
        return LatticeRelease(confidential + noise, None, choice.sampler.name, choice.reason, "simulation")

    def release(self, table: ArrayLike, sampler: str = "auto") -> LatticeRelease:
        """Add noise to a table, for publication: exact, in integer arithmetic, from secure randomness, without a seed.

        Parameters
        ----------
        table : array_like of whole numbers, (d,)
            The confidential table.
        sampler : str
            See `choose`.

        Raises
        ------
        NotImplementedError
            If the sampler has no release grade.
        ImportError
            If OpenDP is not installed (extra ``release``).
        ValueError
            If the table does not hold one whole number for every record, or the sampler does not fit.
        """
        confidential = self.invariants.read_vector(table)
        choice = self.automatic if sampler == "auto" else self.choose(sampler)
        noise = choice.sampler.release_sample()
        return LatticeRelease(confidential + noise, self.guarantee, choice.sampler.name, choice.reason, "release")


class GeneralizedLaplace(LatticeMechanism):
    """Noise z on the lattice with probabilities proportional to exp(-epsilon |z|) (Definition 9).

    Parameters
    ----------
    invariants : Invariants
        What must not change.
    epsilon : float
        Loss per unit of distance between equivalent tables (Theorem 10).
    norm : {1, 2}
        The norm of z, and of the distance.

    Raises
    ------
    ValueError
        If epsilon is not positive and finite, or the norm neither 1 nor 2.

    Examples
    --------
    Three counties whose total is fixed:

    >>> mechanism = GeneralizedLaplace(Invariants.from_subsets([[0, 1, 2]], records=3), epsilon=0.5)
    >>> int(mechanism.add_noise([100, 20, 3], rng=0).table.sum())
    123
    """

    def __init__(self, invariants: Invariants, epsilon: float, norm: Norm = 1) -> None:
        self.invariants, self.norm = invariants, _read_norm(norm)
        self.epsilon = positive_number(epsilon, "epsilon")
        _check_scale("epsilon", self.epsilon, 1 / self.epsilon)
        self.lattice = Lattice(invariants)

    @property
    def guarantee(self) -> Guarantee:
        """Pure: epsilon t at distance t, with delta = 0."""
        return Guarantee(self.invariants, "pure", Fraction(self.epsilon), self.norm)

    def choose(self, sampler: str = "auto") -> Choice:
        """Return a sampler of the mechanism's noise.

        Parameters
        ----------
        sampler : str
            "auto", or for the L1 norm "blocks", "rows", "free_cells", "scale_mixture", "heat_bath" or "jumps", for the
            L2 norm "l2_ladder" (which "klein_mixture" and "l1_proposals" now mean too) or "jumps". "heat_bath" and
            "jumps" are Markov chains, with their burn-in rules, compiled where numba is installed.

        Raises
        ------
        ValueError
            If the name is unknown, or the sampler does not fit the norm or the invariants.
        """
        if sampler == "auto":
            return self._automatic()
        ladder = (2, lambda: L2LadderSampler(self.lattice, self.epsilon))
        makers = {
            "blocks": (1, lambda: BlockSampler(self.invariants.blocks, self.epsilon)),
            "rows": (1, lambda: RowSampler(self.invariants, self.epsilon)),
            "free_cells": (1, lambda: FreeCellSampler(self.lattice, self.epsilon)),
            "scale_mixture": (1, lambda: ScaleMixtureSampler(self.lattice, self.epsilon)),
            "heat_bath": (1, self._heat_bath),
            **dict.fromkeys(("l2_ladder", "klein_mixture", "l1_proposals"), ladder),
            "jumps": (self.norm, self._jumps),
        }
        if sampler not in makers:
            raise ValueError(f"sampler {sampler!r} is unknown: use 'auto' or one of {', '.join(map(repr, makers))}")
        norm, make = makers[sampler]
        if norm != self.norm:
            raise ValueError(
                f"sampler {sampler!r} draws under the L{norm} norm: the mechanism has the L{self.norm} norm"
            )
        return Choice(make(), "asked for by name")

    def _heat_bath(self) -> Sampler:
        return ChainSampler(HeatBathKernel(self.lattice, self.epsilon, has_numba()))

    def _jumps(self) -> Sampler:
        return ChainSampler(JumpKernel(self.lattice, self.epsilon, self.norm, compiled=has_numba()))

    def _automatic(self) -> Choice:
        if self.norm == 2:
            return Choice(L2LadderSampler(self.lattice, self.epsilon), "exact on any lattice: a ladder of Gaussians")
        if self.invariants.blocks is not None:
            return Choice(
                BlockSampler(self.invariants.blocks, self.epsilon), "exact: nested invariants leave disjoint blocks"
            )
        tried = "no exact sampler under the L1 norm fits"
        rejection = self._rejection_sampler()
        if rejection is not None:
            tries = 1 / max(rejection.acceptance, 1e-300)
            if tries <= _MOST_TRIES:
                return Choice(rejection, f"exact: a small lattice, {tries:,.3g} tries for one draw on average")
            tried = f"exact rejection would take about {tries:.2g} tries for one draw"
        loop = "compiled" if has_numba() else "numpy, many times slower than with numba (extra 'fast')"
        return Choice(self._heat_bath(), f"a Markov chain, not exact: {tried}; {loop}")

    def _rejection_sampler(self) -> RowSampler | FreeCellSampler | None:
        if two_way_shape(self.invariants) is not None:
            return RowSampler(self.invariants, self.epsilon)
        if self.lattice.dimension > _LARGEST_FREE:
            return None
        try:
            return FreeCellSampler(self.lattice, self.epsilon)
        except ValueError:
            return None


def _check_scale(what: str, value: float, scale: float) -> None:
    """Refuse noise that leaves the whole numbers of float64, and noise that is nothing."""
    if scale > LARGEST_SCALE:
        raise ValueError(f"{what} is {value}: noise of a scale of {scale:.3g} is too large, {TOO_LARGE}")
    if scale < _SMALLEST_SCALE:
        raise ValueError(f"{what} is {value}: noise of a scale of {scale:.3g} is 0 for all that can be drawn")


def _read_norm(norm: Norm) -> Norm:
    if whole_number(norm, "norm", 1) > 2:
        raise ValueError(f"norm is {norm!r}: use 1 or 2")
    return 1 if norm == 1 else 2


class GeneralizedGaussian(LatticeMechanism):
    """Noise z on the lattice with probabilities proportional to exp(-|z|^2 / (2 sigma^2)) (Definition 13).

    Parameters
    ----------
    invariants : Invariants
        What must not change.
    sigma : float
        Positive. Each record's variance is less than sigma^2, by what the invariants take away.

    Raises
    ------
    ValueError
        If sigma is not positive and finite.

    Notes
    -----
    At L2 distance t between equivalent tables it is t^2 / (2 sigma^2)-zCDP on any lattice; proof in `gaussian_sigma`.
    """

    def __init__(self, invariants: Invariants, sigma: float) -> None:
        self.invariants, self.sigma = invariants, positive_number(sigma, "sigma")
        _check_scale("sigma", self.sigma, self.sigma)
        self.lattice = Lattice(invariants)

    @classmethod
    def from_approximate(cls, invariants: Invariants, epsilon: float, delta: float) -> GeneralizedGaussian:
        """The mechanism that is (epsilon, delta)-private in the sense of Definition 2; see `gaussian_sigma`.

        Parameters
        ----------
        invariants : Invariants
        epsilon, delta : float

        Returns
        -------
        GeneralizedGaussian
        """
        return cls(invariants, gaussian_sigma(epsilon, delta))

    @property
    def guarantee(self) -> Guarantee:
        """t^2 / (2 sigma^2)-zCDP at distance t; its `approximate` gives the (epsilon, delta) form."""
        return Guarantee(self.invariants, "zcdp", 1 / (2 * Fraction(self.sigma) ** 2), 2)

    def choose(self, sampler: str = "auto") -> Choice:
        """Return the sampler, which is "klein" for any lattice.

        Raises
        ------
        ValueError
            If another one is asked for.
        """
        if sampler not in ("auto", "klein"):
            raise ValueError(f"sampler {sampler!r} does not draw Gaussian noise: use 'auto' or 'klein'")
        return Choice(GaussianSampler(self.lattice, self.sigma), "exact on any lattice: Klein with exact rejection")


def projected_noise(
    invariants: Invariants, epsilon: float, size: int, rng: Seed = None, whole: bool = True
) -> NDArray[np.float64]:
    """Draw independent double geometric noise and move it, by as little as possible in L1, to where invariants hold.

    The result's law has no formula, and among equally near points the solver's choice decides: that is what the
    generalized Laplace mechanism is compared with (the paper's appendix E.4). Simulation only: seeded draws in floating
    point promise nothing.

    Parameters
    ----------
    invariants : Invariants
        What must not change.
    epsilon : float
        Noise has probabilities proportional to exp(-epsilon |k|).
    size : int
        Number of draws; a linear program each, some milliseconds.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness.
    whole : bool
        Whether the result must be whole numbers (integer programming) or may be real.

    Returns
    -------
    ndarray of float64, (size, d)

    Raises
    ------
    RuntimeError
        If the solver fails, with its message.
    """
    records, epsilon = invariants.records, positive_number(epsilon, "epsilon")
    size = whole_number(size, "size", 0)
    noise = DiscreteLaplace(1 / epsilon).sample(size * records, rng).reshape(size, records)
    return np.array([draw - _excess(invariants, draw, whole) for draw in noise], dtype=np.float64).reshape(
        size, records
    )


def _excess(invariants: Invariants, noise: NDArray[np.int64], whole: bool) -> NDArray[np.float64]:
    """The smallest change, (d,), in L1 with A change = A noise, as a difference of two non-negative vectors."""
    A = sparse.csr_array(sparse.hstack([invariants.matrix, -invariants.matrix]))
    target = invariants.apply(noise)
    solution = scipy.optimize.milp(
        np.ones(2 * invariants.records),
        constraints=scipy.optimize.LinearConstraint(A, target, target),
        bounds=scipy.optimize.Bounds(0, np.inf),
        integrality=np.full(2 * invariants.records, int(whole)),
    )
    if not solution.success:
        raise RuntimeError(f"the projection of the noise failed: {solution.message}")
    change = solution.x[: invariants.records] - solution.x[invariants.records :]
    return np.asarray(np.rint(change) if whole else change)

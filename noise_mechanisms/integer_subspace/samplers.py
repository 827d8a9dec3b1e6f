"""What a sampler of lattice noise is, and one that accepts proposals with probabilities of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import random_generator
from noise_mechanisms.laws.base_law import Seed

_LARGEST_BATCH = 4096
_LEAST_ACCEPTANCE = 1e-7
BATCH_VALUES, _PILOT_VALUES = 1 << 20, 1 << 29  # drawn at once, and for an estimate of acceptance
_ENOUGH = 4  # accepted tries, after which it is known well enough


class Sampler(ABC):
    """Draws noise on a lattice.

    Attributes
    ----------
    name : str
    exact : bool
        Whether draws have the stated law, up to the rounding of float64 in `sample` and without any in
        `release_sample`. A Markov chain's do not.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = True

    @abstractmethod
    def sample(self, size: int, rng: Seed = None) -> Integers:
        """Draw independent noise for simulation, in floating point: fast, seeded, and not for release.

        Parameters
        ----------
        size : int
            Number of draws.
        rng : numpy.random.Generator, SeedSequence, int or None
            Source of randomness. The same seed gives the same noise.

        Returns
        -------
        ndarray of int64, (size, d)
        """

    def release_sample(self) -> Integers:
        """Draw noise of release grade: exact, every decision in integer arithmetic, from secure randomness.

        Takes no seed, and no two calls agree.

        Returns
        -------
        ndarray of int64, (d,)

        Raises
        ------
        NotImplementedError
            If this sampler has no release grade.
        ImportError
            If OpenDP is not installed (extra ``release``).
        """
        raise NotImplementedError(
            f"the sampler {self.name!r} draws in floating point, for simulation only: release with 'blocks', 'rows' or "
            "'free_cells' under the L1 norm, 'l2_ladder' under the L2 norm, or Gaussian noise"
        )


class RejectionSampler(Sampler):
    """Accepts proposals, each with a probability of its own.

    Attributes
    ----------
    pilot : int
        Tries from which `acceptance` is estimated at most.
    """

    pilot: ClassVar[int] = 4096
    _records: int

    @property
    def _values(self) -> int:
        """How many numbers one try takes in memory."""
        return max(1, self._records)

    @abstractmethod
    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        """Proposals, (tries, records), and logarithms of their probabilities of acceptance, (tries,).

        Those that are not accepted for certain may be left out.
        """

    def _release_attempt(self) -> Integers | None:
        """One try of release grade: a draw, or None where it is not accepted."""
        return super().release_sample()

    @cached_property
    def acceptance(self) -> float:
        """Estimated probability of acceptance of one try, from tries with a fixed seed."""
        rng, batch, accepted, tries = np.random.default_rng(0), self._batch(self.pilot), 0.0, 0
        while accepted < _ENOUGH and tries < self.pilot and tries * self._values < _PILOT_VALUES:
            accepted += float(np.exp(self._log_acceptance(batch, rng)).sum())
            tries += batch
        return accepted / tries

    def _log_acceptance(self, tries: int, rng: np.random.Generator) -> Float:
        """Logarithms of the probabilities of acceptance of so many tries, (tries,)."""
        return self._attempt(tries, rng)[1]

    def _batch(self, most: int) -> int:
        """How many tries are made at once."""
        return max(1, min(most, BATCH_VALUES // self._values))

    def require_acceptance(self) -> None:
        """Raise `ValueError` where more than ten million tries would be needed for one draw."""
        if self.acceptance < _LEAST_ACCEPTANCE:
            raise ValueError(
                f"the sampler {self.name!r} would accept fewer than one try in {1 / _LEAST_ACCEPTANCE:,.0f} on this "
                "lattice: use 'scale_mixture' or 'heat_bath' for the L1 norm, a larger sigma or epsilon for Klein's, "
                "or fewer dimensions"
            )

    def sample(self, size: int, rng: Seed = None) -> Integers:
        """See `Sampler.sample`."""
        self.require_acceptance()
        generator = random_generator(rng)
        accepted, filled = np.empty((size, self._records), dtype=np.int64), 0
        largest = self._batch(_LARGEST_BATCH)
        while filled < size:
            tries = min(largest, int((size - filled) / self.acceptance * 1.05) + 1)
            proposals, log_acceptance = self._attempt(tries, generator)
            kept = proposals[-generator.standard_exponential(len(proposals)) < log_acceptance][: size - filled]
            accepted[filled : filled + len(kept)] = kept
            filled += len(kept)
        return accepted

    def release_sample(self) -> Integers:
        """See `Sampler.release_sample`."""
        self.require_acceptance()
        while (noise := self._release_attempt()) is None:
            pass
        return noise

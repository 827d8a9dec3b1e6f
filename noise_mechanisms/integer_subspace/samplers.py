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
BATCH_VALUES = 1 << 20


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
        Tries from which `acceptance` is estimated, fewer where they would take much memory.
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
        tries = min(self.pilot, max(1, BATCH_VALUES // self._values))
        return float(np.exp(self._attempt(tries, np.random.default_rng(0))[1]).mean())

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
        largest = max(1, min(_LARGEST_BATCH, BATCH_VALUES // self._values))
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

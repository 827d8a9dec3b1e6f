"""The one interface of all samplers of lattice noise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np

from constraint_builders.arrays import Float, Integers

Seed: TypeAlias = np.random.Generator | np.random.SeedSequence | int | None

_LARGEST_BATCH = 4096
_LEAST_ACCEPTANCE = 1e-7
_BATCH_VALUES = 1 << 20


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
    exact: ClassVar[bool]

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
        Tries from which `acceptance` is estimated.
    """

    pilot: ClassVar[int] = 4096
    _records: int

    @abstractmethod
    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        """Proposals, (tries, records), and logarithms of their probabilities of acceptance, (tries,)."""

    @cached_property
    def acceptance(self) -> float:
        """Estimated probability of acceptance of one try, from tries with a fixed seed."""
        return float(np.exp(self._attempt(self.pilot, np.random.default_rng(0))[1]).mean())

    def sample(self, size: int, rng: Seed = None) -> Integers:
        """See `Sampler.sample`."""
        require_acceptance(self.name, self.acceptance)
        return rejection(self._attempt, size, self._records, self.acceptance, rng)


def require_acceptance(name: str, acceptance: float) -> None:
    """Raise `ValueError` where a rejection sampler would need more than ten million tries for one draw."""
    if acceptance < _LEAST_ACCEPTANCE:
        raise ValueError(
            f"the sampler {name!r} would accept fewer than one try in {1 / _LEAST_ACCEPTANCE:,.0f} on this lattice: "
            "use 'scale_mixture' or 'heat_bath' for the L1 norm, a larger sigma or epsilon for Klein's, or fewer "
            "dimensions"
        )


Attempt: TypeAlias = Callable[[int, np.random.Generator], tuple[Integers, Float]]


def rejection(attempt: Attempt, size: int, records: int, acceptance: float, rng: Seed) -> Integers:
    """Collect `size` accepted draws.

    Parameters
    ----------
    attempt : function (tries, rng) -> proposals (tries, records), log of their acceptance probability (tries,)
        The proposal.
    size, records : int
        Shape of the result.
    acceptance : float
        About how many proposals are accepted; sets the size of the batches only.
    rng : Seed
        Source of randomness.
    """
    generator = np.random.default_rng(rng)
    accepted = np.empty((size, records), dtype=np.int64)
    filled = 0
    largest = max(1, min(_LARGEST_BATCH, _BATCH_VALUES // records))
    while filled < size:
        tries = min(largest, int((size - filled) / acceptance * 1.05) + 1)
        proposals, log_acceptance = attempt(tries, generator)
        kept = proposals[-generator.standard_exponential(tries) < log_acceptance][: size - filled]
        accepted[filled : filled + kept.shape[0]] = kept
        filled += kept.shape[0]
    return accepted

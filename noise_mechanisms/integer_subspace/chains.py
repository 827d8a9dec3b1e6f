"""Markov chains whose law tends to the generalized Laplace law, draws from many, and evidence of how near they come.

Chains are approximate. Stopped at total variation eta from their law they cost delta = (1 + e^epsilon) eta; use them
where no exact sampler exists. There are the exact heat bath along basic moves (`heat_bath`) and the paper's jumps
(`jumps`). Pairs of them are coupled, and when they meet bounds the distance.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Integers
from constraint_builders.description.reals import positive_number, random_generator, whole_number
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import Sampler
from noise_mechanisms.laws.base_law import Seed

VALUES_AT_ONCE = 1 << 20
WIDENING = 4.0  # by which epsilon is divided where starts are to be dispersed
INSTEAD = "use compiled=False"
_LARGEST_INFORMATIVE = 25  # dimension of 6 x 6 tables, whose heat-bath chains take 37,000 moves to meet; 8 x 8: > 3e6


class Kernel(ABC):
    """A Markov chain on a lattice with the generalized Laplace law as its only stationary law.

    Attributes
    ----------
    lattice : Lattice
    epsilon : float
    norm : {1, 2}
    compiled : bool
        Whether the loop runs in numba.
    """

    name: ClassVar[str]
    lattice: Lattice
    epsilon: float
    norm: Norm
    compiled: bool
    _numbers: int  # random ones, for one iteration of a chain

    @property
    @abstractmethod
    def burn_in(self) -> int:
        """Iterations after which a chain from zero is taken to have its law: a measured rule, not a proof."""

    def with_epsilon(self, epsilon: float) -> Self:
        """The same chain for another epsilon."""
        other = copy(self)
        other.epsilon = positive_number(epsilon, "epsilon")
        return other

    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """Advance the chains, (chains, d), in place, by this many iterations each."""
        largest = max(1, VALUES_AT_ONCE // max(1, states.shape[0] * self._numbers))
        for start in range(0, iterations, largest):
            self._advance(states, min(largest, iterations - start), rng)

    @abstractmethod
    def _advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """As `advance`, of states (chains, d), all random numbers drawn at once."""

    @abstractmethod
    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """Advance pairs of chains, (pairs, d) each, in place, by one coupled iteration; equal chains stay equal."""

    def trace(self, states: Integers, length: int, thinning: int, rng: np.random.Generator) -> Integers:
        """Advance the chains in place and record them after every `thinning` iterations: (chains, length, d)."""
        record = np.empty((states.shape[0], length, states.shape[1]), dtype=np.int64)
        for i in range(length):
            self.advance(states, thinning, rng)
            record[:, i] = states
        return record


class ChainSampler(Sampler):
    """Independent chains from zero, one for every draw, stopped after a burn-in.

    Parameters
    ----------
    kernel : Kernel
        The chain.
    burn_in : int, optional
        Iterations of each, by default `Kernel.burn_in`.
    """

    exact: ClassVar[bool] = False

    def __init__(self, kernel: Kernel, burn_in: int | None = None) -> None:
        self.kernel = kernel
        self.name = kernel.name  # type: ignore[misc]
        self.burn_in = kernel.burn_in if burn_in is None else whole_number(burn_in, "burn_in", 0)

    def sample(self, size: int, rng: Seed = None) -> Integers:
        """See `Sampler.sample`."""
        states = np.zeros((size, self.kernel.lattice.records), dtype=np.int64)
        self.kernel.advance(states, self.burn_in, random_generator(rng))
        return states


class CouplingWarning(UserWarning):
    """The coupled chains cannot bound the distance from the law, although the chain itself may be close to it."""


@dataclass(frozen=True)
class MeetingTimes:
    """When pairs of coupled chains met.

    Attributes
    ----------
    lag : int
        L, by how many iterations the first chain of every pair is ahead.
    times : ndarray of int64, (runs,)
        Iteration tau of the first chain at which it first equals the second, more than L; where `met` is False the
        iteration at which the run was given up.
    met : ndarray of bool, (runs,)
    """

    lag: int
    times: Integers
    met: NDArray[np.bool_]

    def bound(self, iteration: int) -> tuple[float, float]:
        """Estimated upper bound on the total variation distance from the law after this many iterations from zero.

        The mean over the runs of max(0, ceil((tau - L - t) / L)) (Biswas, Jacob and Vanetti, 2019, Theorem 2.5).

        Parameters
        ----------
        iteration : int
            t, counted for a single chain.

        Returns
        -------
        bound, standard_error : float
            The bound is at most 1. It is 1, with standard error 0, and a `CouplingWarning` says so, if some run did
            not meet: such runs would make the mean an underestimate.
        """
        if not self.met.all():
            warnings.warn(
                f"{np.count_nonzero(~self.met)} of {self.met.size} coupled runs did not meet within "
                f"{self.times.max():,} iterations: the bound is the trivial 1; give them more, or compare with an "
                "exact sampler",
                CouplingWarning,
                stacklevel=2,
            )
            return 1.0, 0.0
        excess = np.maximum(0, np.ceil((self.times - self.lag - iteration) / self.lag))
        return min(1.0, float(excess.mean())), float(excess.std(ddof=1) / np.sqrt(excess.size))

    def iterations_for(self, eta: float) -> int:
        """The first iteration at which the bound is at most eta.

        Raises
        ------
        ValueError
            If some run did not meet.
        """
        if not self.met.all():
            raise ValueError("some coupled runs did not meet: there is no iteration to name")
        low, high = 0, int(self.times.max())
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.bound(middle)[0] <= eta else (middle + 1, high)
        return low


def meeting_times(kernel: Kernel, lag: int, runs: int, max_iterations: int, rng: Seed = None) -> MeetingTimes:
    """Run pairs of coupled chains from zero until they meet (the paper's Algorithm 3).

    Parameters
    ----------
    kernel : Kernel
        The chain. `JumpKernel` is coupled by the paper's Algorithm 2, `HeatBathKernel` by common moves and common
        uniform numbers.
    lag : int
        L, at least 1. Larger lags give tighter bounds and cost more.
    runs : int
        Number of independent pairs, at least 2.
    max_iterations : int
        Give up on pairs that have not met by then.
    rng : numpy.random.Generator, SeedSequence, int or None
        Source of randomness.

    Returns
    -------
    MeetingTimes

    Raises
    ------
    ValueError
        If an argument is too small.

    Warns
    -----
    CouplingWarning
        If the lattice has more than 25 dimensions, where coupled chains practically never meet.
    """
    lag, runs = whole_number(lag, "lag", 1), whole_number(runs, "runs", 2)
    max_iterations = whole_number(max_iterations, "max_iterations", lag + 1)
    if kernel.lattice.dimension > _LARGEST_INFORMATIVE:
        warnings.warn(
            f"coupled chains on a lattice of dimension {kernel.lattice.dimension} practically never meet (more than "
            f"{_LARGEST_INFORMATIVE}, a 6 x 6 table): judge convergence by scale reduction or an exact sampler",
            CouplingWarning,
            stacklevel=2,
        )
    generator = random_generator(rng)
    ahead = np.zeros((runs, kernel.lattice.records), dtype=np.int64)
    behind = ahead.copy()
    kernel.advance(ahead, lag, generator)
    times = np.full(runs, max_iterations, dtype=np.int64)
    apart = np.arange(runs)
    for iteration in range(lag + 1, max_iterations + 1):
        kernel.advance_together(ahead, behind, generator)
        together = (ahead == behind).all(axis=1)
        if together.any():
            times[apart[together]] = iteration
            apart, ahead, behind = apart[~together], ahead[~together], behind[~together]
        if not apart.size:
            break
    met = np.ones(runs, dtype=bool)
    met[apart] = False
    return MeetingTimes(lag, times, met)


def dispersed_starts(kernel: Kernel, chains: int, rng: Seed = None) -> Integers:
    """Starting states (chains, d) drawn from a wider law, itself run from zero for its burn-in."""
    states = np.zeros((whole_number(chains, "chains", 1), kernel.lattice.records), dtype=np.int64)
    wide = kernel.with_epsilon(kernel.epsilon / WIDENING)
    wide.advance(states, wide.burn_in, random_generator(rng))
    return states

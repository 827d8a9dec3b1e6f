"""Markov chains whose law tends to the generalized Laplace law: what one is, and draws from many of them.

Chains are approximate. Stopped at total variation eta from their law they cost delta = (1 + e^epsilon) eta; use them
where no exact sampler exists, or to judge convergence, see `coupling`. There are the exact heat bath along basic moves
(`heat_bath`) and the paper's jumps (`jumps`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from typing import ClassVar, Self

import numpy as np

from constraint_builders.arrays import Integers
from constraint_builders.description.reals import positive_number, whole_number
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import Sampler
from noise_mechanisms.laws.base_law import Seed

VALUES_AT_ONCE = 1 << 20
INSTEAD = "use compiled=False"


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
        """As `advance`, all random numbers drawn at once."""

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
        self.kernel.advance(states, self.burn_in, np.random.default_rng(rng))
        return states

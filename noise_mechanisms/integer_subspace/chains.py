"""Markov chains whose law tends to the generalized Laplace law: the paper's jumps, and the exact heat bath.

Chains are approximate. Stopped at total variation eta from their law they cost delta = (1 + e^epsilon) eta; use them
where no exact sampler exists, or to judge convergence.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number, share, whole_number
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.heat_bath import redraw_chains
from noise_mechanisms.integer_subspace.jumps import accept, jump_chains
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.moves import basic_moves
from noise_mechanisms.integer_subspace.sampler import Sampler, Seed
from noise_mechanisms.laws import DiscreteLaplace

# Measured on tables of 16 to 2,000 cells: autocorrelation takes 1.8 to 3.7 moves a cell, and the mean L1 norm of chains
# from zero is within 0.05 standard deviations after 16 moves a cell. Twice that.
HEAT_BATH_MOVES_PER_CELL = 32
# Measured on the 4 x 4 table: jumps are autocorrelated over about 112 iterations, heat-bath moves over 26.
JUMPS_PER_CELL = 128
NARROW = 0.2  # epsilon below which jumps of a step or two wander: they need the square of the noise's width
MOST_JUMPS = 10**9

_VALUES_AT_ONCE = 1 << 20
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

    @property
    @abstractmethod
    def burn_in(self) -> int:
        """Iterations after which a chain from zero is taken to have its law: a measured rule, not a proof."""

    @abstractmethod
    def with_epsilon(self, epsilon: float) -> Kernel:
        """The same chain for another epsilon."""

    @abstractmethod
    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """Advance the chains, (chains, d), in place, by this many iterations each."""

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


class HeatBathKernel(Kernel):
    """Exact redraws along basic moves, under the L1 norm.

    One iteration picks one of all `basic_moves` at random and redraws the state along it from the law given everything
    else. Nothing to tune.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of L1 distance.
    compiled : bool
        Run in numba.

    Raises
    ------
    ImportError
        If `compiled` and numba is missing (extra ``fast``).
    """

    name: ClassVar[str] = "heat_bath"
    norm: Norm = 1

    def __init__(self, lattice: Lattice, epsilon: float, compiled: bool = False) -> None:
        self.lattice, self.epsilon, self.compiled = lattice, positive_number(epsilon, "epsilon"), compiled
        self._moves = basic_moves(lattice)
        self._redraw = redraw_chains.compiled(INSTEAD) if compiled else redraw_chains.reference

    @property
    def burn_in(self) -> int:
        """32 moves a cell, see `HEAT_BATH_MOVES_PER_CELL`."""
        return HEAT_BATH_MOVES_PER_CELL * self.lattice.records

    def with_epsilon(self, epsilon: float) -> HeatBathKernel:
        """See `Kernel.with_epsilon`."""
        return HeatBathKernel(self.lattice, epsilon, self.compiled)

    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """See `Kernel.advance`."""
        chains = states.shape[0]
        for count in _portions(iterations, _VALUES_AT_ONCE // chains):
            choices: Integers = rng.integers(0, self._moves.count, size=(chains, count))
            uniforms: Float = rng.random((chains, count))
            self._redraw(states, self._moves.cells, self._moves.steps, choices, uniforms, self.epsilon)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """Both chains take the same move with the same uniform number."""
        choices = rng.integers(0, self._moves.count, size=(first.shape[0], 1))
        uniforms = rng.random((first.shape[0], 1))
        for states in (first, second):
            redraw_chains.reference(states, self._moves.cells, self._moves.steps, choices, uniforms, self.epsilon)


class JumpKernel(Kernel):
    """The paper's Gibbs-within-Metropolis sampler (Algorithm 1).

    One iteration proposes a jump C e, where C is the lattice basis and the entries of e are independent with
    probabilities (1 - a) / (1 + a) a^|k| (equation 11), and accepts it with probability
    min(1, exp(-epsilon (norm after - norm before))).

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of distance.
    norm : {1, 2}
        Which distance.
    a : float
        Between 0 and 1, both excluded: how far proposals reach; to be tuned.
    compiled : bool
        Run in numba.

    Raises
    ------
    ImportError
        If `compiled` and numba is missing (extra ``fast``).
    ValueError
        If `a` is not between 0 and 1.
    """

    name: ClassVar[str] = "jumps"

    def __init__(
        self, lattice: Lattice, epsilon: float, norm: Norm = 1, a: float = math.exp(-1), compiled: bool = False
    ) -> None:
        self.lattice, self.norm, self.compiled = lattice, norm, compiled
        self.epsilon, self.a = positive_number(epsilon, "epsilon"), share(a, "a")
        self._law = DiscreteLaplace(-1 / math.log(self.a))
        self._basis = np.ascontiguousarray(lattice.basis.toarray().T)
        self._jump = jump_chains.compiled(INSTEAD) if compiled else jump_chains.reference

    @property
    def burn_in(self) -> int:
        """128 jumps a cell, see `JUMPS_PER_CELL`; of noise that is wider than jumps reach as many more as they need."""
        jumps = JUMPS_PER_CELL * self.lattice.records * max(1.0, (NARROW / self.epsilon) ** 2)
        if jumps > MOST_JUMPS:
            raise ValueError(f"at epsilon {self.epsilon:g} 'jumps' would take {jumps:.3g} of them: take 'auto'")
        return math.ceil(jumps)

    def with_epsilon(self, epsilon: float) -> JumpKernel:
        """See `Kernel.with_epsilon`."""
        return JumpKernel(self.lattice, epsilon, self.norm, self.a, self.compiled)

    def advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """See `Kernel.advance`."""
        chains, rank = states.shape[0], self._basis.shape[0]
        for count in _portions(iterations, _VALUES_AT_ONCE // (chains * max(rank, 1))):
            jumps = self._law.sample(chains * count * rank, rng).reshape(chains, count, rank)
            costs: Float = rng.standard_exponential((chains, count))
            self._jump(states, self._basis, jumps, costs, self.epsilon, self.norm)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """The paper's Algorithm 2: proposals maximally coupled in every lattice coordinate, one cost for both."""
        pairs, rank = first.shape[0], self._basis.shape[0]
        gap = self.coordinates(second - first)
        jump = self._law.sample(pairs * rank, rng).reshape(pairs, rank)
        other = self._coupled_jump(jump, gap, rng)
        costs = rng.standard_exponential((pairs,))
        accept(first, first + jump @ self._basis, costs, self.epsilon, self.norm)
        accept(second, second + other @ self._basis, costs, self.epsilon, self.norm)

    def coordinates(self, states: Integers) -> Integers:
        """Lattice coordinates (chains, rank) of the states (chains, d)."""
        return np.rint(states @ self._left_inverse).astype(np.int64)

    @cached_property
    def _left_inverse(self) -> Float:
        return np.linalg.pinv(self._basis.astype(np.float64))

    def _coupled_jump(self, jump: Integers, gap: Integers, rng: np.random.Generator) -> Integers:
        """Jumps of a second chain that is `gap` ahead, which land where the first ones do as often as possible."""
        landing = jump - gap
        log_ratio = math.log(self.a) * (abs(landing) - abs(jump))
        apart = -rng.standard_exponential(jump.shape) > log_ratio
        waiting = np.nonzero(apart)
        while waiting[0].size:
            fresh = self._law.sample(waiting[0].size, rng)
            landing[waiting] = fresh
            log_ratio = math.log(self.a) * (abs(fresh + gap[waiting]) - abs(fresh))
            taken = -rng.standard_exponential(fresh.size) > log_ratio
            waiting = (waiting[0][~taken], waiting[1][~taken])
        return landing


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


def _portions(total: int, largest: int) -> list[int]:
    """`total` as a sum of portions of at most `largest`, itself at least 1."""
    largest = max(largest, 1)
    return [min(largest, total - start) for start in range(0, total, largest)]

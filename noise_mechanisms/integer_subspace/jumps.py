"""The paper's chain (Algorithm 1): jumps of independent lattice coordinates, accepted or not, and their coupling."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import ONE_BY_ONE, compiled
from constraint_builders.description.reals import positive_number, share
from noise_mechanisms.integer_subspace.chains import INSTEAD, Kernel
from noise_mechanisms.integer_subspace.guarantee import Norm
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.laws.law_classes import DiscreteLaplace

# Measured on the 4 x 4 table: jumps are autocorrelated over about 112 iterations, heat-bath moves over 26.
JUMPS_PER_CELL = 128
NARROW = 0.2  # epsilon below which jumps of a step or two wander: they need the square of the noise's width
MOST_JUMPS = 10**9


def accept(states: Integers, proposals: Integers, costs: Float, epsilon: float, norm: Norm) -> None:
    """Put proposals in place of states where epsilon times the growth of the norm is at most the cost, (chains,)."""
    growth = np.linalg.norm(proposals, norm, axis=-1) - np.linalg.norm(states, norm, axis=-1)
    accepted = epsilon * growth <= costs
    states[accepted] = proposals[accepted]


def jump_in_numpy(states: Integers, basis: Integers, jumps: Integers, costs: Float, epsilon: float, norm: Norm) -> None:
    """Propose jumps to every chain, one after another, and accept them by their costs.

    Parameters
    ----------
    states : ndarray of int64, (chains, d)
        Changed in place.
    basis : ndarray of int64, (rank, d)
        A lattice vector in every row.
    jumps : ndarray of int64, (chains, n, rank)
        In lattice coordinates.
    costs : ndarray, (chains, n)
        Exponential variables.
    epsilon : float
    norm : {1, 2}
    """
    for turn in range(jumps.shape[1]):
        accept(states, states + jumps[:, turn] @ basis, costs[:, turn], epsilon, norm)


@compiled(reference=jump_in_numpy, most=ONE_BY_ONE)
def jump_chains(states: Integers, basis: Integers, jumps: Integers, costs: Float, epsilon: float, norm: int) -> None:
    """As in `jump_in_numpy`: states (chains, d), basis (rank, d), jumps (chains, n, rank), costs (chains, n)."""
    proposal = np.empty(states.shape[1], np.int64)
    for chain in range(states.shape[0]):
        size = own_norm(states[chain], norm)
        for turn in range(jumps.shape[1]):
            proposal[:] = states[chain]
            for i in range(basis.shape[0]):
                if jumps[chain, turn, i] != 0:
                    proposal += jumps[chain, turn, i] * basis[i]
            proposed = own_norm(proposal, norm)
            if epsilon * (proposed - size) <= costs[chain, turn]:
                states[chain] = proposal
                size = proposed


def own_norm(table: Integers, norm: int) -> float:
    """The L1 or L2 norm of one table, (d,)."""
    total = 0.0
    for value in table:
        total += abs(value) if norm == 1 else float(value) * value
    return total if norm == 1 else math.sqrt(total)


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
        self._basis, self._numbers = np.ascontiguousarray(lattice.basis.toarray().T), lattice.dimension
        self._jump = jump_chains.compiled(INSTEAD) if compiled else jump_chains.reference

    @property
    def burn_in(self) -> int:
        """128 jumps a cell, see `JUMPS_PER_CELL`; of noise that is wider than jumps reach as many more as they need."""
        jumps = JUMPS_PER_CELL * self.lattice.records * max(1.0, (NARROW / self.epsilon) ** 2)
        if jumps > MOST_JUMPS:
            raise ValueError(f"at epsilon {self.epsilon:g} 'jumps' would take {jumps:.3g} of them: take 'auto'")
        return math.ceil(jumps)

    def _advance(self, states: Integers, iterations: int, rng: np.random.Generator) -> None:
        """As `advance`, of states (chains, d), all random numbers drawn at once."""
        shape = (states.shape[0], iterations, self._numbers)
        jumps = self._law.sample(math.prod(shape), rng).reshape(shape)
        self._jump(states, self._basis, jumps, rng.standard_exponential(shape[:2]), self.epsilon, self.norm)

    def advance_together(self, first: Integers, second: Integers, rng: np.random.Generator) -> None:
        """The paper's Algorithm 2, (pairs, d): proposals maximally coupled in every lattice coordinate, one cost."""
        pairs, rank = first.shape[0], self._numbers
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
        """Jumps of a second chain, `gap` ahead, (pairs, rank), which land where the first do as often as possible."""
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

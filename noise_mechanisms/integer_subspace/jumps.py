"""The jumps of the paper's Algorithm 1: in numpy for many chains at once, in the loop for one after the other."""

from __future__ import annotations

import math

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled
from noise_mechanisms.integer_subspace.guarantee import Norm


def norm_of(tables: Integers, norm: Norm) -> Float:
    """L1 or L2 norm of every table along the last axis."""
    if norm == 1:
        return np.asarray(abs(tables).sum(axis=-1, dtype=np.float64))
    return np.sqrt(np.square(tables.astype(np.float64)).sum(axis=-1))


def accept(states: Integers, proposals: Integers, costs: Float, epsilon: float, norm: Norm) -> None:
    """Put proposals in place of states where epsilon times the growth of the norm is at most the cost, (chains,)."""
    growth = norm_of(proposals, norm) - norm_of(states, norm)
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


@compiled(reference=jump_in_numpy)
def jump_chains(states: Integers, basis: Integers, jumps: Integers, costs: Float, epsilon: float, norm: int) -> None:
    """See `jump_in_numpy`."""
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
    """The L1 or L2 norm of one table."""
    total = 0.0
    for value in table:
        total += abs(value) if norm == 1 else float(value) * value
    return total if norm == 1 else math.sqrt(total)

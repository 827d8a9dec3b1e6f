"""Exact L2-norm Laplace noise of release grade on small lattices, by rejection from L1 noise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import bernoulli_exp_root, exact_scale
from noise_mechanisms.integer_subspace.jumps import norm_of
from noise_mechanisms.integer_subspace.sampler import RejectionSampler, Sampler, require_acceptance


def proposal_epsilon(epsilon: float, records: int) -> float:
    """The epsilon of L1 proposals: just below epsilon / sqrt(records), so that no rounding lifts it above."""
    return epsilon / math.sqrt(records) * (1 - 1e-12)


class L2RejectionSampler(RejectionSampler):
    """Noise with probabilities proportional to exp(-epsilon |z|), |z| being the L2 norm.

    Parameters
    ----------
    proposals : Sampler
        An exact sampler of the L1 law with `proposal_epsilon`, which has a release grade.
    epsilon : float
        Loss per unit of L2 distance.
    records : int
        Number of records d.

    Notes
    -----
    The L1 norm is at most sqrt(d) times the L2 norm. So L1 noise z with e <= epsilon / sqrt(d) is accepted with
    probability exp(e |z|_1 - epsilon |z|_2), about one try in ten on a 4 x 4 table and fewer by a quarter for every
    further dimension.
    """

    name: ClassVar[str] = "l1_proposals"
    exact: ClassVar[bool] = True

    def __init__(self, proposals: Sampler, epsilon: float, records: int) -> None:
        self.epsilon = positive_number(epsilon, "epsilon")
        self._proposals, self._records = proposals, records

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, NDArray[np.float64]]:
        proposals = self._proposals.sample(tries, rng)
        growth = proposal_epsilon(self.epsilon, self._records) * abs(proposals).sum(axis=1)
        return proposals, growth - self.epsilon * norm_of(proposals, 2)

    def release_sample(self) -> Integers:
        """See `Sampler.release_sample`."""
        require_acceptance(self.name, self.acceptance)
        step = 1 / Fraction(exact_scale(proposal_epsilon(self.epsilon, self._records)))
        while True:
            proposal = self._proposals.release_sample()
            growth = step * int(abs(proposal).sum())
            if bernoulli_exp_root(growth, Fraction(self.epsilon), sum(int(value) ** 2 for value in proposal)):
                return proposal

"""Exact noise by the L1 norm under nested sets: Laplace vectors of disjoint blocks whose sums are zero."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from constraint_builders.arrays import Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import LaplaceStream, bernoulli_exp, exact_scale
from noise_mechanisms.integer_subspace.lattice import block_members
from noise_mechanisms.integer_subspace.samplers import Sampler
from noise_mechanisms.laws.base_law import Seed
from noise_mechanisms.laws.law_classes import DiscreteLaplace

_LARGEST_TOTAL = 2.0**58


class BlockSampler(Sampler):
    """Noise with probabilities proportional to exp(-epsilon * L1 norm) under nested invariants.

    Parameters
    ----------
    blocks : ndarray of int, (d,)
        `Invariants.blocks` of nested sets: the block of every record, or -1.
    epsilon : float
        Loss per unit of L1 distance.

    Raises
    ------
    ValueError
        If two sets overlap without being nested.

    Notes
    -----
    Discrete Laplace noise is a difference of two geometric vectors, and a zero sum means that both have the same total
    m. So m has probabilities proportional to C(m + n - 1, m)^2 exp(-2 epsilon m), and given m both vectors are uniform
    among the ways to write m as n ordered parts. `sample` draws exactly that. `release_sample` draws all cells of
    a block but the last with OpenDP and accepts minus their sum as the last with probability exp(-epsilon |sum|).
    """

    name: ClassVar[str] = "blocks"
    exact: ClassVar[bool] = True

    def __init__(self, blocks: Integers | None, epsilon: float) -> None:
        if blocks is None:
            raise ValueError("the invariants overlap without being nested: the block sampler needs nested sets")
        self.epsilon, self._records = positive_number(epsilon, "epsilon"), blocks.size
        self._free, self._blocks = np.flatnonzero(blocks < 0), block_members(blocks)
        lengths = sorted({block.size for block in self._blocks})
        self._laws = {length: ZeroSumLaplace(length, self.epsilon) for length in lengths}
        self._cells = {n: np.concatenate([block for block in self._blocks if block.size == n]) for n in lengths}

    @cached_property
    def _stream(self) -> LaplaceStream:
        return LaplaceStream(exact_scale(self.epsilon))

    def sample(self, size: int, rng: Seed = None) -> Integers:
        """See `Sampler.sample`."""
        generator = np.random.default_rng(rng)
        noise = np.zeros((size, self._records), dtype=np.int64)
        if self._free.size:
            free = DiscreteLaplace(1 / self.epsilon).sample(size * self._free.size, generator)
            noise[:, self._free] = free.reshape(size, -1)
        for length, cells in self._cells.items():
            drawn = self._laws[length].sample(size * (cells.size // length), generator)
            noise[:, cells] = drawn.reshape(size, -1)
        return noise

    def release_sample(self) -> Integers:
        """See `Sampler.release_sample`."""
        noise = np.zeros(self._records, dtype=np.int64)
        noise[self._free] = self._stream.take(self._free.size)
        for block in self._blocks:
            noise[block] = self._laws[block.size].release_sample()
        return noise


def _log_choose(n: int, k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of binomial coefficients."""
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


@dataclass(frozen=True)
class ZeroSumLaplace:
    """Vectors of whole numbers with sum zero and probabilities proportional to exp(-epsilon * L1 norm).

    Parameters
    ----------
    length : int
        Number n of entries.
    epsilon : float
        Positive.

    Notes
    -----
    Drawn as the difference of two geometric vectors; see `BlockSampler`. The generating function of their common total
    m is 2F1(n, n; 1; r z) with r = exp(-2 epsilon), up to a constant. Euler's transformation makes of it (1 - r z)^(1 -
    2n) times the polynomial sum over k of C(n - 1, k)^2 (r z)^k: m is k plus an independent negative binomial variable.
    """

    length: int
    epsilon: float

    @cached_property
    def shift_law(self) -> NDArray[np.float64]:
        """Probabilities of k = 0, ..., n - 1, proportional to C(n - 1, k)^2 exp(-2 epsilon k); see the notes."""
        k = np.arange(self.length, dtype=np.float64)
        log_weight = 2 * (_log_choose(self.length - 1, k) - self.epsilon * k)
        weight = np.exp(log_weight - log_weight.max())
        return np.asarray(weight / weight.sum())

    @cached_property
    def _stream(self) -> LaplaceStream:
        return LaplaceStream(exact_scale(self.epsilon))

    @property
    def variance(self) -> float:
        """Variance of one entry, exact up to rounding.

        Given m the entries of either geometric vector have variance m (m + n) (n - 1) / (n^2 (n + 1)). By Euler's
        transformation again, with r = exp(-2 epsilon), the mean of m (m + n) is n^2 (n + 1) r / (1 - r)^2 times the
        quotient of the sums over k of C(n - 1, k) C(n, k) r^k / (k + 1) and of C(n - 1, k)^2 r^k.
        """
        k = np.arange(self.length, dtype=np.float64)
        quotient = float(self.shift_law @ (self.length / ((self.length - k) * (k + 1))))
        return 2 * (self.length - 1) * quotient * math.exp(-2 * self.epsilon) / math.expm1(-2 * self.epsilon) ** 2

    def sample(self, count: int, rng: np.random.Generator) -> Integers:
        """Draw (count, n) in floating point."""
        if self.length / self.epsilon > _LARGEST_TOTAL:
            raise ValueError(
                f"epsilon is {self.epsilon:g}: zero-sum noise of {self.length:,} records leaves 64 bits, give more"
            )
        totals = rng.choice(self.length, size=count, p=self.shift_law)
        totals += rng.negative_binomial(2 * self.length - 1, -math.expm1(-2 * self.epsilon), size=count)
        return self._compositions(totals, rng) - self._compositions(totals, rng)

    def _compositions(self, totals: Integers, rng: np.random.Generator) -> Integers:
        """Every way to write a total as n ordered parts equally likely: multinomial, with uniform shares."""
        shares = rng.standard_exponential((totals.size, self.length))
        shares /= shares.sum(axis=1, keepdims=True)
        return rng.multinomial(totals, shares)

    def release_sample(self) -> Integers:
        """Draw (n,) of release grade; epsilon is rounded down until 1 / epsilon is a float64.

        About one try in sqrt(n) is accepted, a few times fewer for small epsilon.
        """
        if self.length == 1:
            return np.zeros(1, dtype=np.int64)
        step = 1 / Fraction(exact_scale(self.epsilon))
        while True:
            free = self._stream.take(self.length - 1)
            last = -int(free.sum())
            if bernoulli_exp(abs(last) * step):
                return np.append(free, last)

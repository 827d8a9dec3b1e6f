"""Exact noise by the L1 norm: disjoint blocks whose sums are zero, and records that follow from such blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number, random_generator
from noise_mechanisms.integer_subspace.exact_decisions import LaplaceStream, bernoulli_exp, exact_scale
from noise_mechanisms.integer_subspace.invariants import Invariants, two_way_shape
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members
from noise_mechanisms.integer_subspace.samplers import RejectionSampler, Sampler
from noise_mechanisms.laws.base_law import Seed
from noise_mechanisms.laws.law_classes import DiscreteLaplace

_LARGEST_TOTAL = 2.0**58
_LARGEST_ENTRY = 2**31


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
        generator = random_generator(rng)
        noise = np.zeros((size, self._records), dtype=np.int64)
        if self._free.size:
            free = DiscreteLaplace(1 / self.epsilon).sample(size * self._free.size, generator)
            noise[:, self._free] = free.reshape(size, -1)
        for length, cells in self._cells.items():
            noise[:, cells] = self._laws[length].sample(size * (cells.size // length), generator).reshape(size, -1)
        return noise

    def release_sample(self) -> Integers:
        """See `Sampler.release_sample`."""
        noise = np.zeros(self._records, dtype=np.int64)
        noise[self._free] = self._stream.take(self._free.size)
        for block in self._blocks:
            noise[block] = self._laws[block.size].release_sample()
        return noise


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
        log_weight = -2 * (gammaln(k + 1) + gammaln(self.length - k) + self.epsilon * k)
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
        """Every way to write totals, (count,), as n ordered parts, (count, n), equally likely: by uniform shares."""
        shares = rng.standard_exponential((totals.size, self.length))
        shares /= shares.sum(axis=1, keepdims=True)
        return rng.multinomial(totals, shares)

    def release_sample(self) -> Integers:
        """Draw (n,) of release grade; epsilon is rounded down until 1 / epsilon is a float64.

        About one try in sqrt(n) is accepted, a few times fewer for small epsilon.
        """
        step = 1 / Fraction(exact_scale(self.epsilon))
        while True:
            free = self._stream.take(self.length - 1)
            last = -int(free.sum())
            if bernoulli_exp(abs(last) * step):
                return np.append(free, last)


class FollowingSampler(RejectionSampler):
    """L1 noise on a lattice where some records follow, in whole numbers, from others that are in disjoint blocks.

    The others are drawn by `BlockSampler`, and the result z is accepted with probability
    exp(-epsilon (|z| - weight * their L1 norm)).

    Parameters
    ----------
    follow : csr_array of int64, (d, n)
        All records from the n others, which are among them.
    blocks : ndarray of int, (n,)
        The block of each of the others, or -1.
    epsilon : float
        Loss per unit of L1 distance.
    weight : int
        By how much |z| is, at least, more than the norm of the others.
    """

    def __init__(self, follow: sparse.csr_array, blocks: Integers, epsilon: float, weight: int = 1) -> None:
        self.epsilon, self._weight = positive_number(epsilon, "epsilon"), weight
        self._follow, self._records = follow, int(follow.shape[0])
        self._others = BlockSampler(blocks, weight * self.epsilon)

    def _attempt(self, tries: int, rng: np.random.Generator) -> tuple[Integers, Float]:
        others = self._others.sample(tries, rng)
        tables = np.asarray((self._follow @ others.T).T)
        return tables, -self.epsilon * (abs(tables).sum(axis=1) - self._weight * abs(others).sum(axis=1))

    def _release_attempt(self) -> Integers | None:
        others = self._others.release_sample()
        table = np.asarray(self._follow @ others)
        growth = int(abs(table).sum()) - self._weight * int(abs(others).sum())
        return table if bernoulli_exp(growth / Fraction(exact_scale(self.epsilon))) else None


class RowSampler(FollowingSampler):
    """L1 noise on a two-way table with both margins fixed.

    Parameters
    ----------
    invariants : Invariants
        Both one-way margins of a table with two axes of more than one level, and nothing more.
    epsilon : float
        Loss per unit of L1 distance.

    Raises
    ------
    ValueError
        If the invariants are others.

    Notes
    -----
    All rows but one are exact zero-sum blocks, the last is minus their sum, accepted with probability
    exp(-epsilon * its L1 norm); rows run along the shorter axis, which accepts more. Tries for one draw, almost
    whatever epsilon below 1/4: 7 (3 x 3), 30 (4 x 4), 170 (5 x 5), 1,000 (6 x 6), 50,000 (8 x 8). A table with an axis
    of two levels needs none: its second row mirrors the first, a zero-sum block at twice epsilon.
    """

    name: ClassVar[str] = "rows"

    def __init__(self, invariants: Invariants, epsilon: float) -> None:
        shape = two_way_shape(invariants)
        if shape is None:
            raise ValueError(f"{invariants} are not the two margins of a two-way table: the row sampler needs these")
        place = np.arange(shape[0] * shape[1]).reshape(shape)
        mirrored = min(shape) == 2
        if (shape[0] < shape[1]) != mirrored:
            place = place.T
        others, last = place[:-1].ravel(), np.tile(place[-1], place.shape[0] - 1)
        cells, columns = np.concatenate([others, last]), np.tile(np.arange(others.size), 2)
        follow = sparse.csr_array((np.repeat([1, -1], others.size), (cells, columns)), shape=(place.size, others.size))
        super().__init__(follow, np.repeat(np.arange(place.shape[0] - 1), place.shape[1]), epsilon, 1 + mirrored)

    @cached_property
    def acceptance(self) -> float:
        """1 where an axis has two levels."""
        return 1.0 if self._weight == 2 else super().acceptance


class FreeCellSampler(FollowingSampler):
    """L1 noise on any small lattice with cells that follow from the others in whole numbers.

    Parameters
    ----------
    lattice : Lattice
        Where the noise lives.
    epsilon : float
        Loss per unit of L1 distance.

    Raises
    ------
    ValueError
        If no such cells are found.

    Notes
    -----
    The free cells are independent discrete Laplace values, and the result is accepted with probability
    exp(-epsilon * L1 norm of the cells that follow). Three intersecting sets over 14 records take about 67 tries. By
    `RowSampler` a two-way table takes 0.4 (4 x 4) to 0.12 (5 x 5) of the time.
    """

    name: ClassVar[str] = "free_cells"

    def __init__(self, lattice: Lattice, epsilon: float) -> None:
        basis = _identity_on_free_cells(lattice)
        super().__init__(sparse.csr_array(basis), np.full(basis.shape[1], -1), epsilon)


def _identity_on_free_cells(lattice: Lattice) -> Integers:
    """Column-reduce the basis with pivots of 1 and -1 only, until it is the identity on one cell for every column."""
    basis = lattice.basis.toarray()
    waiting = np.ones(basis.shape[1], dtype=bool)
    taken = np.zeros(basis.shape[0], dtype=bool)
    for _ in range(basis.shape[1]):
        rows, columns = np.nonzero((abs(basis) == 1) & waiting & ~taken[:, None])
        if not rows.size or abs(basis).max() > _LARGEST_ENTRY:
            raise ValueError(f"{lattice.invariants} leave no free cells from which the others follow in whole numbers")
        fill = np.count_nonzero(basis, axis=0)[columns] * np.count_nonzero(basis, axis=1)[rows]
        row, column = rows[fill.argmin()], columns[fill.argmin()]
        basis[:, column] *= basis[row, column]
        others = np.flatnonzero(basis[row])
        others = others[others != column]
        basis[:, others] -= np.outer(basis[:, column], basis[row, others])
        waiting[column], taken[row] = False, True
    return basis

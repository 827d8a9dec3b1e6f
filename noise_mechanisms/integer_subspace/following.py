"""Exact noise by the L1 norm where some records follow from others: the last row of a table, or cells of a basis."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Integers
from constraint_builders.description.reals import positive_number
from noise_mechanisms.integer_subspace.exact_decisions import bernoulli_exp, exact_scale
from noise_mechanisms.integer_subspace.invariants import Invariants, two_way_shape
from noise_mechanisms.integer_subspace.lattice import Lattice
from noise_mechanisms.integer_subspace.samplers import RejectionSampler
from noise_mechanisms.integer_subspace.zero_sum import BlockSampler

_LARGEST_ENTRY = 2**31


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

    exact: ClassVar[bool] = True

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
    exp(-epsilon * L1 norm of the cells that follow). Three intersecting sets over 14 records take about 67 tries.
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

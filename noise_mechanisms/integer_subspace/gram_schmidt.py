"""Exact Gram-Schmidt forms of lattice bases: in closed form for margins and nested sets, by elimination otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from math import lcm

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from constraint_builders.memory import require_memory
from noise_mechanisms.integer_subspace.invariants import Margins
from noise_mechanisms.integer_subspace.lattice import Lattice, block_members

_LARGEST_GENERAL = 200  # dimension: rational elimination takes some seconds there


@dataclass(frozen=True)
class GramSchmidt:
    """The basis vectors b_j as sums of mutually orthogonal ones: b_j = b*_j + sum over i < j of mu_ij b*_i.

    Attributes
    ----------
    numerators : ndarray of int64 or Python integers, (n, n)
        mu_ij times the denominator of row i; upper triangular.
    denominators : ndarray of the same, (n,)
    squared_norms : list of Fraction, n
        |b*_i|^2.
    """

    numerators: NDArray
    denominators: NDArray
    squared_norms: list[Fraction]

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """The coefficients mu in float64, (n, n)."""
        return (self.numerators / self.denominators[:, None]).astype(np.float64)

    @cached_property
    def fronts(self) -> list[NDArray[np.intp]]:
        """The vectors in groups, last ones first: mu_ij with i in a group is nonzero for j = i and earlier groups only.

        On the margins of an a x b table there are a + b - 3 groups, its anti-diagonals, for (a - 1) (b - 1) vectors.
        """
        depth = np.zeros(self.denominators.size, dtype=np.intp)
        for i in reversed(range(depth.size)):
            later = np.flatnonzero(self.numerators[i, i + 1 :])
            depth[i] = 1 + depth[i + 1 + later].max(initial=-1)
        return [np.flatnonzero(depth == level) for level in range(depth.max(initial=-1) + 1)]

    @cached_property
    def norms(self) -> NDArray[np.float64]:
        """|b*_i| in float64, (n,)."""
        return np.sqrt(np.array([float(norm) for norm in self.squared_norms]))


def gram_schmidt(lattice: Lattice) -> GramSchmidt:
    """Orthogonalise `Lattice.basis` exactly: closed form for margins and nested sets, rational elimination otherwise.

    Raises
    ------
    MemoryError
        If the (n, n) coefficients would not fit.
    ValueError
        If the lattice has no closed form and more than 200 dimensions.
    """
    size = lattice.dimension
    require_memory(24.0 * size**2, f"the Gram-Schmidt form of a lattice of dimension {size:,}", "use the L1 norm")
    if lattice.invariants.margins is not None:
        leading = lattice.basis.indices[lattice.basis.indptr[1:] - 1]  # cells whose levels are those of the columns
        return _of_margins(lattice.invariants.margins, leading.astype(np.int64))
    if lattice.invariants.blocks is not None:
        return _of_blocks(lattice.invariants.blocks)
    if size > _LARGEST_GENERAL:
        raise ValueError(
            f"the exact Gram-Schmidt form of a general lattice is limited to dimension {_LARGEST_GENERAL}: it has "
            f"{size}; use full margins or nested sets, or the L1 norm"
        )
    return _of_gram_matrix((lattice.basis.T @ lattice.basis).toarray())


def _of_margins(margins: Margins, cells: NDArray[np.int64]) -> GramSchmidt:
    """Tensor products of the form along each axis, of vectors by their cells, (n,).

    Along an axis order the vectors as e_1 - e_0, e_2 - e_0, ..., and e_0 last. Then b*_a is e_a minus the mean of
    e_0, ..., e_(a-1), of squared norm (a + 1) / a, and b*_0 the mean of all, of squared norm 1 / n. In the columns'
    order, large sets of axes first, the orthogonal vectors are tensor products of these: a set of axes comes after all
    sets that contain it, and the mean is orthogonal to every e_a - e_0.
    """
    levels = np.unravel_index(cells, margins.shape) if cells.size else [cells] * len(margins.shape)
    numerators = np.ones((cells.size, cells.size), dtype=np.int64)
    denominators = np.ones(cells.size, dtype=np.int64)
    squared_norms = [Fraction(1)] * cells.size
    for level, length in zip(levels, margins.shape, strict=True):
        along, below = _axis_form(length)
        numerators *= along[np.ix_(level, level)]
        denominators *= below[level]
        norms = [Fraction(1, length), *(Fraction(a + 1, a) for a in range(1, length))]
        squared_norms = [norm * norms[a] for norm, a in zip(squared_norms, level, strict=True)]
    return GramSchmidt(numerators, denominators, squared_norms)


def _axis_form(length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Along one axis mu_ab (a + 1) for levels a, b with e_0 in place of e_0 - e_0, and the denominators a + 1."""
    numerators = np.triu(np.ones((length, length), dtype=np.int64), 1) + np.diag(np.arange(1, length + 1))
    numerators[1:, 0] = -1
    numerators[0, 1:] = 0
    return numerators, np.arange(1, length + 1)


def _of_blocks(blocks: NDArray[np.int64]) -> GramSchmidt:
    """The form along one axis for each block of records, (d,), and a vector of its own for each free one."""
    forms = [_axis_form(part.size) for part in block_members(blocks)]
    free = int(np.count_nonzero(blocks < 0))
    numerators = linalg.block_diag(*(along[1:, 1:] for along, _ in forms), np.eye(free, dtype=np.int64))
    denominators = np.concatenate([*(below[1:] for _, below in forms), np.ones(free, dtype=np.int64)])
    squared_norms = [Fraction(int(n), int(n) - 1) if n > 1 else Fraction(1) for n in denominators]
    return GramSchmidt(numerators, denominators, squared_norms)


def _of_gram_matrix(gram: NDArray) -> GramSchmidt:
    """L D L' of the Gram matrix, (n, n), in rationals: D holds the squared norms, L' the coefficients."""
    size = gram.shape[0]
    rest = np.array([[Fraction(int(value)) for value in row] for row in gram], dtype=object).reshape(size, size)
    coefficients = rest.copy()
    for i in range(size):
        coefficients[i] = rest[i] / rest[i, i]
        rest[i + 1 :, i + 1 :] -= np.outer(coefficients[i, i + 1 :], rest[i, i + 1 :])
    denominators = [reduce(lcm, (mu.denominator for mu in coefficients[i, i:])) for i in range(size)]
    numerators = np.zeros((size, size), dtype=object)
    for i in range(size):
        numerators[i, i:] = [int(mu * denominators[i]) for mu in coefficients[i, i:]]
    return GramSchmidt(numerators, np.array(denominators, dtype=object), [rest[i, i] for i in range(size)])

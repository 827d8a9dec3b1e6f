"""What columns u take of the inverse of a sparse N, u' N^-1 u: by selected entries, or of a small matrix by all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, lapack

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations import kernels
from blue_solvers.normal_equations.factorisation import INDEFINITE, entry_keys, factorise
from blue_solvers.normal_equations.kernels import Gather
from blue_solvers.normal_equations.selected_inverse import INSTEAD, Supernodes, sweep
from constraint_builders.arrays import Float, Integers
from constraint_builders.memory import require_memory

CUBES = 3e10  # of the rank that are inverted in a second
PRODUCTS = 4e9  # of an entry and a number of the inverse's row
PAIRS = 2e7  # of entries in a column, that selected inversion finds
MOST_BYTES = 2.0**28  # of the products of some columns with the inverse
PAIR_BYTES = 64  # of a pair of rows: itself, its value, and their sorted copies
MOST_PAIR_BYTES = 2.0**31  # of pairs at once


@dataclass(frozen=True)
class DenseFactor:
    """A small symmetric positive definite matrix N by its lower Cholesky factor, (n, n)."""

    lower: Float
    label = "LAPACK"

    @classmethod
    def of(cls, matrix: sparse.csr_array) -> DenseFactor:
        """Factorise.

        Raises
        ------
        UnsupportedProblemError
            If the matrix is not positive definite.
        """
        lower, info = lapack.dpotrf(matrix.toarray(order="F"), lower=1, overwrite_a=1)
        if info:
            raise UnsupportedProblemError(INDEFINITE)
        return cls(lower)

    def solve(self, R: Float) -> Float:
        """N^-1 R for (n, K)."""
        return cho_solve((self.lower, True), R)

    @cached_property
    def inverse(self) -> Float:
        """N^-1, (n, n)."""
        lower = np.tril(lapack.dpotri(self.lower, lower=1)[0])
        inverse = lower + lower.T
        inverse[np.diag_indices_from(inverse)] /= 2
        return inverse

    def squares(self, U: sparse.csc_array) -> Float:
        """U' N^-1 u of every column u."""
        rows = sparse.csr_array(U.T)
        found = np.empty(U.shape[1])
        width = max(1, int(MOST_BYTES / (8 * max(1, U.shape[0]))))
        for start in range(0, U.shape[1], width):
            own = rows[start : start + width]
            products = own @ self.inverse
            of_row = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
            terms = products[of_row, own.indices] * own.data
            found[start : start + width] = np.bincount(of_row, terms, minlength=own.shape[0])
        return found


def factor_and_squares(
    N: sparse.csr_array, U: sparse.csc_array, gather: Gather | None
) -> tuple[DenseFactor | SparseFactor, Float]:
    """A factor of N, (n, n), and u' N^-1 u of every column u, by all of the inverse where that is less.

    Given a form of `kernels.gather`, by its entries alone.

    Raises
    ------
    MemoryError
        If it would not fit.
    """
    if gather is None and is_cheaper_dense(U):
        needed = 4 * 8.0 * U.shape[0] ** 2 + min(MOST_BYTES, 8.0 * U.shape[0] * U.shape[1])
        require_memory(needed, _what(U), INSTEAD)
        dense = DenseFactor.of(N)
        return dense, dense.squares(U)
    factor = SparseFactor.of(_with_pairs_of(U, N))
    return factor, factor.squares(U, gather or kernels.gather.fastest())


def _what(U: sparse.csc_array) -> str:
    return f"selected inversion for {U.shape[1]:,} cells in {U.shape[0]:,} equations"


def is_cheaper_dense(U: sparse.csc_array) -> bool:
    """Whether the whole inverse takes less than its entries between all entries of every column of U."""
    size, counts = float(U.shape[0]), np.diff(U.indptr).astype(float)
    return size**3 / CUBES + U.nnz * size / PRODUCTS < float((counts**2).sum()) / 2 / PAIRS


@dataclass(frozen=True)
class SparseFactor:
    """L L' = N[order][:, order].

    Attributes
    ----------
    L : csc_matrix, (n, n)
        Lower triangular with sorted rows; its pattern is closed under elimination.
    order : ndarray, (n,)
    solve : callable
        N^-1 R for (n, K).
    label : str
    """

    L: sparse.csc_matrix
    order: Integers
    solve: Callable[[Float], Float]
    label: str

    @classmethod
    def of(cls, matrix: sparse.csr_array | sparse.csc_array) -> SparseFactor:
        """Factorise.

        Raises
        ------
        UnsupportedProblemError
            If the matrix is not positive definite.
        MemoryError
            If the factor does not fit.
        """
        factor = factorise(matrix, INSTEAD, shown=True)
        return cls(*factor.triangle(), factor.solve, factor.label)

    def inverse_entries(self, rows: Integers, columns: Integers, gather: Gather) -> Float:
        """Entries of N^-1 at places on the pattern of the factor.

        Parameters
        ----------
        rows, columns : ndarray, (K,)
            In the numbering of N, in any order.
        gather : callable
            A form of `kernels.gather`.

        Raises
        ------
        ValueError
            If a place is off the pattern.
        MemoryError
            If the fronts of two levels would not fit.
        """
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(self.order.size)
        low, high = rank[rows], rank[columns]
        low, high = np.minimum(low, high), np.maximum(low, high)
        nodes = Supernodes.of_factor(self.L)
        node = nodes.of_column[low]
        first, second = low - nodes.starts[node], nodes.positions(node, high)
        if second.size and second.min() < 0:
            place = int(second.argmin())
            raise ValueError(
                f"entry ({rows[place]}, {columns[place]}) of the inverse is off the factor's pattern: "
                "give the matrix an explicit zero there before factorising"
            )
        return sweep(self.L, nodes, node, first * nodes.lengths[node] + second, gather)

    def squares(self, U: sparse.csc_array, gather: Gather) -> Float:
        """U' N^-1 u of every column u, all pairs of whose entries lie on the pattern."""
        return np.concatenate([self._squares(sparse.csc_array(U[:, own]), gather) for own in _columns_at_once(U)])

    def _squares(self, U: sparse.csc_array, gather: Gather) -> Float:
        first, second = _pairs(U)
        rows, columns = U.indices[first].astype(np.int64), U.indices[second].astype(np.int64)
        terms = self.inverse_entries(rows, columns, gather) * U.data[first] * U.data[second]
        terms[first != second] *= 2
        of_pair = np.repeat(np.arange(U.shape[1]), np.diff(U.indptr))[first]
        return np.bincount(of_pair, terms, minlength=U.shape[1]).astype(np.float64)


def _pair_counts(U: sparse.csc_array) -> Integers:
    counts = np.diff(U.indptr).astype(np.int64)
    return counts * (counts + 1) // 2


def _columns_at_once(U: sparse.csc_array) -> list[slice]:
    """Runs of columns whose pairs fit in memory together; every run takes a sweep over the factor."""
    pairs = np.cumsum(_pair_counts(U))
    runs = max(1, int(np.ceil(PAIR_BYTES * float(pairs[-1]) / MOST_PAIR_BYTES))) if pairs.size else 1
    stops = np.searchsorted(pairs, pairs[-1] * np.arange(1, runs + 1) / runs) + 1 if pairs.size else np.zeros(1, int)
    stops[-1] = U.shape[1]
    return [slice(*pair) for pair in pairwise([0, *stops.tolist()]) if pair[0] < pair[1]]


def _pairs(U: sparse.csc_array) -> tuple[Integers, Integers]:
    """Positions in `U.data` of all unordered pairs of entries in one column, an entry with itself included."""
    counts = np.diff(U.indptr).astype(np.int64)
    require_memory(PAIR_BYTES * float(_pair_counts(U).sum()), _what(U), INSTEAD)
    ends = np.repeat(U.indptr[1:], counts)
    partners = ends - np.arange(U.nnz)
    first = np.repeat(np.arange(U.nnz), partners)
    offsets = np.cumsum(partners) - partners
    return first, np.arange(first.size) - np.repeat(offsets, partners) + first


def _with_pairs_of(U: sparse.csc_array, N: sparse.csr_array) -> sparse.csc_array:
    """N with explicit zeros for all pairs of entries in one column of U where it has no entry."""
    size = N.shape[0]
    ones = sparse.csr_array((np.ones(U.nnz), U.indices, U.indptr), shape=U.shape[::-1])
    pattern = sparse.csr_array(ones.T @ ones + sparse.csr_array((np.ones(N.nnz), N.indices, N.indptr), shape=N.shape))
    pattern.sort_indices()
    pattern.data[:] = 0
    pattern.data[np.searchsorted(entry_keys(pattern), entry_keys(N))] = N.data
    return sparse.csc_array((pattern.data, pattern.indices, pattern.indptr), shape=(size, size))


def inverse_on_pattern(matrix: sparse.csr_array, gather: Gather | None = None) -> sparse.csc_array:
    """Entries of the inverse of a sparse symmetric positive definite matrix on the pattern of the matrix.

    Parameters
    ----------
    matrix : sparse array, (n, n)
        Explicit zeros count as part of the pattern.
    gather : callable, optional
        A form of `kernels.gather`, by default the fastest that is installed.

    Returns
    -------
    csc_array, (n, n)

    Raises
    ------
    ValueError
        If the matrix is not positive definite.
    MemoryError
        If it would not fit: 16 bytes for every entry of the factor, 8 for every entry of the fronts of two levels of
        the supernodal tree, 64 for every entry of the matrix.
    """
    pattern = sparse.csc_array(matrix, dtype=np.float64)
    pattern.sum_duplicates()
    columns = np.repeat(np.arange(pattern.shape[1]), np.diff(pattern.indptr))
    factor = SparseFactor.of(pattern)
    entries = factor.inverse_entries(pattern.indices.astype(np.int64), columns, gather or kernels.gather.fastest())
    return sparse.csc_array((entries, pattern.indices, pattern.indptr), shape=pattern.shape)

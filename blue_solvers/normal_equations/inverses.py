"""What columns u take of the inverse of a sparse N, u' N^-1 u: by selected entries, or of a small matrix by all.

Selected are those on the pattern of its Cholesky factor (`blue_solvers.selected_inverse`). Every exact variance of an
estimate is then a few of these entries,

    Var(t'x) = t' Sigma t - u' (A Sigma A')^-1 u,    u = A Sigma t.

For a cell with noise of its own u is a column of A, and its entries lie on the pattern of A Sigma A'. For a sum of
cells or correlated noise they may not: such pairs are added to the pattern before it is factorised.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, lapack

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations.factorisation import INDEFINITE, Factor, FactorSolver, entry_keys, factorise
from blue_solvers.normal_equations.noisy_equations import Equations
from blue_solvers.selected_inverse import INSTEAD, SelectedInverse
from constraint_builders.arrays import Float
from constraint_builders.memory import require_memory

CUBES = 3e10  # of the rank that are inverted in a second
PRODUCTS = 4e9  # of an entry and a number of the inverse's row
PAIRS = 2e7  # of entries in a column, that selected inversion finds
MOST_BYTES = 2.0**28  # of the products of some columns with the inverse
PAIR_BYTES = 64  # of a pair of rows: itself, its value, and their sorted copies
MOST_PAIRS = 2**25  # at once


class DenseFactor:
    """A small symmetric positive definite matrix N by its lower Cholesky factor, (n, n).

    Raises
    ------
    UnsupportedProblemError
        If the matrix is not positive definite.
    """

    label = "LAPACK"

    def __init__(self, matrix: sparse.csr_array) -> None:
        self.lower, info = lapack.dpotrf(matrix.toarray(order="F"), lower=1, overwrite_a=1)
        if info:
            raise UnsupportedProblemError(INDEFINITE)

    def solve(self, R: Float) -> Float:
        """N^-1 R for (n, K)."""
        return cho_solve((self.lower, True), R)

    def squares(self, U: sparse.csc_array) -> Float:
        """Of every column u of U the square u' N^-1 u, (K,)."""
        lower = np.tril(lapack.dpotri(self.lower, lower=1)[0])
        inverse = lower + np.tril(lower, -1).T
        rows, found = sparse.csr_array(U.T), np.empty(U.shape[1])
        width = max(1, int(MOST_BYTES / (8 * max(1, U.shape[0]))))
        for start in range(0, U.shape[1], width):
            own = rows[start : start + width]
            of_row = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
            terms = (own @ inverse)[of_row, own.indices] * own.data
            found[start : start + width] = np.bincount(of_row, terms, minlength=own.shape[0])
        return found


def dense_solver(equations: Equations) -> FactorSolver:
    """Of few independent equations, by one dense factorisation; see `sparse_solver`."""
    return FactorSolver(equations, DenseFactor(equations.normal_matrix()).solve, DenseFactor.label)


def factor_and_squares(N: sparse.csr_array, U: sparse.csc_array) -> tuple[DenseFactor | Factor, Float]:
    """A factor of N, (n, n), and u' N^-1 u of every column u, by all of the inverse where that is less.

    Raises
    ------
    UnsupportedProblemError
        If the matrix is not positive definite.
    MemoryError
        If it would not fit.
    """
    pairs = np.diff(U.indptr).astype(np.int64) * (np.diff(U.indptr) + 1) // 2
    what = f"selected inversion for {U.shape[1]:,} cells in {U.shape[0]:,} equations"
    if is_cheaper_dense(U):
        require_memory(4 * 8.0 * U.shape[0] ** 2 + min(MOST_BYTES, 8.0 * U.shape[0] * U.shape[1]), what, INSTEAD)
        dense = DenseFactor(N)
        return dense, dense.squares(U)
    require_memory(PAIR_BYTES * float(min(pairs.sum(), pairs.max(initial=0) + MOST_PAIRS)), what, INSTEAD)
    factor = factorise(_with_pairs_of(U, N), INSTEAD)
    inverse = SelectedInverse(*factor.triangle())
    run = pairs.cumsum() // MOST_PAIRS
    parts = np.split(np.arange(U.shape[1]), np.flatnonzero(np.diff(run)) + 1)
    return factor, np.concatenate([_squares(sparse.csc_array(U[:, part]), inverse) for part in parts])


def is_cheaper_dense(U: sparse.csc_array) -> bool:
    """Whether the whole inverse takes less than its entries between all entries of every column of U, (rows, K)."""
    size, counts = float(U.shape[0]), np.diff(U.indptr).astype(float)
    return size**3 / CUBES + U.nnz * size / PRODUCTS < float((counts**2).sum()) / 2 / PAIRS


def _squares(U: sparse.csc_array, inverse: SelectedInverse) -> Float:
    """Of every column u the square u' N^-1 u, (K,), by all unordered pairs of entries in it, itself included."""
    partners = np.repeat(U.indptr[1:], np.diff(U.indptr)).astype(np.intp) - np.arange(U.nnz)
    first = np.repeat(np.arange(U.nnz), partners)
    second = np.arange(first.size) - np.repeat(partners.cumsum() - partners, partners) + first
    terms = inverse.at(U.indices[first], U.indices[second]) * U.data[first] * U.data[second]
    terms[first != second] *= 2
    of_pair = np.repeat(np.arange(U.shape[1]), np.diff(U.indptr))[first]
    return np.bincount(of_pair, terms, minlength=U.shape[1]).astype(np.float64)


def _with_pairs_of(U: sparse.csc_array, N: sparse.csr_array) -> sparse.csc_array:
    """N, (rows, rows), with explicit zeros for all pairs of entries in one column of U where it has no entry."""
    ones = sparse.csr_array((np.ones(U.nnz), U.indices, U.indptr), shape=U.shape[::-1])
    pattern = sparse.csr_array(ones.T @ ones + sparse.csr_array((np.ones(N.nnz), N.indices, N.indptr), shape=N.shape))
    pattern.sort_indices()
    pattern.data[:] = 0
    pattern.data[np.searchsorted(entry_keys(pattern), entry_keys(N))] = N.data
    return sparse.csc_array((pattern.data, pattern.indices, pattern.indptr), shape=N.shape)


def inverse_on_pattern(matrix: sparse.csr_array) -> sparse.csc_array:
    """Entries of the inverse of a sparse symmetric positive definite matrix on the pattern of the matrix.

    Parameters
    ----------
    matrix : sparse array, (n, n)
        Explicit zeros count as part of the pattern.

    Returns
    -------
    csc_array, (n, n)

    Raises
    ------
    ValueError
        If the matrix is not positive definite.
    MemoryError
        If it would not fit: 24 bytes for every entry of the factor, 8 for every entry of the fronts that are needed at
        once, 64 for every entry of the matrix.
    """
    pattern = sparse.csc_array(matrix, dtype=np.float64)
    pattern.sum_duplicates()
    entries = SelectedInverse(*factorise(pattern, INSTEAD).triangle()).at(pattern.indices, pattern.tocoo().col)
    return sparse.csc_array((entries, pattern.indices, pattern.indptr), shape=pattern.shape)

"""The whole inverse of a small matrix, where more of its entries are needed than a sparse factor has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_solve, lapack

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations.factorisation import INDEFINITE
from constraint_builders.arrays import Float

CUBES = 3e10  # of the rank that are inverted in a second
PRODUCTS = 4e9  # of an entry and a number of the inverse's row
PAIRS = 2e7  # of entries in a column, that selected inversion finds
MOST_BYTES = 2.0**28  # of the products of some columns with the inverse


@dataclass(frozen=True)
class DenseFactor:
    """A symmetric positive definite matrix, inverted.

    Attributes
    ----------
    inverse : ndarray, (n, n)
    solve : callable
        N^-1 R for (n, K).
    """

    inverse: Float
    solve: Callable[[Float], Float]

    @classmethod
    def of(cls, matrix: sparse.csr_array) -> DenseFactor:
        """Factorise and invert.

        Raises
        ------
        UnsupportedProblemError
            If the matrix is not positive definite.
        """
        factor, info = lapack.dpotrf(matrix.toarray(order="F"), lower=1, overwrite_a=1)
        if info:
            raise UnsupportedProblemError(INDEFINITE)
        lower = np.tril(lapack.dpotri(factor, lower=1)[0])
        inverse = lower + lower.T
        inverse[np.diag_indices_from(inverse)] /= 2
        return cls(inverse, lambda R: cho_solve((factor, True), R))

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


def is_cheaper_dense(U: sparse.csc_array) -> bool:
    """Whether the whole inverse takes less than its entries between all entries of every column of U."""
    size, counts = float(U.shape[0]), np.diff(U.indptr).astype(float)
    return size**3 / CUBES + U.nnz * size / PRODUCTS < float((counts**2).sum()) / 2 / PAIRS


def bytes_dense(U: sparse.csc_array) -> float:
    """What the whole inverse takes, and the products of some columns of U with it."""
    return 4 * 8.0 * U.shape[0] ** 2 + min(MOST_BYTES, 8.0 * U.shape[0] * U.shape[1])

"""Sparse factors whose pattern selected inversion can walk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations import kernels
from blue_solvers.normal_equations.factorisation import INDEFINITE, cholmod_gives_triangles, triangle_by_cholmod
from blue_solvers.normal_equations.kernels import Gather
from blue_solvers.normal_equations.selected_inverse import sweep
from blue_solvers.normal_equations.supernodes import Supernodes
from constraint_builders.arrays import Float, Integers

INSTEAD = "use P.variances() with solver='cg', Monte Carlo intervals, or estimate_variances"


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
    """

    L: sparse.csc_matrix
    order: Integers
    solve: Callable[[Float], Float]

    @classmethod
    def of(cls, matrix: sparse.csc_array) -> SparseFactor:
        """Factorise by CHOLMOD, or where scikit-sparse 0.4 is missing by SuperLU.

        Raises
        ------
        ValueError
            If the matrix is not positive definite.
        MemoryError
            If the factor does not fit.
        """
        return _by_cholmod(matrix) if cholmod_gives_triangles() else _by_superlu(matrix)

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


def _by_cholmod(matrix: sparse.csc_array) -> SparseFactor:
    L, order, solve = triangle_by_cholmod(matrix, INSTEAD)
    L.sort_indices()
    return SparseFactor(L, order, solve)


def _by_superlu(matrix: sparse.csc_array) -> SparseFactor:
    """SuperLU drops entries that cancel to 0, so the pattern is worked out here."""
    matrix = sparse.csc_array(matrix)
    try:
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:
        raise UnsupportedProblemError(INDEFINITE) from None
    pivots = factors.U.diagonal()
    if not np.array_equal(factors.perm_r, factors.perm_c) or pivots.min() <= 0:
        raise UnsupportedProblemError(INDEFINITE)
    order = np.argsort(factors.perm_c).astype(np.int64)
    L = sparse.csc_array(factors.L @ sparse.diags_array(np.sqrt(pivots)))
    pattern = _closed_pattern(sparse.csc_array(sparse.tril(matrix[order][:, order], format="csc")))
    pattern.data[np.searchsorted(entry_keys(pattern), entry_keys(L))] = L.data
    return SparseFactor(pattern, order, factors.solve)


def _closed_pattern(lower: sparse.csc_array) -> sparse.csc_matrix:
    """The pattern of the Cholesky factor of a matrix given by its lower triangle, filled with zeros.

    A column's pattern is its own and that of its children in the elimination tree.
    """
    children: dict[int, list[Integers]] = {}
    patterns = []
    for column in range(lower.shape[0]):
        own = lower.indices[lower.indptr[column] : lower.indptr[column + 1]]
        rows = np.unique(np.concatenate([own, [column], *children.pop(column, [])]))
        patterns.append(rows)
        if rows.size > 1:
            children.setdefault(int(rows[1]), []).append(rows[1:])
    pointers = np.concatenate([[0], np.cumsum([rows.size for rows in patterns])])
    indices = np.concatenate(patterns)
    return sparse.csc_matrix((np.zeros(indices.size), indices, pointers), shape=lower.shape)


def entry_keys(matrix: sparse.csr_array | sparse.csc_array) -> Integers:
    """Every entry's place in a compressed matrix as one number, ascending where its indices are sorted."""
    outer = np.repeat(np.arange(matrix.indptr.size - 1, dtype=np.int64), np.diff(matrix.indptr))
    return outer * matrix.indptr.size + matrix.indices


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

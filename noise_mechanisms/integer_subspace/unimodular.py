"""Exact integer linear algebra: lattice bases by unimodular column operations, rank modulo primes, Smith form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.description.reals import whole_array

_SMITH_LIMIT = 20_000  # entries of A: beyond, intermediate entries and time explode

Column = dict[int, int]


def unimodular_null_basis(A: Any) -> sparse.csc_array:
    """An integer basis of {z : A z = 0}, by sparse unimodular column operations.

    Column operations of determinant 1 bring A into column echelon form; the columns of the accumulated
    transformation that belong to zero columns are the basis. Being columns of a unimodular matrix they are saturated:
    every whole-number solution is a whole-number combination. Python integers throughout, hence exact.

    Parameters
    ----------
    A : sparse array, (m, d)
        Whole numbers.

    Returns
    -------
    csc_array of int64, (d, d - rank)

    Raises
    ------
    OverflowError
        If an entry of the basis exceeds 63 bits.
    """
    matrix = sparse.csc_array(A)
    rows, size = matrix.shape
    remaining: list[Column] = [
        {int(matrix.indices[k]): int(matrix.data[k]) for k in range(matrix.indptr[j], matrix.indptr[j + 1])}
        for j in range(size)
    ]
    transformation: list[Column] = [{j: 1} for j in range(size)]
    holders: list[set[int]] = [set() for _ in range(rows)]
    for j, column in enumerate(remaining):
        for row in column:
            holders[row].add(j)
    kept = set(range(size))
    for row in range(rows):
        pivot = _clear_row(row, remaining, transformation, holders)
        if pivot is not None:
            kept.discard(pivot)
    return _assemble([transformation[j] for j in sorted(kept)], size)


def _clear_row(row: int, remaining: list[Column], transformation: list[Column], holders: list[set[int]]) -> int | None:
    """Euclid's algorithm on the columns that hold `row`; returns the one column left with it, now out of play."""
    while len(holders[row]) > 1:
        pivot = min(holders[row], key=lambda j: (abs(remaining[j][row]), len(transformation[j]), j))
        for j in holders[row] - {pivot}:
            factor = -(remaining[j][row] // remaining[pivot][row])
            _add_multiple(transformation[j], factor, transformation[pivot])
            for touched in _add_multiple(remaining[j], factor, remaining[pivot]):
                (holders[touched].add if touched in remaining[j] else holders[touched].discard)(j)
    if not holders[row]:
        return None
    pivot = holders[row].pop()
    for touched in remaining[pivot]:
        holders[touched].discard(pivot)
    return pivot


def _add_multiple(target: Column, factor: int, source: Column) -> Column:
    """Add factor * source to target in place, dropping zeros; returns source, whose keys were touched."""
    for key, value in source.items():
        total = target.get(key, 0) + factor * value
        if total:
            target[key] = total
        else:
            target.pop(key, None)
    return source


def _assemble(columns: list[Column], size: int) -> sparse.csc_array:
    indptr = np.concatenate([[0], np.cumsum([len(column) for column in columns], dtype=np.int64)])
    indices = np.array([row for column in columns for row in sorted(column)], dtype=np.int64)
    data = np.array([column[row] for column in columns for row in sorted(column)], dtype=np.int64)
    return sparse.csc_array((data, indices, indptr), shape=(size, len(columns)))


def rank_modulo(matrix: Any, prime: int) -> int:
    """Rank of an integer matrix over the field of `prime` elements, by sparse elimination.

    Never more than the rank over the rationals. The columns of C are a saturated basis of what they span exactly when
    this is the number of columns for every prime.
    """
    by_row = sparse.csr_array(matrix)
    rows: list[Column] = []
    for i in range(by_row.shape[0]):
        span = slice(by_row.indptr[i], by_row.indptr[i + 1])
        reduced = zip(by_row.indices[span].tolist(), (by_row.data[span] % prime).tolist(), strict=True)
        rows.append({column: int(value) for column, value in reduced if value})
    pivots: dict[int, Column] = {}
    for row in sorted(rows, key=len):
        while row:
            leading = max(row)
            if leading not in pivots:
                inverse = pow(row[leading], -1, prime)
                pivots[leading] = {column: value * inverse % prime for column, value in row.items()}
                break
            _subtract_modulo(row, row[leading], pivots[leading], prime)
    return len(pivots)


def _subtract_modulo(target: Column, factor: int, source: Column, prime: int) -> None:
    for key, value in source.items():
        total = (target.get(key, 0) - factor * value) % prime
        if total:
            target[key] = total
        else:
            target.pop(key, None)


@dataclass(frozen=True)
class SmithForm:
    """U A V = D with U and V unimodular, D diagonal, every diagonal entry dividing the next (equation 4).

    Attributes
    ----------
    U, D, V : ndarray of Python integers, (m, m), (m, d), (d, d)
    rank : int
        The last d - rank columns of V are a basis of the lattice {z : A z = 0}.
    """

    U: NDArray[np.object_]
    D: NDArray[np.object_]
    V: NDArray[np.object_]

    @property
    def rank(self) -> int:
        """Number of nonzero diagonal entries."""
        return int(np.count_nonzero(np.diagonal(self.D)))

    @property
    def null_basis(self) -> NDArray[np.object_]:
        """The last d - rank columns of V, (d, d - rank)."""
        return self.V[:, self.rank :]


def smith_form(A: Any) -> SmithForm:
    """The Smith normal form of a small integer matrix, with its transformations, in exact integers.

    Parameters
    ----------
    A : sparse array or array_like, (m, d)
        Whole numbers, at most 20,000 entries.

    Raises
    ------
    ValueError
        If an entry is not whole or the matrix larger; a lattice basis does not need the form, see `Lattice`.
    """
    given = whole_array(A.toarray() if sparse.issparse(A) else A, "the matrix")
    if given.size > _SMITH_LIMIT:
        raise ValueError(
            f"the Smith form of a {given.shape[0]} x {given.shape[1]} matrix is out of reach (at most {_SMITH_LIMIT:,} "
            "entries): use Lattice(invariants).basis, which needs no Smith form"
        )
    D = given.astype(object)  # Python's integers
    U, V = _identity(D.shape[0]), _identity(D.shape[1])
    for corner in range(min(D.shape)):
        while _bring_pivot(D, U, V, corner):
            _clear_cross(D, U, V, corner)
            offending = [i for i in range(corner + 1, D.shape[0]) if (D[i, corner + 1 :] % D[corner, corner]).any()]
            if not offending and not D[corner + 1 :, corner].any() and not D[corner, corner + 1 :].any():
                break
            if offending:
                D[corner] += D[offending[0]]
                U[corner] += U[offending[0]]
        if D[corner, corner] < 0:
            D[corner], U[corner] = -D[corner], -U[corner]
    return SmithForm(U, D, V)


def _identity(size: int) -> NDArray[np.object_]:
    return np.array([[int(i == j) for j in range(size)] for i in range(size)], dtype=object).reshape(size, size)


def _bring_pivot(D: NDArray, U: NDArray, V: NDArray, corner: int) -> bool:
    """Swap the smallest nonzero entry into the corner; False when nothing is left."""
    rows, columns = np.nonzero(D[corner:, corner:])
    if not rows.size:
        return False
    sizes = [abs(D[corner + i, corner + j]) for i, j in zip(rows, columns, strict=True)]
    best = sizes.index(min(sizes))
    row, column = corner + rows[best], corner + columns[best]
    for matrix in (D, U):
        matrix[[corner, row]] = matrix[[row, corner]]
    for matrix in (D, V):
        matrix[:, [corner, column]] = matrix[:, [column, corner]]
    return True


def _clear_cross(D: NDArray, U: NDArray, V: NDArray, corner: int) -> None:
    """Reduce the pivot's column and row modulo the pivot."""
    for i in range(corner + 1, D.shape[0]):
        factor = D[i, corner] // D[corner, corner]
        if factor:
            D[i] -= factor * D[corner]
            U[i] -= factor * U[corner]
    for j in range(corner + 1, D.shape[1]):
        factor = D[corner, j] // D[corner, corner]
        if factor:
            D[:, j] -= factor * D[:, corner]
            V[:, j] -= factor * V[:, corner]

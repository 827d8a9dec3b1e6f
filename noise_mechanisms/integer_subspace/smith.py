"""The Smith normal form of a small matrix of whole numbers, with its transformations, in exact integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.description.reals import whole_array
from noise_mechanisms.unimodular import Column, column_echelon, columns_of

_SMITH_LIMIT = 20_000  # entries of A: beyond, intermediate entries and time explode


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
    U, V = (_dense([{i: 1} for i in range(size)], size) for size in D.shape)
    while True:
        D, V = _echelon(D, V)
        transposed, U = _echelon(D.T, U.T)
        D, U = transposed.T, U.T
        diagonal = np.diagonal(D)
        if np.count_nonzero(D) > np.count_nonzero(diagonal):
            continue
        wrong = [i for i, d in enumerate(diagonal[:-1]) if d and diagonal[i + 1] % d]
        if not wrong:
            signs = np.where(diagonal < 0, -1, 1).astype(object)
            D[: signs.size], U[: signs.size] = D[: signs.size] * signs[:, None], U[: signs.size] * signs[:, None]
            return SmithForm(U, D, V)
        for matrix in (D, V):
            matrix[:, wrong[0]] += matrix[:, wrong[0] + 1]


def _echelon(matrix: NDArray[np.object_], applied: NDArray[np.object_]) -> tuple[NDArray, NDArray]:
    """The matrix in column echelon form, pivots first, and the same column operations on another one."""
    columns = columns_of(matrix)
    transformation, pivots = column_echelon(columns)
    order = [*pivots, *sorted(set(range(len(columns))) - set(pivots))]
    combined = np.zeros_like(applied)
    for place, j in enumerate(order):
        for i, factor in transformation[j].items():
            combined[:, place] += factor * applied[:, i]
    return _dense([columns[j] for j in order], matrix.shape[0]), combined


def _dense(columns: list[Column], rows: int) -> NDArray[np.object_]:
    matrix = np.zeros((rows, len(columns)), dtype=object)
    for j, column in enumerate(columns):
        for i, value in column.items():
            matrix[i, j] = value
    return matrix

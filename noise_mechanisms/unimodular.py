"""Exact integer linear algebra: lattice bases by sparse unimodular column operations."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

Column: TypeAlias = dict[int, int]  # the entries that are not zero, by row, in Python's integers


def unimodular_null_basis(A: Any) -> sparse.csc_array:
    """An integer basis of {z : A z = 0}, by sparse unimodular column operations.

    The columns of the transformation that belong to zero columns of the echelon form are the basis. Being columns of a
    unimodular matrix they are saturated: every whole-number solution is a whole-number combination.

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
    columns = columns_of(A)
    transformation, pivots = column_echelon(columns)
    basis = [column for j, column in enumerate(transformation) if j not in pivots]
    indptr = np.concatenate([[0], np.cumsum([len(column) for column in basis], dtype=np.int64)])
    indices = np.array([row for column in basis for row in sorted(column)], dtype=np.int64)
    data = np.array([column[row] for column in basis for row in sorted(column)], dtype=np.int64)
    return sparse.csc_array((data, indices, indptr), shape=(len(columns), len(basis)))


def columns_of(matrix: Any) -> list[Column]:
    """The columns of a sparse matrix of whole numbers, or of an array of Python integers."""
    if not sparse.issparse(matrix):
        return [{i: value for i, value in enumerate(column) if value} for column in matrix.T.tolist()]
    by_column = sparse.csc_array(matrix)
    parts = zip(by_column.indptr[:-1], by_column.indptr[1:], strict=True)
    indices, data = by_column.indices.tolist(), by_column.data.tolist()
    return [dict(zip(indices[start:stop], map(int, data[start:stop]), strict=True)) for start, stop in parts]


def column_echelon(columns: list[Column]) -> tuple[list[Column], list[int]]:
    """Bring a matrix into column echelon form by column operations of determinant 1, in place.

    Returns
    -------
    transformation : list of columns
        The same operations on the unit matrix.
    pivots : list of int
        The columns that are not zero, in the order of their first rows; as many as the rank.
    """
    transformation: list[Column] = [{j: 1} for j in range(len(columns))]
    holders: dict[int, set[int]] = {}
    for j, column in enumerate(columns):
        for row in column:
            holders.setdefault(row, set()).add(j)
    pivots = [_clear_row(row, columns, transformation, holders) for row in sorted(holders)]
    return transformation, [pivot for pivot in pivots if pivot is not None]


def _clear_row(
    row: int, columns: list[Column], transformation: list[Column], holders: dict[int, set[int]]
) -> int | None:
    """Euclid's algorithm on the columns that hold `row`; returns the one column left with it, now out of play."""
    while len(holders[row]) > 1:
        pivot = min(holders[row], key=lambda j: (abs(columns[j][row]), len(transformation[j]), j))
        for j in holders[row] - {pivot}:
            factor = -(columns[j][row] // columns[pivot][row])
            _add_multiple(transformation[j], factor, transformation[pivot])
            for touched in _add_multiple(columns[j], factor, columns[pivot]):
                (holders[touched].add if touched in columns[j] else holders[touched].discard)(j)
    if not holders[row]:
        return None
    pivot = holders[row].pop()
    for touched in columns[pivot]:
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

"""Diagonal matrices and products with them, each made as one sparse array where scipy makes many on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def diagonal_matrix(values: NDArray[Any]) -> sparse.csr_array:
    """Values, (n,), on the diagonal of (n, n), without entries for those that are 0."""
    kept = np.flatnonzero(values)
    kind = np.int32 if values.size <= np.iinfo(np.int32).max else np.int64
    places = kept.astype(kind), np.concatenate([[0], np.cumsum(values != 0)]).astype(kind)
    return sparse.csr_array((values[kept], *places), shape=(values.size, values.size))


def scaled(
    matrix: sparse.csr_array, rows: NDArray[Any] | None = None, columns: NDArray[Any] | None = None
) -> sparse.csr_array:
    """A matrix, (n, k), its rows times numbers, (n,), none of them 0, and its columns times others, (k,)."""
    found = matrix.copy()
    if rows is not None:
        found.data = found.data * np.repeat(rows, np.diff(found.indptr))
    if columns is not None:
        found.data = found.data * columns[found.indices]
    return found

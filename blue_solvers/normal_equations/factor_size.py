"""How many entries a sparse Cholesky factor will have, from the pattern of the matrix alone, before any is made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Integers
from constraint_builders.memory import free_memory, require_memory

ENTRY_BYTES = 16.0  # of an entry of the factor
SURE_BYTES = 2.0**27  # of a factor without zeros: so few are not worth a look at the free memory


def require_room(matrix: sparse.csc_matrix, order: Integers, instead: str) -> None:
    """Refuse, by its bytes, a factor of ``matrix[order][:, order]`` that would not fit in memory.

    Raises
    ------
    MemoryError
    """
    rows = matrix.shape[0]
    most = ENTRY_BYTES * rows * (rows + 1) / 2
    if most <= SURE_BYTES or most <= free_memory():
        return
    entries = float(entries_of_factor(matrix, order).sum())
    what = f"the Cholesky factor of {rows:,} equations, {entries:,.0f} entries,"
    require_memory(ENTRY_BYTES * entries, what, instead)


def entries_of_factor(matrix: sparse.csc_matrix, order: Integers) -> Integers:
    """Entries in every column of the factor of ``matrix[order][:, order]``, (n,), that of the diagonal included."""
    lower = sparse.csc_array(sparse.tril(sparse.csr_array(matrix)[order][:, order], format="csc"))
    return np.array([rows.size for rows in factor_rows(lower)], dtype=np.int64)


def factor_rows(lower: sparse.csc_array) -> Iterator[Integers]:
    """Rows of every column of the Cholesky factor of a matrix given by its lower triangle.

    Those are the column's own and those of its children in the elimination tree.
    """
    children: dict[int, list[Integers]] = {}
    for column in range(lower.shape[0]):
        own = lower.indices[lower.indptr[column] : lower.indptr[column + 1]]
        rows = np.unique(np.concatenate([own, [column], *children.pop(column, [])]))
        if rows.size > 1:
            children.setdefault(int(rows[1]), []).append(rows[1:])
        yield rows

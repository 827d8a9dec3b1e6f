"""How many entries a sparse Cholesky factor will have, from the pattern of the matrix alone, before any is made."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Integers
from constraint_builders.compiled import compiled
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
    lower = sparse.csr_array(sparse.tril(sparse.csr_array(matrix)[order][:, order], k=-1, format="csr"))
    lower.sort_indices()
    counts = np.ones(lower.shape[0], dtype=np.int64)
    count_entries.fastest()(lower.indptr.astype(np.int64), lower.indices.astype(np.int64), counts)
    return counts


def count_entries_in_numpy(pointers: Integers, indices: Integers, counts: Integers) -> None:
    """Add the entries below the diagonal in every column of the factor: its own, and those of its children's columns.

    Parameters
    ----------
    pointers, indices : ndarray, (n + 1,) and (k,)
        Rows of the matrix below its diagonal.
    counts : ndarray, (n,)
        Changed in place.
    """
    lower = sparse.csr_array((np.ones(indices.size), indices, pointers), shape=(counts.size, counts.size)).tocsc()
    children: dict[int, list[Integers]] = {}
    for column in range(counts.size):
        own = lower.indices[lower.indptr[column] : lower.indptr[column + 1]]
        rows = np.unique(np.concatenate([own, *children.pop(column, [])]))
        counts[column] += rows.size
        if rows.size:
            children.setdefault(int(rows[0]), []).append(rows[1:])


@compiled(reference=count_entries_in_numpy)
def count_entries(pointers: Integers, indices: Integers, counts: Integers) -> None:
    """See `count_entries_in_numpy`: every row walks from its entries up the elimination tree."""
    parent = np.full(counts.size, -1)
    seen = np.full(counts.size, -1)
    for row in range(counts.size):
        seen[row] = row
        for place in range(pointers[row], pointers[row + 1]):
            column = indices[place]
            while seen[column] != row:
                if parent[column] < 0:
                    parent[column] = row
                counts[column] += 1
                seen[column] = row
                column = parent[column]

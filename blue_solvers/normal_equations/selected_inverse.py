"""Entries of the inverse of a sparse matrix on the pattern of its Cholesky factor (Takahashi's equations).

With N = L L', columns J of a supernode and the rows R below them, and Y = L_RJ L_JJ^-1,

    Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ')^-1 - Y' Z_RJ,    Z = N^-1,

and Z_RR lies in the front of the parent. From the roots down, every front's dense block of the inverse follows from
its parent's, without anything off the pattern.

Every exact variance of an estimate is then a few of these entries,

    Var(t'x) = t' Sigma t - u' (A Sigma A')^-1 u,    u = A Sigma t.

For a cell with noise of its own u is a column of A, and its entries lie on the pattern of A Sigma A'. For a sum of
cells or correlated noise they may not: such pairs are added to the pattern before it is factorised.

A supernode is a run of columns of L with one pattern below them. Its front is that pattern: its own columns, then the
rows below. The rows below lie in the front of its parent, the supernode that holds the first of them.

References
----------
Takahashi, Fagan and Chen, Formation of a sparse bus impedance matrix and its application to short circuit study, 1973.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from constraint_builders.arrays import Float, Integers
from constraint_builders.memory import require_memory

INSTEAD = "use P.variances() with solver='cg', Monte Carlo intervals, or estimate_variances"


def inverse_on_factor(L: sparse.csc_matrix) -> Float:
    """Entries of (L L')^-1 on the pattern of L, in the order of `L.data`.

    Parameters
    ----------
    L : csc_matrix, (n, n)
        Lower triangular with sorted rows; its pattern is closed under elimination.

    Raises
    ------
    MemoryError
        If the fronts that are needed at once would not fit.
    """
    size, pointers, rows = L.shape[0], L.indptr.astype(np.int64), L.indices
    counts = np.diff(pointers)
    below = np.append(rows, size)[np.where(counts > 1, pointers[:-1] + 1, L.nnz)]  # the first row, or none
    joined = (below[:-1] == np.arange(1, size)) & (counts[:-1] == counts[1:] + 1)
    starts = np.flatnonzero(np.concatenate([[True], ~joined]))
    stops, lengths, nodes = np.append(starts[1:], size), counts[starts], np.arange(starts.size)
    parents = np.append(np.repeat(nodes, stops - starts), nodes.size)[below[stops - 1]]
    last = np.append(nodes, 0)  # child, until which a front is needed
    np.minimum.at(last, parents, nodes)
    needed = np.bincount(last[:-1], lengths**2.0, minlength=nodes.size + 1)
    needed[1:] -= lengths**2.0
    what = f"selected inversion over {nodes.size:,} supernodes with {L.nnz:,} entries"
    require_memory(8.0 * (L.nnz + needed.cumsum().max(initial=0.0)), what, INSTEAD)
    fronts: dict[int, tuple[Integers, Float]] = {}  # rows, and the inverse between them
    found = np.empty_like(L.data)
    for node, parent in zip(nodes[::-1].tolist(), parents[::-1].tolist(), strict=True):
        own, width, length = slice(*pointers[[starts[node], stops[node]]]), stops[node] - starts[node], lengths[node]
        front = rows[own.start : own.start + length]
        lower = np.tri(length, width, dtype=bool).T
        columns = np.zeros((width, length))
        columns[lower] = L.data[own]
        inverse = lapack.dtrtri(columns[:, :width].T, lower=1)[0]
        Z = np.empty((length, length))
        Z[:width, :width] = inverse.T @ inverse
        if width < length:
            Y = columns[:, width:].T @ inverse
            above, known = fronts[parent]
            places = np.searchsorted(above, front[width:])
            Z[width:, width:] = known[places[:, None], places]
            coupling = Z[width:, width:] @ Y
            Z[width:, :width], Z[:width, width:] = -coupling, -coupling.T
            Z[:width, :width] += Y.T @ coupling
            if node == last[parent]:
                del fronts[parent]
        if last[node] < node:
            fronts[node] = front, Z
        found[own] = Z[:, :width].T[lower]
    return found

"""Entries of the inverse of a sparse matrix on the pattern of its Cholesky factor (Takahashi's equations).

With N = L L', columns J of a supernode and the rows R below them, and Y = L_RJ L_JJ^-1,

    Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ')^-1 - Y' Z_RJ,    Z = N^-1,

and Z_RR lies in the front of the parent. From the roots down, every front's dense block of the inverse follows from
its parent's, without anything off the pattern.

A supernode is a run of columns of L with one pattern below them. Its front is that pattern: its own columns, then the
rows below. The rows below lie in the front of its parent, the supernode that holds the first of them. In numpy fronts
are kept as long as one below needs them; the compiled loop reads what it needs of those above from their entries.

References
----------
Takahashi, Fagan and Chen, Formation of a sparse bus impedance matrix and its application to short circuit study, 1973.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from constraint_builders.arrays import Float, Index, Integers, inverse_order
from constraint_builders.compiled import ONE_BY_ONE, compiled
from constraint_builders.memory import require_memory

INSTEAD = "use P.variances() with solver='cg', Monte Carlo intervals, or estimate_variances"
FEW_SUPERNODES = 1_000  # up to which loading what is compiled takes longer than the loop in Python


class SelectedInverse:
    """Entries of N^-1 on the pattern of its factor L, N[order][:, order] = L L'.

    Parameters
    ----------
    L : csc_matrix, (r, r)
        Lower triangular with sorted rows; its pattern is closed under elimination.
    order : ndarray of int, (r,)

    Raises
    ------
    MemoryError
        If the fronts that are needed at once would not fit.
    """

    def __init__(self, L: sparse.csc_matrix, order: Index) -> None:
        self._pointers, self._rows = L.indptr.astype(np.intp), L.indices
        self._place = inverse_order(order, order.size)
        starts = starts_of_supernodes(self._pointers, self._rows)
        self._entries = np.empty_like(L.data)
        self._many = starts.size > FEW_SUPERNODES
        by_supernode = entries_by_supernode if self._many else entries_by_supernode.reference
        by_supernode(self._pointers, self._rows, L.data, starts, self._entries)

    @property
    def diagonal(self) -> Float:
        """The diagonal of N^-1, (r,)."""
        return self._entries[self._pointers[:-1]][self._place]

    def at(self, rows: Index, columns: Index) -> Float:
        """Entries at places on the pattern, in the numbering of N, (K,).

        Raises
        ------
        ValueError
            If a place is off the pattern.
        """
        low, high = np.sort([self._place[rows], self._place[columns]], axis=0)
        values = np.empty(low.size)
        read = read_entries if self._many else read_entries.reference
        read(self._pointers, self._rows, self._entries, low, high, values)
        off = np.flatnonzero(np.isnan(values))
        if off.size:
            raise ValueError(
                f"entry ({rows[off[0]]}, {columns[off[0]]}) of the inverse is off the factor's pattern: "
                "give the matrix an explicit zero there before factorising"
            )
        return values

    def on(self, pattern: sparse.csr_array) -> sparse.csr_array:
        """Entries on the pattern of N or less, as a symmetric matrix, (r, r)."""
        lower = sparse.tril(pattern, format="coo")
        half = sparse.csr_array((self.at(lower.row, lower.col), (lower.row, lower.col)), shape=pattern.shape)
        return sparse.csr_array(half + sparse.tril(half, -1).T)


def starts_of_supernodes(pointers: Integers, rows: Index) -> Integers:
    """First columns of runs with one pattern below them, and the end, (nodes + 1,); columns are (r + 1,), (nnz,)."""
    size, counts, below = pointers.size - 1, np.diff(pointers), _first_below(pointers, rows)
    joined = (below[:-1] == np.arange(1, size)) & (counts[:-1] == counts[1:] + 1)
    return np.flatnonzero(np.concatenate([[True], ~joined, [True]])).astype(np.intp)


def _first_below(pointers: Integers, rows: Index) -> Integers:
    """Of every column, (r,), of (r + 1,), (nnz,), the first row below its diagonal; r where there is none."""
    size = pointers.size - 1
    return np.append(rows, size)[np.where(np.diff(pointers) > 1, pointers[:-1] + 1, rows.size)]


def read_entries_in_numpy(
    pointers: Integers, rows: Index, entries: Float, low: Integers, high: Integers, values: Float
) -> None:
    """Values of the entries in columns `low`, rows `high`, of a matrix with sorted rows, set in place; NaN off it.

    Parameters
    ----------
    pointers, rows, entries : ndarray, (r + 1,), (nnz,), (nnz,)
    low, high : ndarray of int, (K,)
    values : ndarray, (K,)
    """
    size = pointers.size - 1
    keys, wanted = np.repeat(np.arange(size), np.diff(pointers)) * np.int64(size) + rows, low * np.int64(size) + high
    places = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    values[:] = np.where(keys[places] == wanted, entries[places], np.nan)


@compiled(reference=read_entries_in_numpy)
def read_entries(pointers: Integers, rows: Index, entries: Float, low: Integers, high: Integers, values: Float) -> None:
    """See `read_entries_in_numpy`: (K,) values, each by halving its column."""
    for place in range(values.size):
        start, stop = pointers[low[place]], pointers[low[place] + 1]
        while stop - start > 1:
            middle = (start + stop) // 2
            if rows[middle] <= high[place]:
                start = middle
            else:
                stop = middle
        values[place] = entries[start] if rows[start] == high[place] else np.nan


def entries_by_supernode_in_numpy(pointers: Integers, rows: Index, data: Float, starts: Integers, found: Float) -> None:
    """Entries of (L L')^-1 on the pattern of L.

    Parameters
    ----------
    pointers, rows, data : ndarray, (r + 1,), (nnz,), (nnz,)
        L by its columns, rows sorted.
    starts : ndarray of int, (nodes + 1,)
        Of `starts_of_supernodes`.
    found : ndarray, (nnz,)
        Set in place.

    Raises
    ------
    MemoryError
        If the fronts that are needed at once would not fit.
    """
    stops, lengths, nodes = starts[1:], np.diff(pointers)[starts[:-1]], np.arange(starts.size - 1)
    parents = np.append(np.repeat(nodes, np.diff(starts)), nodes.size)[_first_below(pointers, rows)[stops - 1]]
    last = np.append(nodes, 0)  # child, until which a front is needed
    np.minimum.at(last, parents, nodes)
    needed = np.bincount(last[:-1], lengths**2.0, minlength=nodes.size + 1).astype(np.float64)
    needed[1:] -= lengths**2.0
    what = f"selected inversion over {nodes.size:,} supernodes with {rows.size:,} entries"
    require_memory(8.0 * (rows.size + needed.cumsum().max(initial=0.0)), what, INSTEAD)
    fronts: dict[int, tuple[Integers, Float]] = {}  # rows, and the inverse between them
    for node, parent in zip(nodes[::-1].tolist(), parents[::-1].tolist(), strict=True):
        own, width, length = slice(*pointers[[starts[node], stops[node]]]), stops[node] - starts[node], lengths[node]
        front = rows[own.start : own.start + length]
        lower = np.tri(length, width, dtype=bool).T
        columns = np.zeros((width, length))
        columns[lower] = data[own]
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


@compiled(reference=entries_by_supernode_in_numpy, most=ONE_BY_ONE)
def entries_by_supernode(pointers: Integers, rows: Index, data: Float, starts: Integers, found: Float) -> None:
    """See `entries_by_supernode_in_numpy`, found being (nnz,), from the roots down."""
    node_of = np.empty(pointers.size - 1, dtype=np.intp)
    for node in range(starts.size - 1):
        node_of[starts[node] : starts[node + 1]] = node
    for node in range(starts.size - 2, -1, -1):
        first, width = starts[node], starts[node + 1] - starts[node]
        top = pointers[first]
        length = pointers[first + 1] - top
        own = np.zeros((width, width))
        for column in range(width):
            for row in range(column, width):
                own[row, column] = data[pointers[first + column] + row - column]
        inverse = np.zeros((width, width))
        if width <= 24:
            for column in range(width):
                inverse[column, column] = 1 / own[column, column]
                for row in range(column + 1, width):
                    total = 0.0
                    for k in range(column, row):
                        total += own[row, k] * inverse[k, column]
                    inverse[row, column] = -total / own[row, row]
        else:
            inverse = np.ascontiguousarray(np.linalg.inv(own))
            for row in range(width):
                inverse[row, row + 1 :] = 0.0
        square = np.dot(np.ascontiguousarray(inverse.T), inverse)
        more = length - width
        if more:
            below = np.empty((more, width))
            for column in range(width):
                start = pointers[first + column] - column + width
                for row in range(more):
                    below[row, column] = data[start + row]
            turned = np.dot(below, inverse)
            known = np.empty((more, more))
            place = np.empty(more, dtype=np.intp)
            begin = 0
            while begin < more:
                above = node_of[rows[top + width + begin]]
                stop = begin
                while stop < more and node_of[rows[top + width + stop]] == above:
                    stop += 1
                base, at = pointers[starts[above]], 0
                for row in range(begin, more):
                    while rows[base + at] != rows[top + width + row]:
                        at += 1
                    place[row] = at
                for column in range(begin, stop):
                    shift = pointers[starts[above] + place[column]] - place[column]
                    for row in range(column, more):
                        value = found[shift + place[row]]
                        known[row, column] = value
                        known[column, row] = value
                begin = stop
            coupling = np.dot(known, turned)
            square += np.dot(np.ascontiguousarray(turned.T), coupling)
            for column in range(width):
                start = pointers[first + column] - column + width
                for row in range(more):
                    found[start + row] = -coupling[row, column]
        for column in range(width):
            for row in range(column, width):
                found[pointers[first + column] + row - column] = square[row, column]

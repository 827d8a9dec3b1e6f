"""The pattern of a sparse Cholesky factor as a tree of supernodes.

A supernode is a run of columns of L with one pattern below them. Its front is that pattern: its own columns, then the
rows below. The rows below lie in the front of its parent, the supernode that holds the first of them, so that walking
down the tree every front finds what it needs in the front just above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Integers


@dataclass(frozen=True)
class Supernodes:
    """Supernodes in the order of their columns.

    Attributes
    ----------
    starts, widths : ndarray, (S,)
        First column, and number of columns.
    lengths : ndarray, (S,)
        Size of the front.
    row_starts : ndarray, (S + 1,)
        Where the front's rows start in `rows`.
    rows : ndarray
        Rows of all fronts, ascending in each.
    """

    starts: Integers
    widths: Integers
    lengths: Integers
    row_starts: Integers
    rows: Integers

    @classmethod
    def of_factor(cls, L: sparse.csc_matrix) -> Supernodes:
        """Read them off a lower triangular factor whose pattern is closed and whose rows are sorted."""
        size = L.shape[0]
        pointers = L.indptr.astype(np.int64)
        counts = np.diff(pointers)
        below = np.append(L.indices, size)[np.where(counts > 1, pointers[:-1] + 1, L.nnz)]
        joined = (below[:-1] == np.arange(1, size)) & (counts[:-1] == counts[1:] + 1)
        starts = np.flatnonzero(np.concatenate([[True], ~joined]))
        lengths = counts[starts]
        row_starts = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(pointers[starts] - row_starts[:-1], lengths) + np.arange(row_starts[-1])
        return cls(starts, np.diff(starts, append=size), lengths, row_starts, L.indices[places].astype(np.int64))

    @property
    def count(self) -> int:
        """Number of supernodes."""
        return self.starts.size

    @cached_property
    def of_column(self) -> Integers:
        """The supernode of every column."""
        return np.repeat(np.arange(self.count), self.widths)

    @cached_property
    def parent(self) -> Integers:
        """The parent of every supernode, -1 for a root."""
        parent = np.full(self.count, -1)
        inner = np.flatnonzero(self.lengths > self.widths)
        parent[inner] = self.of_column[self.rows[self.row_starts[inner] + self.widths[inner]]]
        return parent

    @cached_property
    def has_children(self) -> NDArray[np.bool_]:
        """Whether a supernode is a parent."""
        has = np.zeros(self.count, dtype=bool)
        has[self.parent[self.parent >= 0]] = True
        return has

    @cached_property
    def level(self) -> Integers:
        """Distance to the root of every supernode."""
        level = np.zeros(self.count, dtype=np.int64)
        for node, parent in zip(range(self.count - 1, -1, -1), self.parent[::-1].tolist(), strict=True):
            if parent >= 0:
                level[node] = level[parent] + 1
        return level

    @cached_property
    def _keys(self) -> Integers:
        """Supernode and row of every entry of `rows`, as one ascending number."""
        return np.repeat(np.arange(self.count), self.lengths) * self.of_column.size + self.rows

    def positions(self, nodes: Integers, rows: Integers) -> Integers:
        """Positions of some rows in the fronts of some supernodes; -1 where a front lacks the row."""
        keys = nodes * self.of_column.size + rows
        found = np.searchsorted(self._keys, keys)
        present = self._keys[np.minimum(found, self._keys.size - 1)] == keys
        return np.where(present, found - self.row_starts[nodes], -1)

    @cached_property
    def positions_in_parent(self) -> Integers:
        """For every entry of `rows` its position in the parent's front; meaningless for a front's own columns."""
        parents = np.repeat(np.maximum(self.parent, 0), self.lengths)
        return self.positions(parents, self.rows)

"""Entries of the inverse of a sparse matrix on the pattern of its Cholesky factor (Takahashi's equations).

With N = L L', columns J of a supernode and the rows R below them, and Y = L_RJ L_JJ^-1,

    Z_RJ = -Z_RR Y,    Z_JJ = (L_JJ L_JJ')^-1 - Y' Z_RJ,    Z = N^-1,

and Z_RR lies in the front of the parent. From the root down, level by level, every front's dense block of the inverse
follows from its parent's, without anything off the pattern. All fronts of one level and shape are one batch.

Every exact variance of an estimate is then a few of these entries,

    Var(t'x) = t' Sigma t - u' (A Sigma A')^-1 u,    u = A Sigma t.

For a cell with noise of its own u is a column of A, and its entries lie on the pattern of A Sigma A'. For a sum of
cells or correlated noise they may not: such pairs are added to the pattern before it is factorised.

A supernode is a run of columns of L with one pattern below them. Its front is that pattern: its own columns, then the
rows below. The rows below lie in the front of its parent, the supernode that holds the first of them, so that walking
down the tree every front finds what it needs in the front just above.

References
----------
Takahashi, Fagan and Chen, Formation of a sparse bus impedance matrix and its application to short circuit study, 1973.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import blas, lapack

from blue_solvers.normal_equations.kernels import Gather
from constraint_builders.arrays import Float, Integers
from constraint_builders.memory import require_memory

BATCH_ENTRIES = 2**18  # of the fronts of one batch
INSTEAD = "use P.variances() with solver='cg', Monte Carlo intervals, or estimate_variances"


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


@dataclass(frozen=True)
class _Batch:
    """Supernodes of one level and shape, and where their fronts are kept for their children, if they have any."""

    nodes: Integers
    width: int
    length: int
    kept: slice | None


def sweep(L: sparse.csc_matrix, tree: Supernodes, node: Integers, place: Integers, gather: Gather) -> Float:
    """Entries of the inverse at flat positions `place` of the fronts of supernodes `node`."""
    by_node = np.argsort(node, kind="stable")
    places, counts = place[by_node], np.bincount(node, minlength=tree.count)
    firsts = np.cumsum(counts) - counts
    found = np.empty(node.size)
    offsets = np.zeros(tree.count, dtype=np.int64)
    levels = _plan(tree)
    above, kept, scratch = _fronts(L, tree, levels)
    for level in levels:
        for batch in level:
            shape = (batch.nodes.size, batch.length, batch.length)
            fronts = (scratch[: prod(shape)] if batch.kept is None else kept[batch.kept]).reshape(shape)
            _invert(L, tree, batch, above, offsets, fronts, gather)
            own = counts[batch.nodes]
            wanted = _ranges(firsts[batch.nodes], own)
            in_front = np.repeat(np.arange(batch.nodes.size) * batch.length**2, own)
            found[wanted] = fronts.ravel().take(in_front + places[wanted])
        for batch in level:
            if batch.kept is not None:
                offsets[batch.nodes] = batch.kept.start + np.arange(batch.nodes.size) * batch.length**2
        above, kept = kept, above
    values = np.empty_like(found)
    values[by_node] = found
    return values


def _ranges(firsts: Integers, counts: Integers) -> Integers:
    """So many numbers from each of some first ones, one after another."""
    ends = np.cumsum(counts)
    return np.repeat(firsts - ends + counts, counts) + np.arange(int(ends[-1]) if ends.size else 0)


def _plan(tree: Supernodes) -> list[list[_Batch]]:
    """Batches level by level, from the roots down."""
    keys = np.stack([tree.level, tree.has_children, tree.widths, tree.lengths])
    order = np.lexsort(keys[::-1])
    changes = np.flatnonzero(np.diff(keys[:, order], axis=1).any(axis=0)) + 1
    levels: list[list[_Batch]] = [[] for _ in range(int(tree.level.max()) + 1)]
    fill = [0] * len(levels)
    for group in np.split(order, changes):
        level, inner, width, length = keys[:, group[0]].tolist()
        for nodes in _cut(group, max(1, BATCH_ENTRIES // length**2)):
            stop = fill[level] + nodes.size * length**2
            levels[level].append(_Batch(nodes, width, length, slice(fill[level], stop) if inner else None))
            fill[level] = stop if inner else fill[level]
    return levels


def _cut(group: Integers, most: int) -> Iterator[Integers]:
    return (group[start : start + most] for start in range(0, group.size, most))


def _fronts(L: sparse.csc_matrix, tree: Supernodes, levels: list[list[_Batch]]) -> tuple[Float, Float, Float]:
    """Room for the kept fronts of two levels, and for a batch that is not kept; refused when it would not fit."""
    batches = [batch for level in levels for batch in level]
    kept = max((batch.kept.stop for batch in batches if batch.kept is not None), default=0)
    largest = max(batch.nodes.size * batch.length**2 for batch in batches)
    what = f"selected inversion over {tree.count:,} supernodes with {L.nnz:,} entries"
    require_memory(8.0 * (2 * kept + 2 * largest + 2 * tree.rows.size), what, INSTEAD)
    return np.empty(kept), np.empty(kept), np.empty(largest)


def _invert(
    L: sparse.csc_matrix,
    tree: Supernodes,
    batch: _Batch,
    above: Float,
    offsets: Integers,
    fronts: Float,
    gather: Gather,
) -> None:
    """Fill the fronts of a batch, given those of the level above and where each starts among them."""
    width, rest = batch.width, batch.length - batch.width
    blocks = _columns(L, tree, batch)
    if rest:
        below = tree.row_starts[batch.nodes][:, None] + width + np.arange(rest)
        parents = tree.parent[batch.nodes]
        positions = tree.positions_in_parent[below]
        gather(above, offsets[parents], tree.lengths[parents], positions, fronts[:, width:, width:])
    own, Y = _local_solutions(blocks, width)
    if rest:
        coupling = np.matmul(fronts[:, width:, width:], Y)
        np.negative(coupling, out=fronts[:, width:, :width])
        fronts[:, :width, width:] = fronts[:, width:, :width].transpose(0, 2, 1)
        own += np.matmul(Y.transpose(0, 2, 1), coupling)
    fronts[:, :width, :width] = own


def _columns(L: sparse.csc_matrix, tree: Supernodes, batch: _Batch) -> Float:
    """The dense columns of L of every supernode of a batch, (B, length, width)."""
    blocks = np.zeros((batch.nodes.size, batch.length, batch.width))
    starts = tree.starts[batch.nodes]
    for k in range(batch.width):
        blocks[:, k:, k] = L.data[L.indptr[starts + k].astype(np.int64)[:, None] + np.arange(batch.length - k)]
    return blocks


def _local_solutions(blocks: Float, width: int) -> tuple[Float, Float]:
    """(L_JJ L_JJ')^-1, (B, width, width), and Y = L_RJ L_JJ^-1, (B, rest, width); `blocks` is overwritten."""
    if width == 1:
        return 1 / blocks[:, :1] ** 2, blocks[:, 1:] / blocks[:, :1]
    own = np.empty((blocks.shape[0], width, width))
    lower = np.tri(width, dtype=bool)
    for block, inverse in zip(blocks, own, strict=True):
        if block.shape[0] > width:
            blas.dtrsm(1.0, block[:width].T, block[width:].T, overwrite_b=1)
        upper = lapack.dpotri(block[:width].T, overwrite_c=1)[0]
        inverse[...] = np.where(lower, upper.T, upper)
    return own, blocks[:, width:]

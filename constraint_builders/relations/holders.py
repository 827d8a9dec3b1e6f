"""Which node each node of a summing matrix lies in: the least other one that holds its leaves."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Index


def holders_of(S: sparse.csr_array, counts: Index) -> Index | None:
    """The holder of every node, (nodes,), -1 for roots; None where nodes overlap otherwise than by lying inside.

    Of nodes of the same leaves each lies in the one of the row before.

    Parameters
    ----------
    S : csr_array, (nodes, leaves)
        The leaves of every node, none twice.
    counts : ndarray of int, (nodes,)
        Of leaves, at least one.
    """
    if S.has_canonical_format:
        first, last = S.indices[S.indptr[:-1]], S.indices[S.indptr[1:] - 1]
        if (last - first + 1 == counts).all():
            found = _of_layers(first, last)
            if found is not None:
                return found
    return _of_sets(S, counts)


def _of_layers(first: Index, last: Index) -> Index | None:
    """Of layers one below the other, each of runs of leaves from left to right, in which those of the next lie.

    That is how most hierarchies are listed, 2 to 3 times as fast as from sets of leaves; None for all others.
    """
    falls = first[1:] <= first[:-1]
    if (~falls & (first[1:] <= last[:-1])).any():
        return None
    bounds = [0, *(np.flatnonzero(falls) + 1).tolist(), first.size]
    holders = np.full(first.size, -1, dtype=np.intp)
    for start, own, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        inside = np.append(np.searchsorted(first[own:end], first[start:own]), end - own)
        around = np.repeat(np.arange(start, own), np.diff(inside))
        if inside[0] or (last[own:end] > last[around]).any():
            return None
        holders[own:end] = around
    return holders


def _of_sets(S: sparse.csr_array, counts: Index) -> Index | None:
    """Of any nodes: every leaf of a node must say the same of which node is the next larger one."""
    order = np.argsort(-counts, kind="stable")
    present = sparse.csr_array((np.ones(S.nnz, dtype=np.int8), S.indices, S.indptr), shape=S.shape)
    if not (order[1:] > order[:-1]).all():
        present = sparse.csr_array(present[order])
    by_leaf = present.tocsc()  # of every leaf from the largest node down
    child, above = by_leaf.indices, np.empty_like(by_leaf.indices)
    above[1:] = child[:-1]
    starts, stops = by_leaf.indptr[:-1], by_leaf.indptr[1:]
    above[starts[starts < stops]] = -1
    parent = np.empty(order.size, dtype=above.dtype)
    parent[child] = above
    if not np.array_equal(parent[child], above):
        return None
    holders = np.empty(order.size, dtype=np.intp)
    holders[order] = np.where(parent >= 0, order[parent], -1)
    return holders

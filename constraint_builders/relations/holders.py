"""Which node each node of a summing matrix lies in: the least other one that holds its leaves."""

from __future__ import annotations

from itertools import pairwise

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
            return _of_runs(first.astype(np.intp), counts, S.shape[1])
    return _of_sets(S, counts)


def _of_runs(first: Index, counts: Index, leaves: int) -> Index | None:
    """Of nodes that are runs of leaves side by side.

    From left to right, those that hold others before these, a node lies as deep as nodes are open where it starts.
    """
    order = np.argsort(first * (leaves + 1) - counts, kind="stable")
    start, stop = first[order], (first + counts)[order]
    depth = np.arange(order.size) - np.cumsum(np.bincount(stop, minlength=leaves + 1))[start]
    narrow = depth.astype(np.min_scalar_type(int(depth.max())))  # numpy sorts these faster
    by_depth = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(narrow)).tolist()
    holders, above = np.full(order.size, -1, dtype=np.intp), by_depth[: ends[0]]
    for begin, end in pairwise(ends):
        own = by_depth[begin:end]
        starts = np.append(np.searchsorted(own, above), own.size)
        around = np.repeat(above, starts[1:] - starts[:-1])
        if (stop[own] > stop[around]).any():
            return None
        holders[order[own]] = order[around]
        above = own
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

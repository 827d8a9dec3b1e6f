"""Which node each node of a summing matrix lies in: the least other one that holds its leaves."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Index, Integers
from constraint_builders.compiled import compiled

MANY = 1 << 22  # entries from which loading the compiled loop pays
OVERLAPPING = -2


def holders_of(indptr: Integers, leaves: Integers, order: Index) -> Index | None:
    """The holder of every node, (nodes,), -1 for roots; None where nodes overlap otherwise than by lying inside.

    Parameters
    ----------
    indptr, leaves : ndarray of int
        The leaves of every node, as in the rows of a csr_array; none twice.
    order : ndarray of int, (nodes,)
        The nodes from the largest down; of nodes of the same leaves each lies in the one before.
    """
    holders = np.full(order.size, -1, dtype=np.intp)
    latest = np.full(int(leaves.max(initial=-1)) + 1, -1, dtype=leaves.dtype)
    find = find_holders.fastest() if leaves.size >= MANY else find_holders.reference
    find(indptr, leaves, order, latest, holders)
    return None if holders.size and holders[0] == OVERLAPPING else holders


def find_holders_in_numpy(indptr: Integers, leaves: Integers, order: Index, latest: Integers, holders: Index) -> None:
    """Find the holder of every node, in place; all are `OVERLAPPING` where nodes overlap otherwise.

    Parameters
    ----------
    latest : ndarray of int, (leaves,)
        -1; becomes the last node in order that holds each leaf.
    holders : ndarray of int, (nodes,)
    """
    present = sparse.csr_array((np.ones(leaves.size, dtype=np.int8), leaves, indptr), shape=(order.size, latest.size))
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
        latest[:], holders[:] = -1, OVERLAPPING
        return
    held = starts < stops
    latest[held] = order[child[stops[held] - 1]]
    holders[order] = np.where(parent >= 0, order[parent], -1)


@compiled(reference=find_holders_in_numpy)
def find_holders(indptr: Integers, leaves: Integers, order: Index, latest: Integers, holders: Index) -> None:
    """See `find_holders_in_numpy`."""
    for place in range(order.size):
        node = order[place]
        start, stop = indptr[node], indptr[node + 1]
        holder = latest[leaves[start]]
        for entry in range(start, stop):
            if latest[leaves[entry]] != holder:
                latest[:] = -1
                holders[:] = OVERLAPPING
                return
            latest[leaves[entry]] = node
        holders[node] = holder

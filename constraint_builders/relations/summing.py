"""Summing matrices: nodes that are sums of leaves, as trees or as sparse equations between the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags, Index, kinds_of_rows
from constraint_builders.description.described import Compared, Described
from constraint_builders.description.reals import read_matrix
from constraint_builders.relations.elimination import relations_between_rows


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
    """Of layers, (nodes,), one below the other, each of runs of leaves from left to right, that hold the next one's.

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
    """Of any nodes, (nodes, leaves): every leaf of a node must say the same of which node is the next larger one."""
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


@dataclass(frozen=True, eq=False)
class NestedNodes:
    """Nodes of which any two are apart or one inside the other.

    Attributes
    ----------
    parent : ndarray of int, (nodes,)
        Of every node the one that it is inside, -1 at roots.
    rest : ndarray of bool, (nodes,)
        Which nodes with children hold leaves that none of these holds.
    """

    parent: Index
    rest: Flags

    @classmethod
    def of(cls, parent: Index, leaf_counts: Index) -> NestedNodes:
        """From the parents and the numbers of leaves below, (nodes,) each."""
        held = np.bincount(parent + 1, weights=leaf_counts, minlength=parent.size + 1)[1:]
        return cls(parent, (held > 0) & (held < leaf_counts))

    def relations(self) -> sparse.csr_array:
        """Every node with children is their sum, where they hold all its leaves: A x = 0, (rows, nodes)."""
        child = np.flatnonzero(self.parent >= 0)
        child = child[~self.rest[self.parent[child]]]
        parents, number = np.unique(self.parent[child], return_inverse=True)
        rows = np.concatenate([np.arange(parents.size), number])
        columns = np.concatenate([parents, child])
        values = np.concatenate([np.ones(parents.size), -np.ones(child.size)])
        return sparse.csr_array((values, (rows, columns)), shape=(parents.size, self.parent.size))


NO_NODES = NestedNodes(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=bool))


class SummingMatrix(Compared, Described):
    """Which leaves every node sums: x = S leaves.

    Parameters
    ----------
    S : sparse array or array_like, (nodes, leaves)
        Any real entries. A leaf is a node only where a row says so.

    Raises
    ------
    ValueError
        If it is not a matrix of finite numbers, or has no row.
    """

    _same_in, _hashed_by = ("matrix",), ("matrix",)

    def __init__(self, S: Any) -> None:
        self.matrix = read_matrix(S, "S")
        if not self.matrix.shape[0]:
            raise ValueError(f"S must have a row for every node: got shape {self.matrix.shape}")
        self._crossing = False

    @classmethod
    def of_areas(cls, matrix: sparse.csr_array, crossing: bool = False) -> SummingMatrix:
        """From a matrix that was read before, without duplicates and zeros, which it keeps.

        Parameters
        ----------
        matrix : csr_array, (nodes, leaves)
        crossing : bool
            Whether two nodes are known to overlap otherwise than by one lying in the other.
        """
        made = cls.__new__(cls)
        made.matrix, made._crossing = matrix, crossing
        return made

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self.matrix.shape[0]

    @cached_property
    def leaf_counts(self) -> Index:
        """Number of leaves below every node, (nodes,)."""
        return np.diff(self.matrix.indptr).astype(np.intp)

    @cached_property
    def nested(self) -> NestedNodes | None:
        """The nodes as a tree, each below the least other one that holds its leaves; None if nodes overlap otherwise.

        Nodes of the same leaves form a chain in the order of their rows.
        """
        if self._crossing or not (self.matrix.data == 1).all() or not self.leaf_counts.all():
            return None
        holders = holders_of(self.matrix, self.leaf_counts)
        return None if holders is None else NestedNodes.of(holders, self.leaf_counts)

    @cached_property
    def relations(self) -> sparse.csr_array:
        """Independent equations A x = 0 that hold between the nodes, (nodes - rank, nodes), as sparse as they come."""
        return self._relations_of_leaves() if self.nested is None else self.nested.relations()

    def _relations_of_leaves(self) -> sparse.csr_array:
        """One equation for every node that stands for no leaf."""
        reduced, leaf_node = self._distinct_leaves()
        if (leaf_node < 0).any():
            return relations_between_rows(self.matrix)
        stands_for_none = np.ones(self.size, dtype=bool)
        stands_for_none[leaf_node] = False
        others = np.flatnonzero(stands_for_none)
        if (reduced.data == 1).all():
            parts = disjoint_parts(reduced, leaf_node, others)
        else:
            parts = sparse.csr_array(reduced[others] @ _selection(leaf_node, self.size))
        return sparse.csr_array(_selection(others, self.size) - parts)

    def _distinct_leaves(self) -> tuple[sparse.csr_array, Index]:
        """S without leaves that occur nowhere or only together with another, and the node that is each, or -1."""
        single = self.matrix.indptr[:-1][self.leaf_counts == 1]
        kept = np.zeros(self.matrix.shape[1], dtype=bool)
        kept[self.matrix.indices[single]] = True  # no other leaf is in the same nodes
        others = np.flatnonzero(~kept)
        columns = sparse.csc_array(self.matrix[:, others])
        first = np.unique(kinds_of_rows(columns), return_index=True)[1]
        kept[others[first[np.diff(columns.indptr)[first] > 0]]] = True
        reduced = self.matrix if kept.all() else sparse.csr_array(self.matrix[:, kept])
        starts = reduced.indptr[:-1]
        alone = np.flatnonzero(np.diff(reduced.indptr) == 1)
        alone = alone[reduced.data[starts[alone]] == 1]
        leaf_node = np.full(reduced.shape[1], -1, dtype=np.intp)
        leaf_node[reduced.indices[starts[alone]]] = alone
        return reduced, leaf_node


def disjoint_parts(S: sparse.csr_array, leaf_node: Index, nodes: Index) -> sparse.csr_array:
    """Nodes as sums of disjoint smaller ones, the largest first, so that few are needed.

    Parameters
    ----------
    S : csr_array of 0 and 1, (N, leaves)
    leaf_node : ndarray of int, (leaves,)
        The node that is each leaf.
    nodes : ndarray of int
        The nodes to cut up, none of them in `leaf_node`.

    Returns
    -------
    csr_array of 0 and 1, (nodes, N)
    """
    sizes = np.diff(S.indptr)
    is_leaf = np.zeros(S.shape[0], dtype=bool)
    is_leaf[leaf_node] = True
    rank = np.empty(S.shape[0], dtype=np.intp)
    rank[np.lexsort((np.arange(S.shape[0]), ~is_leaf, sizes))] = np.arange(S.shape[0])
    inner, whole = np.flatnonzero(~is_leaf & (sizes > 0)), sparse.csr_array(S[nodes])
    row, part = _may_be_within(S, inner, whole)
    row, part = _largest_first(rank, nodes, row, part)
    first, made_up = _made_up_of_first(S, nodes, row, part)
    rows, columns = [row[first]], [part[first]]
    left = np.repeat(~made_up, np.diff(whole.indptr))
    others = ~made_up[row]
    row, part = row[others], part[others]
    chosen = _greedily(S, whole, row, part, left)
    rows.append(row[chosen])
    columns.append(part[chosen])
    rows.append(np.repeat(np.arange(nodes.size), np.diff(whole.indptr))[left])
    columns.append(leaf_node[whole.indices[left]])
    places = (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array((np.ones(places[0].size), places), shape=(nodes.size, S.shape[0]))


def _may_be_within(S: sparse.csr_array, inner: Index, whole: sparse.csr_array) -> tuple[Index, Index]:
    """Rows of `whole` and rows of S among `inner`, (k,), two of whose leaves lie in it: all within, and some more."""
    holders = sparse.csr_array(whole.T)
    ends = [S.indices[S.indptr[inner]], S.indices[S.indptr[inner + 1] - 1]]
    both = sparse.coo_array(holders[ends[0]].multiply(holders[ends[1]]))
    return both.col.astype(np.intp), inner[both.row]


def _largest_first(rank: Index, nodes: Index, row: Index, part: Index) -> tuple[Index, Index]:
    """Pairs, (pairs,), of a row of `nodes` and a part that is smaller, by rows, the largest part first."""
    smaller = rank[part] < rank[nodes[row]]
    row, part = row[smaller], part[smaller]
    order = np.lexsort((-rank[part], row))
    return row[order], part[order]


def _greedily(S: sparse.csr_array, whole: sparse.csr_array, row: Index, part: Index, left: Flags) -> Flags:
    """Which pairs, (pairs,), to choose for rows of `whole`, in turn, none overlapping; what they hold is not `left`."""
    chosen, is_open = np.zeros(row.size, dtype=bool), np.zeros(S.shape[1], dtype=bool)
    for start, stop in pairwise([*np.flatnonzero(np.diff(row, prepend=-1)).tolist(), row.size]):
        entries = slice(*whole.indptr[row[start] : row[start] + 2])
        is_open[whole.indices[entries]] = True
        open_leaves = entries.stop - entries.start
        for place in range(start, stop):
            leaves = S.indices[S.indptr[part[place]] : S.indptr[part[place] + 1]]
            if is_open[leaves].all():
                is_open[leaves], chosen[place] = False, True
                open_leaves -= leaves.size
                if not open_leaves:
                    break
        left[entries] = is_open[whole.indices[entries]]
        is_open[whole.indices[entries]] = False
    return chosen


def _made_up_of_first(S: sparse.csr_array, nodes: Index, row: Index, part: Index) -> tuple[Flags, Flags]:
    """Which pairs of one of `nodes`, (k,), and a part make it up, the first ones being disjoint; and which nodes, (k,).

    Pairs of one node are together, those of the largest parts first; parts may have leaves that the node has not.
    """
    sizes, of_parts = np.diff(S.indptr)[nodes], np.diff(S.indptr)[part].astype(np.intp)
    count = np.bincount(row, minlength=sizes.size)
    total = np.cumsum(of_parts)
    firsts = np.cumsum(count) - count
    held = total - np.repeat(np.concatenate([[0], total])[firsts], count)  # by this part and those before
    filled = np.bincount(row[held == sizes[row]], minlength=sizes.size) > 0
    first = filled[row] & (held <= sizes[row])
    rows, own = np.concatenate([row[first], np.arange(sizes.size)]), np.repeat([1.0, -1.0], [first.sum(), sizes.size])
    columns = np.concatenate([part[first], nodes])
    apart = sparse.coo_array(sparse.csr_array((own, (rows, columns)), shape=(sizes.size, S.shape[0])) @ S)
    made_up = np.bincount(apart.row[apart.data != 0], minlength=sizes.size) == 0
    return first & made_up[row], made_up


def _selection(rows: Index, size: int) -> sparse.csr_array:
    """Some rows, (k,), of an identity matrix, (k, size)."""
    return sparse.csr_array((np.ones(rows.size), (np.arange(rows.size), rows)), shape=(rows.size, size))

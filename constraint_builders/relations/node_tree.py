"""Nodes of which each is the sum of its children, a generation after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags, Index
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.relations.summing import NestedNodes
from constraint_builders.relations.tree_sums import TreeSums


@dataclass(frozen=True)
class Generation:
    """Nodes of one depth that have children, and those: places in the order of a tree.

    Attributes
    ----------
    parents : ndarray of int, (families,)
    children : slice
        Those of each family together, in the order of the parents.
    counts : ndarray of int, (families,)
        Of children.
    starts : ndarray of int, (families,), or None
        Where families start among the children; None where all have as many.
    """

    parents: Index
    children: slice
    counts: Index
    starts: Index | None

    def sums(self, own: NDArray) -> NDArray:
        """Of every family, (children, ...) to (families, ...)."""
        if self.starts is None:
            return own.reshape(self.parents.size, -1, *own.shape[1:]).sum(axis=1)
        return np.add.reduceat(own, self.starts, axis=0)

    def spread(self, X: NDArray) -> NDArray:
        """To every child what its family has, (families, ...) to (children, ...)."""
        return np.repeat(X, self.counts[0] if self.starts is None else self.counts, axis=0)


@dataclass(frozen=True)
class NodeTree:
    """Nodes in the order of their depth, children of a node together.

    Attributes
    ----------
    order : ndarray of int, (n,)
        The node at every place.
    roots : int
        How many, at the first places.
    generations : list of Generation
        From the roots down.
    rest : ndarray of bool, (n,)
        In that order, which nodes hold more than their children.
    natural : bool
        Whether every node is at the place of its number.
    """

    order: Index
    roots: int
    generations: list[Generation]
    rest: Flags
    natural: bool

    @classmethod
    def of(cls, nested: NestedNodes) -> NodeTree:
        """From the parent of every node."""
        parent, n = nested.parent, nested.parent.size
        roots = int(np.count_nonzero(parent < 0))
        natural = bool((parent[1:] >= parent[:-1]).all())
        order = np.arange(n) if natural else _by_depth(parent)
        if not natural:
            place = np.empty(n, dtype=np.intp)
            place[order] = np.arange(n)
            parent = np.where(parent < 0, -1, place[parent])[order]
        generations = []
        start, stop = 0, roots
        while stop < n:
            end = int(np.searchsorted(parent, stop))
            children = np.bincount(parent[stop:end] - start, minlength=stop - start)
            inner = np.flatnonzero(children)
            counts = children[inner]
            starts = None if (counts == counts[0]).all() else np.cumsum(counts) - counts
            generations.append(Generation(inner + start, slice(stop, end), counts, starts))
            start, stop = stop, end
        return cls(order, roots, generations, nested.rest if natural else nested.rest[order], natural)

    def in_order(self, X: NDArray) -> NDArray:
        """Rows of nodes, (n, ...), to the tree's order, a copy."""
        return X.copy() if self.natural else X[self.order]

    def by_node(self, X: NDArray) -> NDArray:
        """Rows in the tree's order, (n, ...), to nodes."""
        if self.natural:
            return X
        found = np.empty_like(X)
        found[self.order] = X
        return found

    @cached_property
    def _sums(self) -> TreeSums:
        """What these sums say, of nodes in the tree's order."""
        parent, depth = np.full(self.order.size, -1), np.zeros(self.order.size, dtype=np.intp)
        for number, family in enumerate(self.generations, 1):
            parent[family.children] = family.spread(family.parents)
            depth[family.children] = number
        levels = tuple(map(str, range(len(self.generations) + 1)))
        return TreeSums(LevelledTree(parent, depth, levels), self.rest)

    def determined(self, has: Flags) -> Flags:
        """At which nodes values at some, (n,), determine one."""
        return self.by_node(self._sums.determined(self.in_order(has)))

    def between(self, has: Flags) -> sparse.csr_array:
        """The equations A x = 0 that hold between nodes with a value, (n,), alone, (rows, n)."""
        found = self._sums.between(self.in_order(has)).tocoo()
        entries = found.data.astype(np.float64), (found.row, self.order[found.col])
        return sparse.csr_array(entries, shape=found.shape)


def _by_depth(parent: Index) -> Index:
    """All nodes, (n,), those of a depth together, and in these the children of a node."""
    below = np.argsort(parent, kind="stable")  # roots, then the children of node after node
    counts = np.bincount(parent + 1, minlength=parent.size + 1)
    starts = np.cumsum(counts) - counts
    levels, level = [], below[: counts[0]]
    while level.size:
        levels.append(level)
        own = counts[level + 1]
        first = np.cumsum(own) - own
        level = below[np.repeat(starts[level + 1] - first, own) + np.arange(own.sum())]
    return np.concatenate(levels)

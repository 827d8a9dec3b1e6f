"""Trees whose nodes are sums of their children: what values say of one another, generations, layers that nest.

Layers say of every leaf in which of their sets it lies. A layer after the other, those of few sets first, every set of
the next must lie in one set of those before, or in none. Each layer is read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Flags, Index, Int32, distinct_numbers
from constraint_builders.description.areas import Areas
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.relations.summing import NestedNodes


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


@dataclass(frozen=True)
class TreeSums:
    """A tree of which every node with children is their sum, but for a rest that some hold besides.

    Attributes
    ----------
    tree : LevelledTree
    rest : ndarray of bool, (N,)
        Which nodes hold more than their children.
    """

    tree: LevelledTree
    rest: Flags

    @classmethod
    def whole(cls, tree: LevelledTree) -> TreeSums:
        """Of a tree whose children leave no rest."""
        return cls(tree, np.zeros(tree.size, dtype=bool))

    def covered(self, has: Flags) -> Flags:
        """Nodes, (N,), without a rest whose children each have a value, (N,), or are covered in turn."""
        tree = self.tree
        covered = (tree.child_counts > 0) & ~self.rest
        for members in reversed(tree.members):
            known = has[members] | covered[members]
            parents = tree.parent[members[~known]]
            covered[parents[parents >= 0]] = False
        return covered

    def determined(self, has: Flags) -> Flags:
        """At which nodes values at some, (N,), determine one.

        From below, where all children are known and leave no rest; then from above, where a node is the only unknown
        part of one that is known.
        """
        tree = self.tree
        from_below = has if has.all() else has | self.covered(has)
        if from_below.all():
            return from_below
        unknown = np.bincount(tree.parent[(tree.parent >= 0) & ~from_below], minlength=tree.size) + self.rest
        determined = from_below.copy()
        for members in tree.members:
            parents = tree.parent[members]
            determined[members] |= (parents >= 0) & determined[parents] & (unknown[parents] == 1)
        return determined

    def between(self, has: Flags) -> sparse.csr_array:
        """Equations A x = 0 between nodes with a value, (N,): each that others cover is the nearest of them, (rows, N).

        Those below it that are nearest add up to it.
        """
        tree = self.tree
        whole = np.flatnonzero(has & self.covered(has))
        number = np.full(tree.size, -1)
        number[whole] = np.arange(whole.size)
        nearest = np.full(tree.size, -1, dtype=np.intp)  # strictly above
        for members in tree.members[1:]:
            parents = tree.parent[members]
            nearest[members] = np.where(has[parents], parents, nearest[parents])
        parts = np.flatnonzero(has & (nearest >= 0))
        parts = parts[number[nearest[parts]] >= 0]
        rows = np.concatenate([number[whole], number[nearest[parts]]])
        signs = np.repeat(np.array([1, -1], np.int8), [whole.size, parts.size])
        return sparse.csr_array((signs, (rows, np.concatenate([whole, parts]))), shape=(whole.size, tree.size))


UNSEEN = -2


def nested_layers(layers: Sequence[Int32], sizes: Sequence[int]) -> NestedNodes | None:
    """The sets of all layers as nodes, one layer after the other; None if layers of fewer sets do not hold the others.

    Of equal sets that of a layer of fewer sets holds the other, or else that of the earlier layer.

    Parameters
    ----------
    layers : sequence of ndarray of int32, (leaves,)
        Of every leaf the number of its set; -1 for none.
    sizes : sequence of int
        Numbers of sets.
    """
    order = sorted(range(len(layers)), key=lambda i: sizes[i])
    starts = np.cumsum([0, *sizes]).tolist()
    found = _runs_in_runs([layers[i] for i in order], [sizes[i] for i in order], [starts[i] for i in order])
    if found is not None:
        return found
    parent = np.full(starts[-1], UNSEEN, dtype=np.int32)
    counts = np.zeros(starts[-1], dtype=np.int32)
    latest = np.full(layers[0].size, -1, dtype=np.int32)
    for i in order:
        own = slice(starts[i], starts[i + 1])
        _place_layer(layers[i], starts[i], latest, parent[own], counts[own])
        if parent[starts[i]] == UNSEEN:
            return None
    return NestedNodes.of(parent.astype(np.intp), counts.astype(np.intp)) if counts.all() else None


def sets_of_layers(areas: Areas, levels: Iterable[int]) -> dict[int, Int32]:
    """Of the layers of disjoint sets among those at some positions, for every leaf the number of its set."""
    found = ((level, areas.layer(areas.levels[level]).area_of_leaf) for level in levels)
    return {level: own for level, own in found if own is not None}


def layers_cross(layers: Sequence[Int32], sizes: Sequence[int]) -> bool:
    """Whether a set of a layer and one of that of next more sets overlap otherwise than by one lying in the other.

    Other layers are not looked at: that none cross is not said.
    """
    for i, j in pairwise(sorted(range(len(layers)), key=lambda i: sizes[i])):
        both = (layers[i] >= 0) & (layers[j] >= 0)
        pairs, number = distinct_numbers(layers[i][both].astype(np.int64) * sizes[j] + layers[j][both])
        common = np.bincount(number, minlength=pairs.size)
        first, second = (np.bincount(layers[k][layers[k] >= 0], minlength=sizes[k]) for k in (i, j))
        if ((common < first[pairs // sizes[j]]) & (common < second[pairs % sizes[j]])).any():
            return True
    return False


def _runs_in_runs(layers: list[Int32], sizes: list[int], starts: list[int]) -> NestedNodes | None:
    """The same where in every layer all leaves lie in sets and those of each are side by side; None elsewhere.

    Layers of few sets come first; `starts` are the numbers of their first nodes.
    """
    parent = np.full(sum(sizes), UNSEEN, dtype=np.intp)
    above, changed_above = np.full(layers[0].size, -1, dtype=np.int32), np.zeros(layers[0].size - 1, dtype=bool)
    for layer, size, start in zip(layers, sizes, starts, strict=True):
        if layer.min() < 0:
            return None
        changed = layer[1:] != layer[:-1]
        if np.count_nonzero(changed) != size - 1 or np.logical_and(changed_above, ~changed, out=changed_above).any():
            return None
        if size == layer.size:
            parent[start + layer] = above
        else:
            first = np.concatenate([[0], np.flatnonzero(changed) + 1])
            parent[start + layer[first]] = above[first]
        above, changed_above = layer + np.int32(start), changed
    if parent.min() == UNSEEN:  # a set of no leaves, and another of several runs
        return None
    return NestedNodes(parent, np.zeros(parent.size, dtype=bool))


def _place_layer(own: Int32, start: int, latest: Int32, parent: Int32, counts: Int32) -> None:
    """Put the sets of a layer below those that hold their leaves so far, in place.

    Where there is no such one of all leaves of a set, all is as if no layer had been there.

    Parameters
    ----------
    own : ndarray of int32, (leaves,)
        Of every leaf the number of its set; -1 for none.
    start : int
        Of the layer's first set the number as a node.
    latest : ndarray of int32, (leaves,)
        Of every leaf the node that it lies in, -1 for none; becomes its node of this layer where it has one.
    parent, counts : ndarray of int32, (sets,)
        Of every set the node that it lies in, -1 for none, and the number of its leaves; -2 and 0 where it has none.
    """
    held = slice(None) if own.min(initial=0) >= 0 else own >= 0
    sets, above = own[held], latest[held]
    parent[sets] = above
    if not np.array_equal(parent[sets], above):
        latest[:], parent[:] = -1, UNSEEN
        return
    latest[held] = sets + np.int32(start)
    counts += np.bincount(sets, minlength=counts.size).astype(np.int32)

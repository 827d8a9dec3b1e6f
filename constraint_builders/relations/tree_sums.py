"""What sums over a tree say of its nodes: which values determine which, and what holds between some of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Flags
from constraint_builders.description.levelled_tree import LevelledTree


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
            above = (parents >= 0) & determined[parents] & (unknown[parents] == 1)
            determined[members] |= above
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

"""What the children of every geounit tell together, pair by pair.

Children are added up in pairs of neighbours, pairs of these, until one is left for every parent: sums of two share what
a parent learns without subtracting one covariance from another.
"""

from __future__ import annotations

import numpy as np

from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.messages import Message, add, part
from constraint_builders.arrays import Float, Index


def merges_of(owners: Index) -> tuple[list[tuple[Index, Index, slice]], Index, int]:
    """How terms are added up by their owner, (terms,), given in order of owners; every owner has a term.

    Returns
    -------
    rounds : list of (left, right, total)
        Which are added up to which, (merges,) each; terms are numbered from 0, and sums on from these.
    totals : ndarray of int, (owners,)
        The last sum of every owner, or its only term.
    size : int
        Terms and sums together.
    """
    nodes, size = np.arange(owners.size), owners.size
    counts = np.unique(owners, return_counts=True)[1]
    rounds: list[tuple[Index, Index, slice]] = []
    while nodes.size > counts.size:
        even = (np.arange(nodes.size) - np.repeat(np.cumsum(counts) - counts, counts)) % 2 == 0
        left = np.flatnonzero(even[:-1] & ~even[1:])
        rounds.append((nodes[left], nodes[left + 1], slice(size, size + left.size)))
        nodes[left] = np.arange(size, size + left.size)
        nodes, counts, size = nodes[even], (counts + 1) // 2, size + left.size
    return rounds, nodes, size


class SumOfChildren:
    """Children of some geounits, added up.

    Parameters
    ----------
    children : Message, (components, pairs, m, m)
        In order of their parents.
    counts : ndarray, (pairs,)
        How many each stands for.
    owners : ndarray of int, (pairs,)
        Its parent.

    Attributes
    ----------
    total : Message, (components, geounits, m, m)
    """

    def __init__(self, children: Message, counts: Float, owners: Index) -> None:
        self._children, self._counts = children, counts
        self._rounds, self._totals, self._size = merges_of(owners)
        components, terms, m, _ = children.root.shape
        nodes = Message.zeros((components, self._size, m, m))
        nodes[:, :terms] = children.repeated(counts)
        self._partings = []
        for left, right, total in self._rounds:
            one, other = nodes[:, left], nodes[:, right]
            nodes[:, total] = add(one, other)
            self._partings.append(part(one, other))
        self.total = nodes[:, self._totals]

    def share(self, above: Float) -> tuple[Float, Float]:
        """Of every pair the gain, and a square root of the posterior covariance; from those of the geounits above."""
        components, terms, m, _ = self._children.root.shape
        gain = np.zeros((components, self._size, m, m))
        root = np.zeros_like(gain)
        gain[:, self._totals], root[:, self._totals] = np.eye(m), above
        for (*places, total), (*shares, own) in reversed([*zip(self._rounds, self._partings, strict=True)]):
            for place, share in zip(places, shares, strict=True):
                gain[:, place] = share @ gain[:, total]
                root[:, place] = compress(own, share @ root[:, total])
        several = np.flatnonzero(self._counts > 1)
        if several.size:  # who share evenly
            counts, children = self._counts[several][:, None, None], self._children[:, several]
            gain[:, several] = (np.eye(m) - children.exact) @ gain[:, several] / counts
            root[:, several] = compress(children.root * np.sqrt(1 - 1 / counts), root[:, several] / counts)
        return gain[:, :terms], root[:, :terms]

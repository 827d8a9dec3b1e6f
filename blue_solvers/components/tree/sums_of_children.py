"""What the children of every geounit tell together, pair by pair.

Children are added up in pairs of neighbours, pairs of these, until one is left for every parent: sums of two share what
a parent learns without subtracting one covariance from another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.messages import Message, Parting, add, part
from constraint_builders.arrays import Float, Index


@dataclass(frozen=True)
class Merges:
    """A forest of sums over terms, numbered from 0, and over sums, numbered on.

    Attributes
    ----------
    rounds : list of (left, right, total)
        Which numbers are added up to which, (merges,) each.
    totals : ndarray of int, (owners,)
        The last sum of every owner, or its only term.
    size : int
        Terms and sums together.
    """

    rounds: list[tuple[Index, Index, Index]]
    totals: Index
    size: int


def merges_of(owners: Index) -> Merges:
    """Merges of terms by their owner, (terms,), given in order of owners; every owner has a term."""
    nodes, size = np.arange(owners.size), owners.size
    rounds: list[tuple[Index, Index, Index]] = []
    while True:
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        if starts.size == owners.size:
            return Merges(rounds, nodes, size)
        counts = np.diff(np.append(starts, owners.size))
        rank = np.arange(owners.size) - np.repeat(starts, counts)
        even = rank % 2 == 0
        paired = even & (rank + 1 < np.repeat(counts, counts))
        left = np.flatnonzero(paired)
        total = size + np.arange(left.size)
        rounds.append((nodes[left], nodes[left + 1], total))
        nodes = nodes.copy()
        nodes[left] = total
        nodes, owners = nodes[even], owners[even]
        size += left.size


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
        self._children, self._counts, self._merges = children, counts, merges_of(owners)
        self._nodes, self._partings = self._add_up()
        self.total = self._nodes[:, self._merges.totals]

    def _add_up(self) -> tuple[Message, list[Parting]]:
        components, terms, m, _ = self._children.root.shape
        nodes, partings = Message.zeros((components, self._merges.size, m, m)), []
        repeated = flattened(self._children).repeated(np.tile(self._counts, components))
        nodes[:, :terms] = raised(repeated, (components, terms))
        for left, right, total in self._merges.rounds:
            one, other = flattened(nodes[:, left]), flattened(nodes[:, right])
            nodes[:, total] = raised(add(one, other), (components, total.size))
            partings.append(part(one, other))
        return nodes, partings

    def share(self, above: Float) -> tuple[Float, Float]:
        """Of every pair the gain, and a square root of the posterior covariance; from those of the geounits above."""
        components, terms, m, _ = self._children.root.shape
        gain = np.zeros((components, self._merges.size, m, m))
        root = np.zeros_like(gain)
        gain[:, self._merges.totals], root[:, self._merges.totals] = np.eye(m), above
        for (left, right, total), parting in zip(reversed(self._merges.rounds), reversed(self._partings), strict=True):
            shape = components, total.size, m, m
            for place, own in ((left, parting.left), (right, parting.right)):
                own = own.reshape(shape)
                gain[:, place] = own @ gain[:, total]
                learnt = (own @ root[:, total]).reshape(-1, m, m)
                root[:, place] = compress(parting.root, learnt).reshape(shape)
        several = np.flatnonzero(self._counts > 1)
        if several.size:
            self._share_among_equals(several, gain, root)
        return gain[:, :terms], root[:, :terms]

    def _share_among_equals(self, several: Index, gain: Float, root: Float) -> None:
        counts = self._counts[several][:, None, None]
        children = self._children[:, several]
        gain[:, several] = (np.eye(gain.shape[-1]) - children.exact) @ gain[:, several] / counts
        own, learnt = children.root * np.sqrt(1 - 1 / counts), root[:, several] / counts
        shape, m = own.shape, own.shape[-1]
        root[:, several] = compress(own.reshape(-1, m, m), learnt.reshape(-1, m, m)).reshape(shape)


def flattened(message: Message) -> Message:
    """From (components, entries, m, m) to one batch."""
    m = message.root.shape[-1]
    return Message(*(array.reshape(-1, m, m) for array in message.arrays))


def raised(message: Message, shape: tuple[int, ...]) -> Message:
    """The inverse of `flattened`."""
    m = message.root.shape[-1]
    return Message(*(array.reshape(*shape[:2], m, m) for array in message.arrays))

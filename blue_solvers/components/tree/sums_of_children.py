"""What the children of every geounit tell together, pair by pair."""

from __future__ import annotations

import numpy as np

from blue_solvers.components.orthogonal import compress
from blue_solvers.components.tree.merges import merges_of
from blue_solvers.components.tree.messages import Message, Parting, add, part
from constraint_builders.arrays import Float, Index


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

"""Which geounits with children are alike: measured alike, their children alike and as many, and their parents the same.

Everything that coefficients depend on, below them and above, is then the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blue_solvers.components.batches import starts_of
from constraint_builders.arrays import Index, as_slice
from constraint_builders.description.levelled_tree import LevelledTree


@dataclass(frozen=True)
class Families:
    """Geounits with children by family, and pairs of a family and a class of its children.

    Attributes
    ----------
    geounits : ndarray of int, (families,)
        One geounit of each, increasing.
    of_parent : ndarray of int
        For every geounit with children its family.
    parent, child_class, count : ndarray of int, (entries,)
        Of every pair the family, in order of these; the children's class; and how many of them a geounit has.
    of_pair : ndarray of int
        For every pair of a geounit and a class of its children the pair of its family.
    """

    geounits: Index
    of_parent: Index
    parent: Index
    child_class: Index
    count: Index
    of_pair: Index

    @classmethod
    def of(cls, parents: Index, class_of: Index, pair_parent: Index, pair_class: Index, pair_count: Index) -> Families:
        """From geounits with children, classes of all geounits, and pairs in order of geounits with children."""
        first, of_parent = np.unique(class_of[parents], return_index=True, return_inverse=True)[1:]
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        of_parent, first = rank[of_parent.ravel()], first[order]
        if first.size == parents.size:
            return cls(parents, of_parent, pair_parent, pair_class, pair_count, np.arange(pair_parent.size))
        own = np.flatnonzero(np.isin(pair_parent, first))
        keys = of_parent[pair_parent] * class_of.size + pair_class
        of_pair = np.searchsorted(keys[own], keys)
        return cls(parents[first], of_parent, of_parent[pair_parent[own]], pair_class[own], pair_count[own], of_pair)

    @cached_property
    def starts(self) -> Index:
        """Where the pairs of every family start, and end, (families + 1,)."""
        return starts_of(self.parent, self.geounits.size)

    def pairs_of(self, numbers: Index) -> tuple[slice | Index, Index]:
        """The pairs of some families, one after the other, and where those of each start, and end."""
        rows = as_slice(numbers)
        if isinstance(rows, slice):
            own = self.starts[rows.start : rows.stop + 1]
            return slice(int(own[0]), int(own[-1])), own - own[0]
        firsts, counts = self.starts[numbers], self.starts[numbers + 1] - self.starts[numbers]
        stops = np.cumsum([0, *counts])
        return np.repeat(firsts - stops[:-1], counts) + np.arange(stops[-1]), stops


def alike_with_children(spine: LevelledTree, own: Index) -> Index:
    """For every geounit a number that those share that are alike; of geounits without children `own` is all there is.

    Parameters
    ----------
    spine : LevelledTree
    own : ndarray of int, (N,)
        A number that geounits share that were measured alike at one geolevel.
    """
    subtree = _subtrees_alike(spine, own)
    found = subtree.copy()
    for members in spine.members[1:]:
        inner = members[spine.child_counts[members] > 0]
        pairs = np.stack([found[spine.parent[inner]], subtree[inner]], axis=1)
        first, numbers = np.unique(pairs, axis=0, return_index=True, return_inverse=True)[1:]
        found[inner] = spine.size + inner[first][numbers.ravel()]  # apart from all others
    return found


def _subtrees_alike(spine: LevelledTree, own: Index) -> Index:
    """The same by what lies below alone."""
    found = own.copy()
    below = np.argsort(spine.parent, kind="stable")
    starts = np.searchsorted(spine.parent[below], np.arange(spine.size + 1))
    known: dict[tuple[int, bytes], int] = {}
    for members in reversed(spine.members):
        for geounit in members[spine.child_counts[members] > 0].tolist():
            children = np.sort(found[below[starts[geounit] : starts[geounit + 1]]])
            found[geounit] = known.setdefault((int(own[geounit]), children.tobytes()), spine.size + geounit)
    return found

"""Units of one parent: which may change places, and what every change would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.spine_design.block_functionals import CellSpace
from blue_solvers.spine_design.contributions import Triple, inverse, leaf_sums, leaf_variance, member_sums
from constraint_builders.arrays import Float, Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import level_above


@dataclass(frozen=True)
class RegroupingChange:
    """Two groups, and how many members of each kind they have afterwards: (), (), (kinds,), (kinds,), or n of these.

    `other` may be one more than the last group: a new one.
    """

    group: Index
    other: Index
    counts: Index
    other_counts: Index

    def __getitem__(self, index: int) -> RegroupingChange:
        return RegroupingChange(self.group[index], self.other[index], self.counts[index], self.other_counts[index])


class GroupedChildren:
    """A geounit whose children are being grouped: for every group how many members it has of each kind.

    Members of a kind contribute alike, so that only their numbers matter. `functionals` are those that some member
    meets. A group that has more members than `most` already may keep them, but gets no more.
    """

    def __init__(self, kinds: Triple, counts: Index, functionals: Index, most: int) -> None:
        self.kinds, self.counts, self.functionals, self.most = kinds, counts, functionals, most

    def group_sums(self, counts: NDArray, information: Float) -> Triple:
        """What groups contribute, (groups,); an empty one nothing."""
        filled = np.asarray(counts.any(axis=-1))[..., None, None]
        sums = self.kinds.summed(counts)
        sums = Triple(np.where(filled, sums.s0, np.eye(sums.s0.shape[-1])), sums.s1, sums.s2)
        lifted = sums.lifted(information)
        return Triple(np.where(filled, lifted.s0, 0.0), lifted.s1, lifted.s2)

    def sums(self, information: Float) -> Triple:
        """Sum of what all groups contribute, each with information (d, d)."""
        groups = self.group_sums(self.counts, information)
        return Triple(groups.s0.sum(axis=0), groups.s1.sum(axis=0), groups.s2.sum(axis=0))

    def changes(self) -> Iterator[RegroupingChange]:
        """All mergers of two groups, then all moves of members of one kind to another group or a new one."""
        yield from (changes for changes in (self._mergers(), self._moves()) if changes.group.size)

    def _mergers(self) -> RegroupingChange:
        sizes = self.counts.sum(axis=1)
        first, second = np.triu_indices(sizes.size, 1)
        fits = sizes[first] + sizes[second] <= self.most
        first, second = first[fits], second[fits]
        return RegroupingChange(
            first, second, self.counts[first] + self.counts[second], np.zeros_like(self.counts[first])
        )

    def _moves(self) -> RegroupingChange:
        sizes = self.counts.sum(axis=1)
        giver, kind = np.nonzero(self.counts)
        room = np.append(self.most - sizes, self.most)
        giver, taker = np.repeat(giver, room.size), np.tile(np.arange(room.size), giver.size)
        kind = np.repeat(kind, room.size)
        moved = np.minimum(self.counts[giver, kind], room[taker])
        sensible = (moved > 0) & (giver != taker) & (moved < sizes[giver])
        giver, taker, kind, moved = (array[sensible] for array in (giver, taker, kind, moved))
        change = np.zeros((giver.size, self.counts.shape[1]), dtype=np.intp)
        change[np.arange(giver.size), kind] = moved
        padded = np.vstack([self.counts, np.zeros_like(self.counts[:1])])
        return RegroupingChange(giver, taker, padded[giver] - change, padded[taker] + change)

    def apply(self, change: RegroupingChange) -> None:
        """Make one change."""
        counts = np.vstack([self.counts, np.zeros_like(self.counts[:1])])
        counts[change.group], counts[change.other] = change.counts, change.other_counts
        self.counts = counts[counts.any(axis=1)]


class MembersOfGroups:
    """The geounits that are being grouped, family by family; `kind` numbers the leaves' kinds."""

    def __init__(
        self,
        spine: Spine,
        information: Mapping[str, Float],
        space: CellSpace,
        kind: Index,
        level: str,
        rule: Callable[[int], int],
    ) -> None:
        self.above = spine.level_index(level_above(spine, level))
        below = self.above + 2
        if below >= len(spine.levels):
            raise ValueError(f"geolevel {level!r} has nothing below it to group")
        self._spine, self._information, self._group_information = spine, information, information[level]
        self._space = space
        self.units = spine.members[below]
        self._group = spine.parent[self.units]
        parent = spine.rank_in_level[spine.parent[self._group]]
        order = np.lexsort((np.array([spine.geocodes[i] for i in self.units]), parent))
        self.of_family = np.split(order, np.cumsum(np.bincount(parent))[:-1])
        self._variance = leaf_variance(spine, information)
        if below == len(spine.levels) - 1:
            self._kind, self._sums = kind, None
        else:
            self._kind = np.arange(self.units.size)
            self._sums = member_sums(spine, information, space, below)
        self._most = [rule(rows.size) for rows in self.of_family]

    def kinds_of(self, number: int) -> Index:
        """For every member of a family the number of its kind."""
        return np.unique(self._kind[self.of_family[number]], return_inverse=True)[1]

    def family(self, number: int) -> GroupedChildren:
        """Kinds and groups of a family as they are on the spine."""
        rows, kind = self.of_family[number], self.kinds_of(number)
        owner = np.unique(self._group[rows], return_inverse=True)[1]
        counts = np.zeros((owner.max() + 1, kind.max() + 1), dtype=np.intp)
        np.add.at(counts, (owner, kind), 1)
        kinds = self._contributions(number, np.zeros_like(self._group_information))
        met = np.flatnonzero((kinds.s2 != 0).any(axis=0))
        return GroupedChildren(kinds.of(met), counts, met, self._most[number])

    def relaxed_sums(self, number: int) -> Triple:
        """What all members contribute, each with the most information that groups can add to it."""
        rows = self.of_family[number]
        largest = int(np.unique(self._group[rows], return_counts=True)[1].max())
        extra = self._group_information * min(max(self._most[number], largest), rows.size)
        kinds, counts = self._contributions(number, extra), np.bincount(self.kinds_of(number))
        return kinds.summed(counts)

    def _contributions(self, number: int, extra: Float) -> Triple:
        """What a member of every kind of a family contributes, with additional information, (d, d)."""
        rows = self.of_family[number]
        first = rows[np.unique(self._kind[rows], return_index=True)[1]]
        if self._sums is not None:
            level = self._spine.level_of[self.units[0]]
            return self._sums[first].lifted(self._information[self._spine.levels[level]] + extra)
        variance = inverse(inverse(self._variance) + extra)
        chosen = sparse.csr_array(sparse.eye_array(self.units.size, format="csr")[first])
        return leaf_sums(self._space, variance, chosen)

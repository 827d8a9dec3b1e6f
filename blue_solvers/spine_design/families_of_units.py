"""Units of one parent: which may change places, and what every change would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.spine_design.totals import Triple, leaf_variance, member_sums
from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities
from constraint_builders.geography.partitions import level_above


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

    Members of a kind contribute alike, so that only their numbers matter. `entities` are those that some member meets.
    """

    def __init__(self, kinds: Triple, counts: Index, entities: Index, most: int) -> None:
        self.kinds, self.counts, self.entities, self.most = kinds, counts, entities, most

    def group_sums(self, counts: NDArray, precision: float) -> Triple:
        """What groups contribute, (groups,); an empty one nothing."""
        filled = counts.any(axis=-1)
        sums = self.kinds.summed(counts)
        sums = Triple(np.where(filled, sums.s0, 1.0), sums.s1, sums.s2)
        lifted = sums.lifted(precision)
        return Triple(np.where(filled, lifted.s0, 0.0), lifted.s1, lifted.s2)

    def sums(self, precision: float) -> Triple:
        """Sum of what all groups contribute."""
        groups = self.group_sums(self.counts, precision)
        return Triple(groups.s0.sum(), groups.s1.sum(axis=0), groups.s2.sum(axis=0))

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
    """The geounits that are being grouped, family by family."""

    def __init__(
        self, spine: Spine, precisions: Mapping[str, float], entities: Entities, level: str, rule: Callable[[int], int]
    ) -> None:
        self.above = spine.level_index(level_above(spine, level))
        below = self.above + 2
        if below >= len(spine.levels):
            raise ValueError(f"geolevel {level!r} has nothing below it to group")
        self._spine, self._precisions, self._group_precision = spine, precisions, precisions[level]
        self.units = spine.members[below]
        self._group = spine.parent[self.units]
        parent = spine.rank_in_level[spine.parent[self._group]]
        order = np.lexsort((np.array([spine.geocodes[i] for i in self.units]), parent))
        self.of_family = np.split(order, np.cumsum(np.bincount(parent))[:-1])
        self._variance = leaf_variance(spine, precisions)
        if below == len(spine.levels) - 1:
            self._kind = entities.intersections()
            self._inside = sparse.csr_array(entities.contains.T)
            self._sums = None
        else:
            self._kind = np.arange(self.units.size)
            self._sums = member_sums(spine, precisions, entities, below)
        self._most = [rule(rows.size) for rows in self.of_family]
        self._refuse_crowds(level)

    def _refuse_crowds(self, level: str) -> None:
        for rows, most in zip(self.of_family, self._most, strict=True):
            groups, sizes = np.unique(self._group[rows], return_counts=True)
            if sizes.max() > most:
                code = self._spine.geocodes[groups[sizes.argmax()]]
                raise ValueError(
                    f"{level} {code!r} has {sizes.max()} members, the fan-out rule allows {most}: start from the "
                    "groups of `regroup_blocks` or `group_tracts`, or raise fanout_cutoff"
                )

    def kinds_of(self, number: int) -> Index:
        """For every member of a family the number of its kind."""
        return np.unique(self._kind[self.of_family[number]], return_inverse=True)[1]

    def family(self, number: int) -> GroupedChildren:
        """Kinds and groups of a family as they are on the spine."""
        rows, kind = self.of_family[number], self.kinds_of(number)
        owner = np.unique(self._group[rows], return_inverse=True)[1]
        counts = np.zeros((owner.max() + 1, kind.max() + 1), dtype=np.intp)
        np.add.at(counts, (owner, kind), 1)
        kinds = self._contributions(number, 0.0)
        met = np.flatnonzero((kinds.s2 != 0).any(axis=0))
        return GroupedChildren(kinds.of(met), counts, met, self._most[number])

    def relaxed_sums(self, number: int) -> Triple:
        """What all members contribute, each with the most information that groups can add to it."""
        extra = self._group_precision * min(self._most[number], self.of_family[number].size)
        kinds, counts = self._contributions(number, extra), np.bincount(self.kinds_of(number))
        return kinds.summed(counts)

    def _contributions(self, number: int, extra: float) -> Triple:
        """What a member of every kind of a family contributes, with additional precision."""
        rows = self.of_family[number]
        first = rows[np.unique(self._kind[rows], return_index=True)[1]]
        if self._sums is not None:
            level = self._spine.level_of[self.units[0]]
            return self._sums[first].lifted(self._precisions[self._spine.levels[level]] + extra)
        variance = 1 / (1 / self._variance + extra)
        part = variance * self._inside[first].toarray()
        return Triple(np.full(first.size, variance), part, part)

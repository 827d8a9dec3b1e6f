"""Optimised groups of blocks and of tracts (Algorithm 2).

Blocks are regrouped within the intersections of entities (first part); tracts are merged greedily while no entity gets
further from the spine (second part).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import (
    Entities,
    ancestors,
    check_blocks,
    leaves,
    level_above,
    numbers_within,
    relabel,
)
from constraint_builders.geography.off_spine import PairCosts, cheaper, child_sums_and_costs

Variant: TypeAlias = Literal["paper", "production"]
VARIANTS = ("paper", "production")
FANOUT_CUTOFF = 12  # production default
ENTITY_THRESHOLD = 9  # production default


def most_members(count: int, fanout_cutoff: int = FANOUT_CUTOFF, variant: Variant = "paper") -> int:
    """The most geounits that a group may have among `count` under one parent.

    Parameters
    ----------
    count : int
        Geounits under the parent: blocks of the tract, or tracts of the county.
    fanout_cutoff : int
        Added to the square root of `count`.
    variant : {"paper", "production"}
        The paper says up to sqrt(count) + fanout_cutoff. The production code opens a new block group when the number
        exceeds that, and so allows one more.

    Raises
    ------
    ValueError
        If the cutoff leaves no room for any, or the variant is unknown.
    """
    check_variant(variant)
    most = math.isqrt(count) + fanout_cutoff + (variant == "production")
    if most < 1:
        raise ValueError(f"fanout_cutoff {fanout_cutoff} allows {most} geounits in a group of {count}: raise it")
    return most


def check_variant(variant: str) -> None:
    """Raise `ValueError` for a variant that is neither the paper's nor the production code's."""
    if variant not in VARIANTS:
        raise ValueError(f"variant {variant!r} is unknown: use 'paper' or 'production'")


def regroup_blocks(
    spine: Spine,
    entities: Entities,
    *,
    fanout_cutoff: int = FANOUT_CUTOFF,
    variant: Variant = "paper",
    level: str = "Block_Group",
) -> Spine:
    """Redefine block groups so that each lies within one intersection of entities.

    Within the tract, blocks that lie in the same entities are taken in the order of their geocodes and cut into groups
    of `most_members`; only the last of them may be smaller.

    Parameters
    ----------
    spine : Spine
        With a geolevel above and one below `level`, each an ancestor of every block.
    entities : Entities
    fanout_cutoff, variant
        See `most_members`.
    level : str
        The geolevel to redefine.

    Returns
    -------
    Spine
        With groups named after the geounit above and a number, and the blocks in the same order.

    Raises
    ------
    ValueError
        If the entities are of another number of blocks, or the spine lacks the levels.

    References
    ----------
    Paper, Algorithm 2.
    """
    check_blocks(leaves(spine).size, entities.blocks)
    over = ancestors(spine, level_above(spine, level))
    sizes = np.bincount(over)
    most = np.array([most_members(int(n), fanout_cutoff, variant) if n else 0 for n in sizes])[over]
    codes = np.array([spine.geocodes[i] for i in leaves(spine)])
    cell = entities.intersections()
    order = np.lexsort((codes, cell, over))
    chunk = np.empty(order.size, dtype=np.intp)
    owner = over[order] * (cell.max() + 1) + cell[order]
    chunk[order] = numbers_within(owner) // most[order]
    return relabel(spine, level, name_groups(spine, over, np.stack([over, cell, chunk])))


def name_groups(spine: Spine, over: NDArray[np.intp], keys: NDArray[np.intp]) -> list[str]:
    """Geocodes of groups of leaves: that of the geounit above, and a number.

    Parameters
    ----------
    spine : Spine
    over : ndarray of int, (L,)
        For every leaf the geounit that its group lies under.
    keys : ndarray of int, (r, L)
        Leaves with equal columns form a group.
    """
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    group = group.ravel()
    by_appearance = np.argsort(first)
    number = np.empty(first.size, dtype=np.intp)
    number[by_appearance] = numbers_within(over[first][by_appearance])
    return [f"{spine.geocodes[unit]}-{number[g]:02d}" for unit, g in zip(over, group, strict=True)]


def group_tracts(
    spine: Spine,
    entities: Entities,
    *,
    fanout_cutoff: int = FANOUT_CUTOFF,
    variant: Variant = "paper",
    entity_threshold: int = ENTITY_THRESHOLD,
    members: str = "Tract",
    level: str = "Tract_Group",
) -> Spine:
    """Put a level of groups above the tracts, merged so that the vector of OSEDs never grows lexicographically.

    Every tract starts as a group of its own. In every county pairs of groups are tried in order, and merged where the
    merged group has at most `most_members` tracts and the vector of all OSEDs, sorted from the largest down, becomes
    lexicographically less or stays the same.

    Parameters
    ----------
    spine : Spine
        Usually with optimised block groups already.
    entities : Entities
    fanout_cutoff : int
        See `most_members`; its count is here that of the tracts in the county, and both variants have the paper's
        limit.
    variant : {"paper", "production"}
        ``"production"`` first joins tracts that meet the same entities, in chunks of the most that a group may have;
        then merges as in the paper, but looking at the county alone and only at entities whose distance there exceeds
        `entity_threshold`.
    entity_threshold : int
        Used by ``"production"``.
    members, level : str
        The level to group, and the name of the new one.

    Returns
    -------
    Spine
        With one more level; blocks in the same order.

    Raises
    ------
    ValueError
        If the entities are of another number of blocks, or the spine lacks the levels or has `level` already.

    References
    ----------
    Paper, Algorithm 2. Production code: optimize_spine.py, lines 116 to 245.
    """
    check_variant(variant)
    sums, costs = child_sums_and_costs(spine, entities)
    counties = np.unique(ancestors(spine, level_above(spine, members)))
    tracts = ancestors(spine, members)
    group_of = np.zeros(spine.size, dtype=np.intp)
    above = _Above(spine, sums)
    for county in counties:
        children = np.unique(tracts[spine.parent[tracts] == county])
        most = most_members(children.size, fanout_cutoff)
        pairs = costs.matrix[children]
        met = np.unique(pairs.indices)
        dense = pairs[:, met].toarray()
        inside, outside = dense.real.astype(np.intp), dense.imag.astype(np.intp) + 1
        if variant == "production":
            group_of[children] = _production_groups(inside, outside, most, entity_threshold)
        else:
            merging = _Merging(inside, outside, [[tract] for tract in range(len(inside))], most)
            merging.run(above.root_costs(int(county), met))
            above.update(int(county), met, *merging.total())
            group_of[children] = merging.labels()
    return relabel(spine, level, _group_names(spine, tracts, group_of), above=members)


class _Above:
    """Sums of costs in the geounits above the counties, kept up to date as counties change."""

    def __init__(self, spine: Spine, sums: PairCosts) -> None:
        self._spine = spine
        self._sums = sums
        self._known: dict[int, tuple[Index, Index]] = {}

    def _sums_of(self, geounit: int) -> tuple[Index, Index]:
        if geounit not in self._known:
            self._known[geounit] = self._sums.row(geounit)
        return self._known[geounit]

    def root_costs(self, county: int, met: Index) -> _RootCosts:
        """OSEDs of the entities met, (K,), as a function of the sums of costs over the county's groups."""
        inside, outside = (part[met] for part in self._sums_of(county))
        before = cheaper(inside, outside)
        rest: list[tuple[Index, Index]] = []
        geounit = int(self._spine.parent[county])
        while geounit >= 0:
            sum_inside, sum_outside = (part[met] for part in self._sums_of(geounit))
            rest.append((sum_inside - before[0], sum_outside - before[1]))
            before = cheaper(sum_inside, sum_outside)
            geounit = int(self._spine.parent[geounit])
        return _RootCosts(rest)

    def update(self, county: int, met: Index, inside: Index, outside: Index) -> None:
        """Set the sums over the county's groups, (K,) each, of the entities met."""
        geounit = county
        while True:
            old = self._sums_of(geounit)
            before = cheaper(old[0][met], old[1][met])
            old[0][met], old[1][met] = inside, outside
            parent = int(self._spine.parent[geounit])
            if parent < 0:
                return
            after = cheaper(inside, outside)
            sums = self._sums_of(parent)
            inside = sums[0][met] + after[0] - before[0]
            outside = sums[1][met] + after[1] - before[1]
            geounit = parent


@dataclass(frozen=True)
class _RootCosts:
    """OSEDs from the sums over a county's groups, the rest of the country staying as it is."""

    rest: list[tuple[Index, Index]]

    def __call__(self, inside: Index, outside: Index) -> Index:
        """OSEDs, (..., K), from the sums of costs over the county's groups, of entities and their complements."""
        costs = cheaper(inside, outside)
        for rest_inside, rest_outside in self.rest:
            costs = cheaper(rest_inside + costs[0], rest_outside + costs[1])
        return costs[0]


class _Merging:
    """Groups of one county: sums over their tracts of the costs of every entity and its complement, (groups, K)."""

    def __init__(self, inside: Index, outside: Index, groups: list[list[int]], most: int) -> None:
        self.inside, self.outside, self.groups, self.most = inside, outside, groups, most

    def total(self) -> tuple[Index, Index]:
        """Sums of costs over the groups, (K,) each."""
        inside, outside = cheaper(self.inside, self.outside)
        return inside.sum(axis=0), outside.sum(axis=0)

    def labels(self) -> Index:
        """For every tract the number of its group."""
        labels = np.empty(sum(map(len, self.groups)), dtype=np.intp)
        for number, group in enumerate(self.groups):
            labels[group] = number
        return labels

    def run(self, root_costs: _RootCosts) -> None:
        """Merge pairs in order where the rules allow it."""
        first = 0
        while first < len(self.groups):
            second = first + 1
            while (found := self._acceptable(first, second, root_costs)) is not None:
                self._merge(first, found)
                second = found
            first += 1

    def _acceptable(self, first: int, start: int, root_costs: _RootCosts) -> int | None:
        """The first group from `start` on that may join the group `first`."""
        sizes = np.array([len(group) for group in self.groups])
        candidates = start + np.flatnonzero(sizes[start:] + sizes[first] <= self.most)
        if not candidates.size:
            return None
        total_inside, total_outside = self.total()
        old = cheaper(self.inside, self.outside)
        new = cheaper(self.inside[first] + self.inside[candidates], self.outside[first] + self.outside[candidates])
        changed = [
            total + new_part - old_part[first] - old_part[candidates]
            for total, new_part, old_part in zip((total_inside, total_outside), new, old, strict=True)
        ]
        now = np.sort(root_costs(total_inside, total_outside))[::-1]
        then = np.sort(root_costs(changed[0], changed[1]), axis=1)[:, ::-1]
        allowed = np.flatnonzero(~_lexicographically_more(then, now))
        return int(candidates[allowed[0]]) if allowed.size else None

    def _merge(self, first: int, second: int) -> None:
        for part in (self.inside, self.outside):
            part[first] += part[second]
        self.inside = np.delete(self.inside, second, axis=0)
        self.outside = np.delete(self.outside, second, axis=0)
        self.groups[first] += self.groups.pop(second)


def _lexicographically_more(rows: Index, reference: Index) -> NDArray[np.bool_]:
    """Whether each row, of (k, K), comes after the reference, (K,), in lexicographic order."""
    differs = rows != reference
    if not differs.shape[1]:
        return np.zeros(len(rows), dtype=bool)
    first = differs.argmax(axis=1)
    return rows[np.arange(len(rows)), first] > reference[first]


def _production_groups(inside: Index, outside: Index, most: int, entity_threshold: int) -> Index:
    """The number of every tract's group, (tracts,), of costs (tracts, K), by the rules of the production code."""
    _, same_entities = np.unique(inside > 0, axis=0, return_inverse=True)
    chunk = numbers_within(same_entities.ravel()) // most
    keys = np.stack([same_entities.ravel(), chunk], axis=1)
    _, label = np.unique(keys, axis=0, return_inverse=True)
    label = label.ravel()
    groups = [np.flatnonzero(label == g).tolist() for g in range(label.max() + 1)]
    joined = [np.array([part[group].sum(axis=0) for group in groups]) for part in (inside, outside)]
    bound = cheaper(*(part.sum(axis=0) for part in cheaper(joined[0], joined[1])))[0]
    far = bound > entity_threshold
    merging = _Merging(joined[0][:, far], joined[1][:, far], groups, most)
    merging.run(_RootCosts([]))
    return merging.labels()


def chunk_siblings(
    spine: Spine, members: str, level: str, *, fanout_cutoff: int = FANOUT_CUTOFF, variant: Variant = "paper"
) -> Spine:
    """Put a level of groups above geounits by cutting siblings, in the order of their geocodes, into chunks.

    Parameters
    ----------
    spine : Spine
    members, level : str
        The level to group, and the name of the new one.
    fanout_cutoff, variant
        See `most_members`.

    Raises
    ------
    ValueError
        If the spine lacks the level `members`, or has `level` already.

    References
    ----------
    Paper, section 6: how the DHC runs group tract subsets.
    """
    of_leaf = ancestors(spine, members)
    geounits = np.array(sorted(np.unique(of_leaf), key=lambda i: spine.geocodes[i]))
    owner = spine.parent[geounits]
    most = np.array([most_members(int(n), fanout_cutoff, variant) for n in spine.child_counts[owner]])
    number = np.zeros(spine.size, dtype=np.intp)
    number[geounits] = numbers_within(owner) // most
    return relabel(spine, level, _group_names(spine, of_leaf, number), above=members)


def _group_names(spine: Spine, of_leaf: Index, number: Index) -> list[str]:
    """For every leaf, (leaves,), the geocode of its group: its parent's, and its geounit's group number, (N,)."""
    return [f"{spine.geocodes[spine.parent[unit]]}-g{number[unit]:03d}" for unit in of_leaf]

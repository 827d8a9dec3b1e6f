"""Groups of a spine chosen for the exact variances of entities' totals, rather than for their distance from it.

The paper regroups so that entities come closer to the spine, a proxy. Here the variances themselves decide, under the
same rules: groups lie within one geounit above, none has more members than the fan-out rule allows, and every path
keeps its shares of the budget, so that the privacy guarantee is unchanged. Totals alone are looked at, by the recursion
of `blue_solvers.spine_design.totals`, in which one change of a group touches only the path above it.

**What is optimal.** Two groups are merged, or alike members moved to another group, where that is best to first order
and lowers the exact objective (for "worst" a power mean that approaches the maximum), until no such change is left.
That is a heuristic: the choice of groups is a partition problem.

**The gap** is bounded by relaxing it. For a direction d of the totals a group of at most n members has the information
J (sum d)^2 <= J n sum d^2, by Cauchy and Schwarz, so that every grouping has at most the information of the tree
without that level whose members have J n more each: its variances bound those of all groupings from below, entity by
entity. The bound is for the shares as they are: `optimise_bypasses`, which moves them, can go below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blue_solvers.spine_design.objective import Guide, Objective, read_weights, schedules, score
from blue_solvers.spine_design.totals import Triple, leaf_variance, level_precisions, member_sums, total_variances
from constraint_builders.arrays import Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities, Strategy, leaves, most_members
from constraint_builders.geography.block_groups import FANOUT_CUTOFF, Variant, name_groups
from constraint_builders.geography.entities import check_blocks
from constraint_builders.geography.partitions import ancestors, level_above, relabel


@dataclass(frozen=True)
class OptimisedSpine:
    """A regrouped spine and how good it is.

    Attributes
    ----------
    strategy : Strategy
        On the new spine, with every geolevel's old share.
    variances : ndarray, (K,)
        Exact variance of every entity's total.
    objective, start : float
        The objective now, and on the spine that was given.
    bound : float
        No grouping under the fan-out rule has a lower objective.
    changes : int
        Merges and moves that were accepted.
    """

    strategy: Strategy
    variances: Float
    objective: float
    start: float
    bound: float
    changes: int

    @property
    def gap(self) -> float:
        """How far, at most, the objective lies above the best possible one, relative to the latter."""
        return self.objective / self.bound - 1


def optimise_spine(
    strategy: Strategy,
    schema: Schema,
    entities: Entities,
    objective: Objective = "mean",
    *,
    weights: ArrayLike | None = None,
    level: str = "Block_Group",
    fanout_cutoff: int = FANOUT_CUTOFF,
    variant: Variant = "paper",
    sweeps: int = 20,
) -> OptimisedSpine:
    """Regroup the geounits of one geolevel so that entities' totals become more accurate.

    Parameters
    ----------
    strategy : Strategy
        Not bypassed; bypass the result. Its groups are the start: take those of Algorithm 2 (`regroup_blocks`), and the
        result is never worse than theirs.
    schema : Schema
        Of the strategy's tables, which must be plain marginals.
    entities : Entities
    objective : {"mean", "worst", "weighted"}
        Of the entities' variances.
    weights : array_like, (K,), optional
        Not negative, for ``"weighted"``: the sum of weights times variances.
    level : str
        Geolevel to regroup, such as ``"Block_Group"`` or ``"Tract_Group"``. For several levels call once for each.
    fanout_cutoff, variant
        The fan-out rule, as of `most_members`.
    sweeps : int
        The most passes over all geounits, for every power mean.

    Returns
    -------
    OptimisedSpine

    Raises
    ------
    ValueError
        If tables are recoded, shares differ within a level, a group breaks the fan-out rule already, the weights do not
        fit, a leaf has no ancestor at some level, or the spine lacks the level or one around it.
    """
    check_blocks(leaves(strategy.spine).size, entities)
    wanted = read_weights(objective, weights, entities.size)
    precisions = level_precisions(strategy, schema)
    rule = partial(most_members, fanout_cutoff=fanout_cutoff, variant=variant)
    spine, made = strategy.spine, 0
    search = _Search(spine, precisions, entities, level, rule)
    start = best = score(objective, wanted, search.variances)
    bound = score(objective, wanted, search.bounds())
    for schedule in schedules(objective):
        search, steps = _Search(strategy.spine, precisions, entities, level, rule), 0
        for power in schedule:
            steps += search.run(Guide(wanted, power), sweeps)
            now = score(objective, wanted, search.variances)
            if now < best:
                best, spine, made = now, search.spine(), steps
    result = _on_spine(strategy, spine)
    return OptimisedSpine(result, total_variances(result, schema, entities), best, start, bound, made)


def _on_spine(strategy: Strategy, spine: Spine) -> Strategy:
    """The strategy with every geolevel's share on another spine of the same levels."""
    old = strategy.spine
    by_level = {old.levels[level]: share for level, share in zip(old.level_of, strategy.shares, strict=True)}
    shares = tuple(by_level[spine.levels[level]] for level in spine.level_of)
    return Strategy(spine, shares, strategy.query_shares, strategy.total, strategy.measure, strategy.neighbours)


@dataclass(frozen=True)
class _Change:
    """Two groups, and how many members of each kind they have afterwards: (), (), (kinds,), (kinds,), or n of these.

    `other` may be one more than the last group: a new one.
    """

    group: Index
    other: Index
    counts: Index
    other_counts: Index

    def __getitem__(self, index: int) -> _Change:
        return _Change(self.group[index], self.other[index], self.counts[index], self.other_counts[index])


class _Family:
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

    def changes(self) -> Iterator[_Change]:
        """All mergers of two groups, then all moves of members of one kind to another group or a new one."""
        yield from (changes for changes in (self._mergers(), self._moves()) if changes.group.size)

    def _mergers(self) -> _Change:
        sizes = self.counts.sum(axis=1)
        first, second = np.triu_indices(sizes.size, 1)
        fits = sizes[first] + sizes[second] <= self.most
        first, second = first[fits], second[fits]
        return _Change(first, second, self.counts[first] + self.counts[second], np.zeros_like(self.counts[first]))

    def _moves(self) -> _Change:
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
        return _Change(giver, taker, padded[giver] - change, padded[taker] + change)

    def apply(self, change: _Change) -> None:
        """Make one change."""
        counts = np.vstack([self.counts, np.zeros_like(self.counts[:1])])
        counts[change.group], counts[change.other] = change.counts, change.other_counts
        self.counts = counts[counts.any(axis=1)]


class _Members:
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

    def family(self, number: int) -> _Family:
        """Kinds and groups of a family as they are on the spine."""
        rows, kind = self.of_family[number], self.kinds_of(number)
        owner = np.unique(self._group[rows], return_inverse=True)[1]
        counts = np.zeros((owner.max() + 1, kind.max() + 1), dtype=np.intp)
        np.add.at(counts, (owner, kind), 1)
        kinds = self._contributions(number, 0.0)
        met = np.flatnonzero((kinds.s2 != 0).any(axis=0))
        return _Family(kinds.of(met), counts, met, self._most[number])

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


class _Search:
    """Local search over the groups of one geolevel."""

    def __init__(
        self, spine: Spine, precisions: Mapping[str, float], entities: Entities, level: str, rule: Callable[[int], int]
    ) -> None:
        self._spine, self._level, self._width = spine, level, entities.size
        self._members = _Members(spine, precisions, entities, level, rule)
        self._group_precision = precisions[level]
        self._precision = [precisions[name] for name in spine.levels]
        self._parents = spine.members[self._members.above].tolist()
        self._families = [self._members.family(number) for number in range(len(self._parents))]
        self._refresh()

    def _refresh(self) -> None:
        """Work out the sums of every geounit above the groups, and the variances."""
        sums = [self._widened(family.sums(self._group_precision), family.entities) for family in self._families]
        self._sums, self.variances = self._filled(sums)

    def _filled(self, of_parents: Sequence[Triple]) -> tuple[dict[int, Triple], Float]:
        """Sums over children by geounit, and the variances, from the sums of the groups' parents."""
        sums = dict(zip(self._parents, of_parents, strict=True))
        for level in range(self._members.above, 0, -1):
            for unit in self._spine.members[level].tolist():
                parent, lifted = int(self._spine.parent[unit]), sums[unit].lifted(self._precision[level])
                sums[parent] = sums[parent] + lifted if parent in sums else lifted
        root = int(self._spine.members[0][0])
        return sums, sums[root].lifted(self._precision[0]).s2

    def _widened(self, triple: Triple, entities: Index) -> Triple:
        """A triple of some entities as one of all, the others' parts being 0."""
        full = Triple(triple.s0, np.zeros(self._width), np.zeros(self._width))
        full.s1[entities], full.s2[entities] = triple.s1, triple.s2
        return full

    def _path(self, unit: int) -> Iterator[tuple[int, float]]:
        """A geounit and its ancestors, each with its precision."""
        while unit >= 0:
            yield unit, self._precision[self._spine.level_of[unit]]
            unit = int(self._spine.parent[unit])

    def run(self, guide: Guide, sweeps: int) -> int:
        """Sweep over the families until nothing improves; the number of changes made."""
        made = 0
        for _ in range(sweeps):
            steps = sum(self._improve(number, guide) for number in range(len(self._families)))
            self._refresh()
            made += steps
            if not steps:
                break
        return made

    def _improve(self, number: int, guide: Guide) -> int:
        """Change the groups of one family while that lowers the guide; the number of changes made."""
        family, unit, steps = self._families[number], self._parents[number], 0
        while (found := self._best_change(family, unit, guide)) is not None:
            groups, change = found
            if not self._accept(unit, self._widened(change, family.entities), guide):
                break
            family.apply(groups)
            steps += 1
        return steps

    def _best_change(self, family: _Family, unit: int, guide: Guide) -> tuple[_Change, Triple] | None:
        """The change that lowers the guide most, other entities' part to first order; None if none lowers it."""
        worst = float(self.variances.max())
        now = guide.values(self.variances[family.entities], worst, family.entities)
        slopes = guide.slopes(self.variances, worst) * self._slopes(unit)
        slope = float(slopes.sum() - slopes[family.entities].sum())
        before = family.group_sums(np.vstack([family.counts, np.zeros_like(family.counts[:1])]), self._group_precision)
        lowest, best = 0.0, None
        for groups in family.changes():
            after = family.group_sums(groups.counts, self._group_precision)
            after = after + family.group_sums(groups.other_counts, self._group_precision)
            change = after - before[groups.group] - before[groups.other]
            variances = self._changed_variances(unit, change, family.entities)
            gains = guide.values(variances, worst, family.entities) - now + slope * change.s0
            index = int(gains.argmin())
            if gains[index] < lowest:
                lowest, best = float(gains[index]), (groups[index], change[index])
        return best

    def _changed_variances(self, unit: int, change: Triple, entities: Index) -> Float:
        """Variances of some entities after each of n changes of a geounit's sums, (n, entities)."""
        for ancestor, precision in self._path(unit):
            sums = self._sums[ancestor].of(entities)
            change = (sums + change).lifted(precision) - sums.lifted(precision)
        return self.variances[entities] + change.s2

    def _slopes(self, unit: int) -> Float:
        """Derivatives by the s0 of a geounit of the variances of entities that do not meet it, (K,)."""
        change = Triple(np.array(1.0), np.zeros(self._width), np.zeros(self._width))
        for ancestor, precision in self._path(unit):
            change = self._sums[ancestor].lifted_change(change, precision)
        return change.s2

    def _accept(self, unit: int, change: Triple, guide: Guide) -> bool:
        """Make a change if it lowers the guide exactly, over all entities."""
        changed = {}
        for ancestor, precision in self._path(unit):
            old = self._sums[ancestor]
            changed[ancestor] = old + change
            change = changed[ancestor].lifted(precision) - old.lifted(precision)
        variances = self.variances + change.s2
        if not guide.lowers(self.variances, variances):
            return False
        self._sums |= changed
        self.variances = variances
        return True

    def bounds(self) -> Float:
        """Variances that no grouping of this level goes below, (K,); see the module's docstring."""
        return self._filled([self._members.relaxed_sums(number) for number in range(len(self._parents))])[1]

    def spine(self) -> Spine:
        """The spine with the groups found; members of a kind are dealt out in the order of their geocodes."""
        group = np.empty(self._spine.size, dtype=np.intp)
        for number, (family, rows) in enumerate(zip(self._families, self._members.of_family, strict=True)):
            by_kind = np.argsort(self._members.kinds_of(number), kind="stable")
            dealt = [np.repeat(np.arange(len(counts)), counts) for counts in family.counts.T]
            group[self._members.units[rows[by_kind]]] = np.concatenate(dealt)
        spine, level = self._spine, self._spine.levels
        members = ancestors(spine, level[self._members.above + 2])
        over = ancestors(spine, level[self._members.above])
        return relabel(spine, self._level, name_groups(spine, over, np.stack([over, group[members]])))

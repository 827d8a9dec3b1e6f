"""Groups of a spine chosen for the exact variances of functionals, rather than for their distance from it.

The paper regroups so that entities come closer to the spine, a proxy. Here the variances themselves decide, under the
same rules: groups lie within one geounit above, none grows beyond what the fan-out rule allows, and every path keeps
its shares of the budget, so that the privacy guarantee is unchanged. One change of a group touches only the path above
it, by the recursion of `blue_solvers.spine_design.contributions`.

**What is optimal.** Two groups are merged, or alike members moved to another group, where that is best to first order
and lowers the exact objective (for "worst" a power mean that approaches the maximum), until no such change is left.
That is a heuristic: the choice of groups is a partition problem.

**The gap** is bounded by relaxing it. For a direction d of the counts a group of at most n members has the information
(sum d)' J (sum d) <= n sum d' J d, by Cauchy and Schwarz: every grouping has at most the information of the tree
without that level whose members have J n more each: its variances bound those of all groupings from below, one by
one. The bound is for the shares as they are: `optimise_bypasses`, which moves them, can go below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.spine_design.block_functionals import BlockFunctionals, read_functionals
from blue_solvers.spine_design.contributions import Triple, cell_space, functional_variances, level_information
from blue_solvers.spine_design.families_of_units import GroupedChildren, MembersOfGroups, RegroupingChange
from blue_solvers.spine_design.objective import Guide, Objective, read_weights, schedules, score
from constraint_builders.arrays import Float, Index
from constraint_builders.description.reals import whole_number
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities, Strategy, leaves, most_members
from constraint_builders.geography.entities import ancestors, relabel
from constraint_builders.geography.spine_groups import FANOUT_CUTOFF, Variant, name_groups


@dataclass(frozen=True)
class OptimisedSpine:
    """A regrouped spine and how good it is.

    Attributes
    ----------
    strategy : Strategy
        On the new spine, with every geolevel's old share.
    variances : ndarray, (K,)
        Exact variance of every functional.
    objective, start : float
        The objective now, and on the spine that was given.
    bound : float
        No grouping has a lower objective whose groups are as large, at most, as the fan-out rule allows or as the
        largest that was given.
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
    entities: Entities | BlockFunctionals,
    objective: Objective = "mean",
    *,
    weights: ArrayLike | None = None,
    level: str = "Block_Group",
    fanout_cutoff: int = FANOUT_CUTOFF,
    variant: Variant = "paper",
    sweeps: int = 20,
) -> OptimisedSpine:
    """Regroup the geounits of one geolevel so that entities, or any functionals, become more accurate.

    Parameters
    ----------
    strategy : Strategy
        Not bypassed; bypass the result. Its groups are the start, and the result is never worse than theirs: those of
        Algorithm 2 (`regroup_blocks`), or the census block groups. `best_spine` tries several.
    schema : Schema
        Of the strategy's tables.
    entities : Entities or BlockFunctionals
        Of entities, their totals.
    objective : {"mean", "worst", "weighted"}
        Of their variances.
    weights : array_like, (K,), optional
        Not negative, for ``"weighted"``: the sum of weights times variances.
    level : str
        Geolevel to regroup, such as ``"Block_Group"`` or ``"Tract_Group"``. For several levels call once for each.
    fanout_cutoff, variant
        The fan-out rule, as of `most_members`. A group that is larger already may stay, but nothing moves into it.
    sweeps : int
        The most passes over all geounits, for every power mean.

    Returns
    -------
    OptimisedSpine

    Raises
    ------
    ValueError
        If shares differ within a level, the weights or sweeps do not fit, a leaf has no ancestor at some level, what is
        measured in a leaf does not determine the functionals, or the spine lacks the level or one around it.
    """
    sweeps = whole_number(sweeps, "sweeps", 1)
    functionals = read_functionals(entities, schema, leaves(strategy.spine).size)
    wanted = read_weights(objective, weights, functionals.size)
    space = cell_space(strategy, schema, functionals)
    information = level_information(strategy, space)
    rule = partial(most_members, fanout_cutoff=fanout_cutoff, variant=variant)
    spine, made = strategy.spine, 0

    def members() -> MembersOfGroups:
        return MembersOfGroups(strategy.spine, information, space, functionals.kinds(), level, rule)

    search = _Search(spine, information, members(), level, functionals.size)
    start = best = score(objective, wanted, search.variances)
    bound = score(objective, wanted, search.bounds())
    for schedule in schedules(objective):
        search, steps = _Search(strategy.spine, information, members(), level, functionals.size), 0
        for power in schedule:
            steps += search.run(Guide(wanted, power), sweeps)
            now = score(objective, wanted, search.variances)
            if now < best:
                best, spine, made = now, search.spine(), steps
    result = _on_spine(strategy, spine)
    return OptimisedSpine(result, functional_variances(result, schema, functionals), best, start, bound, made)


def _on_spine(strategy: Strategy, spine: Spine) -> Strategy:
    """The strategy with every geolevel's share on another spine of the same levels."""
    old = strategy.spine
    by_level = {old.levels[level]: share for level, share in zip(old.level_of, strategy.shares, strict=True)}
    shares = tuple(by_level[spine.levels[level]] for level in spine.level_of)
    return Strategy(spine, shares, strategy.query_shares, strategy.total, strategy.measure, strategy.neighbours)


class _Search:
    """Local search over the groups of one geolevel."""

    def __init__(
        self, spine: Spine, information: Mapping[str, Float], members: MembersOfGroups, level: str, width: int
    ) -> None:
        self._spine, self._level, self._width, self._members = spine, level, width, members
        self._group_information = information[level]
        self._information = [information[name] for name in spine.levels]
        self._parents = spine.members[members.above].tolist()
        self._families = [members.family(number) for number in range(len(self._parents))]
        self._refresh()

    def _refresh(self) -> None:
        """Work out the sums of every geounit above the groups, and the variances."""
        sums = [self._widened(family.sums(self._group_information), family.functionals) for family in self._families]
        self._sums, self.variances = self._filled(sums)

    def _filled(self, of_parents: Sequence[Triple]) -> tuple[dict[int, Triple], Float]:
        """Sums over children by geounit, and the variances, from the sums of the groups' parents."""
        sums = dict(zip(self._parents, of_parents, strict=True))
        for level in range(self._members.above, 0, -1):
            for unit in self._spine.members[level].tolist():
                parent, lifted = int(self._spine.parent[unit]), sums[unit].lifted(self._information[level])
                sums[parent] = sums[parent] + lifted if parent in sums else lifted
        return sums, sums[int(self._spine.members[0][0])].lifted(self._information[0]).s2

    def _widened(self, triple: Triple, functionals: Index) -> Triple:
        """A triple of some functionals, (k,), as one of all, the others' parts being 0."""
        full = Triple(triple.s0, np.zeros((self._width, triple.s1.shape[-1])), np.zeros(self._width))
        full.s1[functionals], full.s2[functionals] = triple.s1, triple.s2
        return full

    def _path(self, unit: int) -> Iterator[tuple[int, Float]]:
        """A geounit and its ancestors, each with its information."""
        while unit >= 0:
            yield unit, self._information[self._spine.level_of[unit]]
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
            if not self._accept(unit, self._widened(change, family.functionals), guide):
                break
            family.apply(groups)
            steps += 1
        return steps

    def _best_change(self, family: GroupedChildren, unit: int, guide: Guide) -> tuple[RegroupingChange, Triple] | None:
        """The change that lowers the guide most, other functionals' part to first order; None if none lowers it."""
        worst = float(self.variances.max())
        now = guide.values(self.variances[family.functionals], worst, family.functionals)
        slopes = guide.slopes(self.variances, worst) * self._slopes(unit)
        slope = slopes.sum(axis=1) - slopes[:, family.functionals].sum(axis=1)
        padded = np.vstack([family.counts, np.zeros_like(family.counts[:1])])
        before = family.group_sums(padded, self._group_information)
        lowest, best = 0.0, None
        for groups in family.changes():
            after = family.group_sums(groups.counts, self._group_information)
            after = after + family.group_sums(groups.other_counts, self._group_information)
            change = after - before[groups.group] - before[groups.other]
            variances = self._changed_variances(unit, change, family.functionals)
            gains = guide.values(variances, worst, family.functionals) - now + change.s0.reshape(-1, slope.size) @ slope
            index = int(gains.argmin())
            if gains[index] < lowest:
                lowest, best = float(gains[index]), (groups[index], change[index])
        return best

    def _changed_variances(self, unit: int, change: Triple, functionals: Index) -> Float:
        """Variances of some functionals after each of n changes of a geounit's sums, (n, functionals)."""
        for ancestor, information in self._path(unit):
            sums = self._sums[ancestor].of(functionals)
            change = (sums + change).lifted(information) - sums.lifted(information)
        return self.variances[functionals] + change.s2

    def _slopes(self, unit: int) -> Float:
        """Derivatives by the entries of a geounit's s0 of variances of functionals that do not meet it, (d * d, K)."""
        d = self._group_information.shape[0]
        entries = np.eye(d * d).reshape(d * d, d, d)
        change = Triple(entries, np.zeros((d * d, self._width, d)), np.zeros((d * d, self._width)))
        for ancestor, information in self._path(unit):
            change = self._sums[ancestor].lifted_change(change, information)
        return change.s2

    def _accept(self, unit: int, change: Triple, guide: Guide) -> bool:
        """Make a change if it lowers the guide exactly, over all functionals."""
        changed = {}
        for ancestor, information in self._path(unit):
            old = self._sums[ancestor]
            changed[ancestor] = old + change
            change = changed[ancestor].lifted(information) - old.lifted(information)
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

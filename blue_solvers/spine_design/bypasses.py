"""Which geounits to bypass, by exact variances of functionals instead of Theorem 2 and its zCDP twin.

The paper bypasses a geounit only where no query of any geounit gets worse. Here those are bypassed whose bypassing
lowers a chosen objective of chosen functionals, whatever it does to others; `compare_spines` of
`blue_solvers.spine_design.report` shows what that costs.
Sums of shares on paths, and so the privacy guarantee, are the same. Every bypass lowers the
exact objective. Which ones are tried in which order is a heuristic: up the spine and, afresh, down it, and up it from
what Algorithm 3 bypasses, again and again until none helps; the best is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import add

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.spine_design.block_functionals import BlockFunctionals, CellSpace, read_functionals
from blue_solvers.spine_design.contributions import Triple, cell_space, determined, determines, share_information
from blue_solvers.spine_design.objective import Guide, Objective, read_weights, schedules, score
from constraint_builders.arrays import Float
from constraint_builders.budget import Measure
from constraint_builders.description.reals import whole_number
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities, Strategy, bypass_chosen, bypassing_improves, leaves

UPWARDS, DOWNWARDS = 1, -1
STARTS = ((UPWARDS, False), (DOWNWARDS, False), (UPWARDS, True))  # the last from the bypasses of Algorithm 3


@dataclass(frozen=True)
class BypassedSpine:
    """A strategy in which chosen geounits are bypassed.

    Attributes
    ----------
    strategy : Strategy
    bypassed : tuple of int
        Positions, in the spine that was given, of the geounits bypassed.
    variances : ndarray, (K,)
        Exact variance of every functional.
    objective, start : float
        The objective now and before.
    """

    strategy: Strategy
    bypassed: tuple[int, ...]
    variances: Float
    objective: float
    start: float


def optimise_bypasses(
    strategy: Strategy,
    schema: Schema,
    entities: Entities | BlockFunctionals,
    objective: Objective = "mean",
    *,
    weights: ArrayLike | None = None,
    sweeps: int = 5,
) -> BypassedSpine:
    """Bypass the geounits whose bypassing makes entities, or any functionals, more accurate.

    Parameters
    ----------
    strategy : Strategy
        Not bypassed, with all leaves measured. Geounits are left alone whose level has no query shares, or tables that
        would not determine the leaves: those in their place would be measured at that level.
    schema : Schema
    entities : Entities or BlockFunctionals
        Of entities, their totals.
    objective : {"mean", "worst", "weighted"}
        Of their variances. The result is never worse than the strategy given, nor than Algorithm 3's below the root.
    weights : array_like, (K,), optional
        Not negative, for ``"weighted"``.
    sweeps : int
        The most passes over all geounits, for every power mean.

    Returns
    -------
    BypassedSpine

    Raises
    ------
    ValueError
        If what is measured in a leaf does not determine the functionals, or the weights or sweeps do not fit.
    """
    sweeps = whole_number(sweeps, "sweeps", 1)
    functionals = read_functionals(entities, schema, leaves(strategy.spine).size)
    wanted, space = read_weights(objective, weights, functionals.size), cell_space(strategy, schema, functionals)
    start = _BypassSearch(strategy, space)
    first = best = score(objective, wanted, start.variances)
    chosen, variances = frozenset[int](), start.variances
    for schedule, (step, improved) in product(schedules(objective), STARTS):
        search = start.fresh()
        if improved:
            search.bypass_what_improves_all(strategy.measure)
            if not search.bypassed:  # the search from no bypass, which was made
                continue
        for power in (None, *schedule):
            if power is not None:
                search.run(Guide(wanted, power), sweeps, step)
            now = score(objective, wanted, search.variances)
            if now < best:
                best, chosen, variances = now, frozenset(search.bypassed), search.variances
    return BypassedSpine(bypass_chosen(strategy, chosen), tuple(sorted(chosen)), variances, best, first)


@dataclass(frozen=True)
class _Leaves:
    """Leaves of one parent with the same tables and variances: their number, sums of weights and of their squares."""

    number: int
    linear: Float
    squares: Float

    def measured(self, variance: Float) -> Triple:
        """What they contribute, each with a covariance, (d, d)."""
        return Triple(self.number * variance, self.linear @ variance, self.squares @ variance.ravel())


class _BypassSearch:
    """The tree with what every geounit's heirs add up to; a bypassed geounit stays in it, unmeasured.

    Heirs are geounits with children, and `_Leaves`, which have numbers after those of the geounits.
    """

    def __init__(self, strategy: Strategy, space: CellSpace) -> None:
        spine = strategy.spine
        self._space, self._information_of = space, share_information(strategy, space)
        self._share = list(strategy.shares)
        self._level, self._levels = spine.level_of.tolist(), spine.levels
        self._parent = spine.parent.tolist()
        self._leaves: dict[int, _Leaves] = {}
        self._heirs: list[list[int]] = [[] for _ in self._parent]
        self._variance_of: dict[tuple[int, Fraction], Float] = {}
        self._gather(strategy.spine)
        self._determines = [determines(self._information_of(level, Fraction(1))) for level in range(len(spine.levels))]
        measurable = [bool(strategy.query_shares.get(level)) for level in spine.levels]
        self._from_below = sorted((i for i, below in enumerate(self._heirs) if below), key=lambda i: -self._level[i])
        self._candidates = [geounit for geounit in self._from_below[:-1] if measurable[self._level[geounit]]]
        self.bypassed: set[int] = set()
        self._sums: dict[int, Triple] = {}
        for geounit in self._from_below:
            below = self._heirs[geounit]
            self._sums[geounit] = self._summed(below, [(self._level[i], self._share[i]) for i in below])
        root = self._from_below[-1]
        self.variances = self._sums[root].lifted(self._information(root)).s2

    def fresh(self) -> _BypassSearch:
        """The same tree, to be searched by itself."""
        other = copy(self)
        other._share, other._level = list(self._share), list(self._level)
        other._heirs = [list(heirs) for heirs in self._heirs]
        other._sums, other.bypassed = dict(self._sums), set(self.bypassed)
        return other

    def _gather(self, spine: Spine) -> None:
        """Find the heirs of every geounit, together leaves with the same tables and variances."""
        alike: dict[tuple[int, int, Fraction], list[int]] = {}
        for row, leaf in enumerate(leaves(spine).tolist()):
            alike.setdefault((self._parent[leaf], self._level[leaf], self._share[leaf]), []).append(row)
        for geounit, parent in enumerate(self._parent):
            if parent >= 0 and spine.child_counts[geounit]:
                self._heirs[parent].append(geounit)
        d = self._space.dimensions
        for (parent, level, share), rows in alike.items():
            linear, squares = (part[rows].sum(axis=0) for part in (self._space.weights, self._space.squares))
            number = len(self._share)
            self._leaves[number] = _Leaves(len(rows), linear.reshape(-1, d), squares.reshape(-1, d * d))
            self._share.append(share)
            self._level.append(level)
            self._heirs[parent].append(number)

    def _information(self, geounit: int) -> Float:
        if geounit in self.bypassed:
            return np.zeros((self._space.dimensions, self._space.dimensions))
        return self._information_of(self._level[geounit], self._share[geounit])

    def _summed(self, heirs: Sequence[int], measured: Sequence[tuple[int, Fraction]]) -> Triple:
        """What heirs contribute together if they are measured at these levels, with these shares."""
        found = []
        for heir, own in zip(heirs, measured, strict=True):
            if heir in self._leaves:
                found.append(self._leaves[heir].measured(self._leaf_variance(own)))
            else:
                found.append(self._sums[heir].lifted(self._information_of(*own)))
        return reduce(add, found)

    def _leaf_variance(self, measured: tuple[int, Fraction]) -> Float:
        if measured not in self._variance_of:
            self._variance_of[measured] = determined(self._information_of(*measured), self._levels[measured[0]])
        return self._variance_of[measured]

    def run(self, guide: Guide, sweeps: int, step: int) -> None:
        """Sweep over the geounits, up or down the spine, until no bypass helps."""
        for _ in range(sweeps):
            waiting = [geounit for geounit in self._candidates[::step] if geounit not in self.bypassed]
            if not [geounit for geounit in waiting if self._try(geounit, guide)]:
                return

    def bypass_what_improves_all(self, measure: Measure) -> None:
        """Bypass as Algorithm 3 does, below the root."""
        for geounit in filter(self._keeps_leaves, self._candidates):
            of_heirs = [self._share[heir] for heir in self._heirs[geounit] for _ in range(self._number(heir))]
            if bypassing_improves(self._share[geounit], of_heirs, measure):
                self._accept(geounit, *self._effect(geounit))

    def _number(self, heir: int) -> int:
        return self._leaves[heir].number if heir in self._leaves else 1

    def _try(self, geounit: int, guide: Guide) -> bool:
        """Bypass a geounit if that lowers the guide."""
        if not self._keeps_leaves(geounit):
            return False
        variances, changed = self._effect(geounit)
        if not guide.lowers(self.variances, variances):
            return False
        self._accept(geounit, variances, changed)
        return True

    def _keeps_leaves(self, geounit: int) -> bool:
        """Whether the tables of its level determine the leaves that would come in its place, if any would."""
        return self._determines[self._level[geounit]] or self._leaves.keys().isdisjoint(self._heirs[geounit])

    def _effect(self, geounit: int) -> tuple[Float, dict[int, Triple]]:
        """The variances if a geounit were bypassed, and the sums that would change."""
        level, share, heirs = self._level[geounit], self._share[geounit], self._heirs[geounit]
        changed = {geounit: self._summed(heirs, [(level, self._share[heir] + share) for heir in heirs])}
        own = self._information(geounit)
        change = changed[geounit].lifted(0 * own) - self._sums[geounit].lifted(own)
        ancestor = self._parent[geounit]
        while ancestor >= 0:
            old, information = self._sums[ancestor], self._information(ancestor)
            changed[ancestor] = old + change
            change = changed[ancestor].lifted(information) - old.lifted(information)
            ancestor = self._parent[ancestor]
        return self.variances + change.s2, changed

    def _accept(self, geounit: int, variances: Float, changed: dict[int, Triple]) -> None:
        """Keep variances, (K,), and hand share and level to the heirs, which become heirs of the geounits above too."""
        self.variances = variances
        self._sums |= changed
        for heir in self._heirs[geounit]:
            self._share[heir] += self._share[geounit]
            self._level[heir] = self._level[geounit]
        self.bypassed.add(geounit)
        siblings = self._heirs[self._owner(geounit)]
        siblings.remove(geounit)
        siblings += self._heirs[geounit]

    def _owner(self, geounit: int) -> int:
        """The nearest ancestor that is not bypassed."""
        ancestor = self._parent[geounit]
        while ancestor in self.bypassed:
            ancestor = self._parent[ancestor]
        return ancestor

"""Which geounits to bypass, by exact variances of entities' totals instead of Theorem 2 and its zCDP twin.

The paper bypasses a geounit only where no query of any geounit gets worse. Here those are bypassed whose bypassing
lowers a chosen objective of chosen entities, whatever it does to others; `compare_spines` of
`blue_solvers.spine_design.report` shows what that costs.
Sums of shares on paths, and so the privacy guarantee, are the same. Every bypass lowers the
exact objective. Which ones are tried in which order is a heuristic: up the spine and, afresh, down it, again and again
until none helps; the better of both is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.spine_design.objective import Guide, Objective, read_weights, schedules, score
from blue_solvers.spine_design.totals import Triple, share_precisions
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.geography import Entities, Strategy, bypass_chosen, leaves
from constraint_builders.geography.entities import check_blocks

UPWARDS, DOWNWARDS = 1, -1


@dataclass(frozen=True)
class BypassedSpine:
    """A strategy in which chosen geounits are bypassed.

    Attributes
    ----------
    strategy : Strategy
    bypassed : tuple of int
        Positions, in the spine that was given, of the geounits bypassed.
    variances : ndarray, (K,)
        Exact variance of every entity's total.
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
    entities: Entities,
    objective: Objective = "mean",
    *,
    weights: ArrayLike | None = None,
    sweeps: int = 5,
) -> BypassedSpine:
    """Bypass the geounits whose bypassing makes entities' totals more accurate.

    Parameters
    ----------
    strategy : Strategy
        Of plain marginals, not bypassed, with all leaves measured. Geounits of a level without query shares are left
        alone, since those in their place would be measured at that level.
    schema : Schema
    entities : Entities
    objective : {"mean", "worst", "weighted"}
        Of the entities' variances.
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
        If a table is recoded, a leaf is not measured, or the weights do not fit.
    """
    check_blocks(leaves(strategy.spine).size, entities)
    wanted = read_weights(objective, weights, entities.size)
    start = _BypassSearch(strategy, schema, entities)
    first = best = score(objective, wanted, start.variances)
    chosen, variances = frozenset[int](), start.variances
    for schedule, step in product(schedules(objective), (UPWARDS, DOWNWARDS)):
        search = _BypassSearch(strategy, schema, entities)
        for power in schedule:
            search.run(Guide(wanted, power), sweeps, step)
            now = score(objective, wanted, search.variances)
            if now < best:
                best, chosen, variances = now, frozenset(search.bypassed), search.variances
    return BypassedSpine(bypass_chosen(strategy, chosen), tuple(sorted(chosen)), variances, best, first)


class _BypassSearch:
    """The tree with what every geounit's children add up to; a bypassed geounit stays in it, unmeasured."""

    def __init__(self, strategy: Strategy, schema: Schema, entities: Entities) -> None:
        spine = strategy.spine
        self._precision_of = share_precisions(strategy, schema)
        self._share = list(strategy.shares)
        self._level = spine.level_of.tolist()
        self._parent = spine.parent.tolist()
        self._heirs: list[list[int]] = [[] for _ in self._parent]
        for geounit, parent in enumerate(self._parent):
            if parent >= 0:
                self._heirs[parent].append(geounit)
        self._inside = sparse.csr_array(entities.contains.T)
        self._row = {int(leaf): row for row, leaf in enumerate(leaves(spine))}
        measurable = [bool(strategy.query_shares.get(level)) for level in spine.levels]
        self._from_below = sorted((i for i, below in enumerate(self._heirs) if below), key=lambda i: -self._level[i])
        self._candidates = [geounit for geounit in self._from_below[:-1] if measurable[self._level[geounit]]]
        self.bypassed: set[int] = set()
        self._sums: dict[int, Triple] = {}
        for geounit in self._from_below:
            precisions = [self._precision(child) for child in self._heirs[geounit]]
            self._sums[geounit] = self._summed(self._heirs[geounit], np.array(precisions))
        root = self._from_below[-1]
        self.variances = self._sums[root].lifted(self._precision(root)).s2

    def _precision(self, geounit: int) -> float:
        return 0.0 if geounit in self.bypassed else self._precision_of(self._level[geounit], self._share[geounit])

    def _summed(self, geounits: Sequence[int], precisions: Float) -> Triple:
        """What geounits contribute together if they have these precisions."""
        inner = [n for n, geounit in enumerate(geounits) if geounit in self._sums]
        outer = [n for n, geounit in enumerate(geounits) if geounit not in self._sums]
        if not precisions[outer].all():
            raise ValueError("a leaf is not measured: give the lowest geolevel a share before choosing what to bypass")
        variances = 1 / precisions[outer]
        part = variances @ self._inside[[self._row[geounits[n]] for n in outer]]
        total = Triple(variances.sum(), part, part)
        for n in inner:
            total = total + self._sums[geounits[n]].lifted(float(precisions[n]))
        return total

    def run(self, guide: Guide, sweeps: int, step: int) -> None:
        """Sweep over the geounits, up or down the spine, until no bypass helps."""
        for _ in range(sweeps):
            waiting = [geounit for geounit in self._candidates[::step] if geounit not in self.bypassed]
            if not [geounit for geounit in waiting if self._try(geounit, guide)]:
                return

    def _try(self, geounit: int, guide: Guide) -> bool:
        """Bypass a geounit if that lowers the guide."""
        level, share, heirs = self._level[geounit], self._share[geounit], self._heirs[geounit]
        precisions = [self._precision_of(level, self._share[heir] + share) for heir in heirs]
        changed = {geounit: self._summed(heirs, np.array(precisions))}
        change = changed[geounit].lifted(0.0) - self._sums[geounit].lifted(self._precision(geounit))
        ancestor = self._parent[geounit]
        while ancestor >= 0:
            old, precision = self._sums[ancestor], self._precision(ancestor)
            changed[ancestor] = old + change
            change = changed[ancestor].lifted(precision) - old.lifted(precision)
            ancestor = self._parent[ancestor]
        variances = self.variances + change.s2
        if not guide.lowers(self.variances, variances):
            return False
        self.variances = variances
        self._sums |= changed
        self._bypass(geounit)
        return True

    def _bypass(self, geounit: int) -> None:
        """Hand the share and the level to the heirs, which become heirs of the geounits above too."""
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

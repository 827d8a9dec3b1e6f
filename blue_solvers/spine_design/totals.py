"""Exact variances of entities' totals on a spine, before any noise is drawn, by one scalar recursion.

With plain marginals measured at equal variance in all geounits of a level, the total of a geounit is a problem on the
tree by itself, with one precision J per level (design, section 7). Let an entity be a set of blocks. What a geounit
contributes to the variance of the entity's total is a triple that is added over siblings,

    s0 = sum V,   s1 = sum lambda V,   s2 = sum (lambda^2 V + R)

with V the variance of the geounit's total from below and within, lambda the regression on it of the entity's part
inside, and R the variance left; and a geounit's own triple follows from the sums over its children:

    V = 1 / (J + 1 / s0),   lambda = s1 / s0,   R = s2 - s1 lambda.

The s2 of the root is the variance. `blue_solvers.spine_design.report` does the same for any strategy and table by a
solver; this form is for `blue_solvers.spine_design.regrouping`, which needs the effect of one change on the path
above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.geography import Entities, Strategy, leaves
from constraint_builders.geography.entities import check_blocks
from constraint_builders.geography.partitions import ancestors


@dataclass(frozen=True)
class Triple:
    """(s0, s1, s2) of the module's docstring, of geounits (...,) and entities (K,).

    Shapes (...,), (..., K), (..., K).
    """

    s0: Float
    s1: Float
    s2: Float

    def __add__(self, other: Triple) -> Triple:
        return Triple(self.s0 + other.s0, self.s1 + other.s1, self.s2 + other.s2)

    def __sub__(self, other: Triple) -> Triple:
        return Triple(self.s0 - other.s0, self.s1 - other.s1, self.s2 - other.s2)

    def __getitem__(self, geounits: Any) -> Triple:
        return Triple(self.s0[geounits], self.s1[geounits], self.s2[geounits])

    def of(self, entities: Index) -> Triple:
        return Triple(self.s0, self.s1[..., entities], self.s2[..., entities])

    def summed(self, members: NDArray | sparse.csr_array) -> Triple:
        """Sums over the members of groups, (groups, geounits) @ triple."""
        return Triple(members @ self.s0, members @ self.s1, members @ self.s2)

    def lifted(self, precision: float) -> Triple:
        """From the sums over its children, what a geounit of some precision contributes to its parent."""
        variance = 1 / (precision + 1 / self.s0)
        slope = self.s1 / self.s0[..., None]
        left = self.s2 - self.s1 * slope
        part = slope * variance[..., None]
        return Triple(variance, part, slope * part + left)

    def lifted_change(self, change: Triple, precision: float) -> Triple:
        """First-order change of `lifted` when the sums change."""
        variance = 1 / (precision + 1 / self.s0)
        slope = self.s1 / self.s0[..., None]
        d_variance = (variance / self.s0) ** 2 * change.s0
        d_slope = (change.s1 - slope * change.s0[..., None]) / self.s0[..., None]
        d_left = change.s2 - 2 * slope * change.s1 + slope**2 * change.s0[..., None]
        d_part = d_slope * variance[..., None] + slope * d_variance[..., None]
        return Triple(d_variance, d_part, d_slope * slope * variance[..., None] + slope * d_part + d_left)


def total_variances(strategy: Strategy, schema: Schema, entities: Entities) -> Float:
    """Exact variances of entities' totals, (K,).

    Parameters
    ----------
    strategy : Strategy
        Not bypassed, all leaves at the lowest level.
    schema : Schema
        Of the strategy's tables, which must be plain marginals.
    entities : Entities

    Raises
    ------
    ValueError
        If a table is recoded, shares differ within a level, a leaf has no ancestor at some level or is not measured, or
        the entities are of another number of blocks.
    """
    check_blocks(leaves(strategy.spine).size, entities)
    precisions = level_precisions(strategy, schema)
    root = member_sums(strategy.spine, precisions, entities, 0).lifted(precisions[strategy.spine.levels[0]])
    return root.s2[0]


def level_precisions(strategy: Strategy, schema: Schema) -> dict[str, float]:
    """Precision of the noisy totals that a geounit's own tables give, by geolevel; 0 where nothing is measured.

    Raises
    ------
    ValueError
        If a table is recoded, or geounits of one level have different shares.
    """
    spine, precision_of = strategy.spine, share_precisions(strategy, schema)
    found = {}
    for level, members in enumerate(spine.members):
        shares = {strategy.shares[i] for i in members}
        if len(shares) > 1:
            raise ValueError(f"geounits of {spine.levels[level]!r} have different shares: optimise first, then bypass")
        found[spine.levels[level]] = precision_of(level, shares.pop())
    return found


def share_precisions(strategy: Strategy, schema: Schema) -> Callable[[int, Fraction], float]:
    """Precision of the noisy total from a geounit's own tables, as a function of its level's position and its share.

    Raises
    ------
    ValueError
        If a table is recoded.
    """
    tables: list[list[tuple[int, Fraction]]] = []
    for level in strategy.spine.levels:
        tables.append([])
        for name, alpha in strategy.query_shares.get(level, {}).items():
            table = parse_table(schema, name)
            recoded = [factor for factor in table.factors if factor not in schema.names]
            if recoded:
                raise ValueError(
                    f"table {name!r} of {level!r} is recoded by {recoded[0]!r}, which ties the total to other cells: "
                    "optimise with plain marginals, then judge the spine by `compare_spines`"
                )
            tables[-1].append((table.size, alpha))

    @cache
    def precision(level: int, share: Fraction) -> float:
        return sum(1 / (size * strategy.variance(share * alpha)) for size, alpha in tables[level])

    return precision


def member_sums(spine: Spine, precisions: Mapping[str, float], entities: Entities, level: int) -> Triple:
    """Sums over their children for all geounits of a level above the leaves', in the spine's order."""
    gather = _gather(spine, level)
    if level == len(spine.levels) - 2:
        variance = leaf_variance(spine, precisions)
        inside = variance * (gather @ sparse.csr_array(entities.contains.T)).toarray()
        return Triple(variance * gather.sum(axis=1), inside, inside)
    below = member_sums(spine, precisions, entities, level + 1).lifted(precisions[spine.levels[level + 1]])
    return below.summed(gather)


def leaf_variance(spine: Spine, precisions: Mapping[str, float]) -> float:
    """Variance of a leaf's measured total.

    Raises
    ------
    ValueError
        If a leaf lies above the lowest level or has no ancestor at one, or nothing is measured at the lowest.
    """
    for level in spine.levels:
        ancestors(spine, level)
    precision = precisions[spine.levels[-1]]
    if precision == 0:
        raise ValueError(f"nothing is measured at {spine.levels[-1]!r}: entities of its geounits are not estimable")
    return 1 / precision


def _gather(spine: Spine, level: int) -> sparse.csr_array:
    """Which geounits of the level below are children of which of a level."""
    children = spine.members[level + 1]
    rows = spine.rank_in_level[spine.parent[children]]
    shape = (spine.members[level].size, children.size)
    return sparse.csr_array((np.ones(children.size), (rows, np.arange(children.size))), shape=shape)

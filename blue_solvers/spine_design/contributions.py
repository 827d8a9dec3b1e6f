"""Exact variances of functionals on a spine, before any noise is drawn, by one recursion.

With the same tables measured at equal variance in all geounits of a level, functionals of the blocks' counts are a
problem on the tree in the d combinations of cells that the tables tie together (`CellSpace`), with one (d, d) matrix J
of information per level; of totals, and plain marginals, d is 1. Let F be the weights of a functional over blocks and
combinations. What a geounit contributes to its variance is a triple that is added over siblings,

    s0 = sum V,   s1 = sum lambda V,   s2 = sum (lambda V lambda' + R)

with V the covariance of the geounit's combinations from below and within, lambda the regression on them of the
functional's part inside, and R the variance left; and a geounit's own triple follows from the sums over its children:

    V = (J + s0^-1)^-1,   lambda = s1 s0^-1,   R = s2 - s1 lambda'.

The s2 of the root is the variance. `blue_solvers.spine_design.report` does the same for any strategy and table by a
solver; this form is for the searches, which need the effect of one change on the path above it.
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

from blue_solvers.spine_design.block_functionals import BlockFunctionals, CellSpace, read_functionals
from constraint_builders.arrays import Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.geography import Entities, Strategy, leaves
from constraint_builders.geography.entities import ancestors

LEAST_INFORMATION = 1e-12  # eigenvalue relative to the largest below which nothing is known


@dataclass(frozen=True)
class Triple:
    """(s0, s1, s2) of the module's docstring, of geounits (...,), functionals (K,) and d combinations of cells.

    Shapes (..., d, d), (..., K, d), (..., K).
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

    def of(self, functionals: Index) -> Triple:
        """Of some functionals, (k,)."""
        return Triple(self.s0, self.s1[..., functionals, :], self.s2[..., functionals])

    def summed(self, members: NDArray | sparse.csr_array) -> Triple:
        """Sums over the members of groups, (groups, geounits) @ triple."""
        return Triple(*(_weighed(members, part) for part in (self.s0, self.s1, self.s2)))

    def lifted(self, information: Float) -> Triple:
        """From the sums over its children, what a geounit of some information, (d, d), contributes to its parent."""
        below = inverse(self.s0)
        variance = inverse(information + below)
        slope = _times(self.s1, below)
        part = _times(slope, variance)
        return Triple(variance, part, self.s2 + _dots(slope, part - self.s1))

    def lifted_change(self, change: Triple, information: Float) -> Triple:
        """First-order change of `lifted`, with information (d, d), when the sums change."""
        below = inverse(self.s0)
        variance = inverse(information + below)
        slope = _times(self.s1, below)
        turned = _times(slope, change.s0)
        d_variance = variance @ below @ change.s0 @ below @ variance
        d_slope = _times(change.s1 - turned, below)
        d_part = _times(d_slope, variance) + _times(slope, d_variance)
        d_left = change.s2 + _dots(slope, turned - 2 * change.s1)
        return Triple(d_variance, d_part, d_left + _dots(d_part, slope) + _dots(_times(slope, variance), d_slope))


def _times(rows: Float, matrices: Float) -> Float:
    """Rows of functionals (..., K, d) times matrices (..., d, d)."""
    return rows * matrices if matrices.shape[-1] == 1 else rows @ matrices


def _dots(left: Float, right: Float) -> Float:
    """Products of rows, (..., K, d) each, with one another, (..., K)."""
    product: Float = left * right
    return product[..., 0] if product.shape[-1] == 1 else product.sum(axis=-1)


def inverse(matrices: Float) -> Float:
    """Inverses of symmetric matrices, (..., d, d)."""
    return 1 / matrices if matrices.shape[-1] == 1 else np.linalg.inv(matrices).astype(np.float64, copy=False)


def _weighed(members: NDArray | sparse.csr_array, part: Float) -> Float:
    """Sums over members, (..., geounits), of a part of a triple, (geounits, ...)."""
    return (members @ part.reshape(len(part), -1)).reshape(*members.shape[:-1], *part.shape[1:])


def functional_variances(strategy: Strategy, schema: Schema, wanted: Entities | BlockFunctionals) -> Float:
    """Exact variances of functionals, of entities' totals for example, (K,).

    Parameters
    ----------
    strategy : Strategy
        Not bypassed, all leaves at the lowest level.
    schema : Schema
        Of the strategy's tables.
    wanted : Entities or BlockFunctionals

    Raises
    ------
    ValueError
        If shares differ within a level, a leaf has no ancestor at some level, what is measured in a leaf does not
        determine the functionals, or these are of other blocks or cells.
    """
    space = cell_space(strategy, schema, read_functionals(wanted, schema, leaves(strategy.spine).size))
    information = level_information(strategy, space)
    sums = member_sums(strategy.spine, information, space, 0)
    return sums.lifted(information[strategy.spine.levels[0]]).s2[0]


def cell_space(strategy: Strategy, schema: Schema, functionals: BlockFunctionals) -> CellSpace:
    """The combinations of cells that a strategy's tables tie together."""
    tables = dict.fromkeys(name for row in strategy.query_shares.values() for name, alpha in row.items() if alpha)
    return CellSpace(schema, list(tables), functionals)


def level_information(strategy: Strategy, space: CellSpace) -> dict[str, Float]:
    """Information that a geounit's own tables give, (d, d), by geolevel; 0 where nothing is measured.

    Raises
    ------
    ValueError
        If geounits of one level have different shares.
    """
    spine, information_of = strategy.spine, share_information(strategy, space)
    found = {}
    for level, members in enumerate(spine.members):
        shares = {strategy.shares[i] for i in members}
        if len(shares) > 1:
            raise ValueError(f"geounits of {spine.levels[level]!r} have different shares: optimise first, then bypass")
        found[spine.levels[level]] = information_of(level, shares.pop())
    return found


def share_information(strategy: Strategy, space: CellSpace) -> Callable[[int, Fraction], Float]:
    """Information from a geounit's own tables, (d, d), as a function of its level's position and its share."""
    levels = strategy.spine.levels

    @cache
    def information(level: int, share: Fraction) -> Float:
        found = np.zeros((space.dimensions, space.dimensions))
        for name, alpha in strategy.query_shares.get(levels[level], {}).items():
            if alpha and share:
                found += space.information[name] / strategy.variance(share * alpha)
        return found

    return information


def member_sums(spine: Spine, information: Mapping[str, Float], space: CellSpace, level: int) -> Triple:
    """Sums over their children for all geounits of a level above the leaves', in order; (d, d) information by level."""
    gather = _gather(spine, level)
    if level == len(spine.levels) - 2:
        return leaf_sums(space, leaf_variance(spine, information), gather)
    below = member_sums(spine, information, space, level + 1).lifted(information[spine.levels[level + 1]])
    return below.summed(gather)


def leaf_sums(space: CellSpace, variance: Float, gather: sparse.csr_array) -> Triple:
    """Sums over leaves of one covariance, (d, d), for the rows of `gather`, (n, L)."""
    number, d = gather.shape[0], space.dimensions
    linear = (gather @ space.weights).toarray().reshape(number, -1, d)
    squares = (gather @ space.squares).toarray().reshape(number, -1, d * d)
    return Triple(gather.sum(axis=1)[:, None, None] * variance, linear @ variance, squares @ variance.ravel())


def leaf_variance(spine: Spine, information: Mapping[str, Float]) -> Float:
    """Covariance of a leaf's measured combinations of cells, (d, d).

    Raises
    ------
    ValueError
        If a leaf lies above the lowest level or has no ancestor at one, or what is measured at the lowest does not
        determine the functionals.
    """
    for level in spine.levels:
        ancestors(spine, level)
    return determined(information[spine.levels[-1]], spine.levels[-1])


def determined(information: Float, level: str) -> Float:
    """The covariance, (d, d), that a leaf's information gives, or `ValueError` where it leaves something open."""
    if not information.any():
        raise ValueError(
            f"nothing is measured at {level!r}, in a leaf: functionals of its geounits are not estimable; give the "
            "lowest geolevel a share"
        )
    if not determines(information):
        raise ValueError(
            f"the tables measured at {level!r}, in the leaves, do not determine all that the functionals and the other "
            "tables tie together: measure the detailed table there"
        )
    return inverse(information)


def determines(information: Float) -> bool:
    """Whether information, (d, d), leaves nothing open."""
    sizes = np.linalg.eigvalsh(information)
    return bool(sizes[0] > LEAST_INFORMATION * sizes[-1])


def _gather(spine: Spine, level: int) -> sparse.csr_array:
    """Which geounits of the level below are children of which of a level."""
    children = spine.members[level + 1]
    rows = spine.rank_in_level[spine.parent[children]]
    shape = (spine.members[level].size, children.size)
    return sparse.csr_array((np.ones(children.size), (rows, np.arange(children.size))), shape=shape)

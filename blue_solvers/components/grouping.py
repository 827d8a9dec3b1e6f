"""How the recodes in use divide each variable, and what a factor sees of the two parts.

For a variable with n levels let R be the common refinement of the recodes in use, other than the variable itself: r
groups (one if there are no recodes). R^n splits into G, constant on the groups, and C, summing to zero within every
group. Only the variable itself sees C; along G it acts as diag(1 / group sizes), and a recode as the 0/1 sums of
its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table, factors_of


@dataclass(frozen=True)
class Grouping:
    """One variable in use, and its groups.

    Attributes
    ----------
    axis : int
        The variable, as the schema numbers it.
    groups : ndarray of int, (n,)
        The group of every level.
    has_contrasts : bool
        Whether C is more than nothing: some group holds two levels or more.
    """

    axis: int
    groups: NDArray[np.intp]

    @cached_property
    def sizes(self) -> NDArray[np.intp]:
        """Number of levels in each group, (r,)."""
        return np.bincount(self.groups)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Levels in the order of slots: of every group all but its last level, then the last ones, (n,)."""
        last = np.array([np.flatnonzero(self.groups == group)[-1] for group in range(self.sizes.size)])
        others = np.setdiff1d(np.arange(self.levels), last)
        return np.concatenate([others[np.argsort(self.groups[others], kind="stable")], last])

    @cached_property
    def in_order(self) -> bool:
        """Whether slots have the levels' own order."""
        return bool((np.diff(self.order) > 0).all())

    @property
    def levels(self) -> int:
        """Number of levels, n."""
        return self.groups.size

    @property
    def has_contrasts(self) -> bool:
        """Whether some group has two levels or more."""
        return self.sizes.size < self.levels


def groupings_of(schema: Schema, tables: Sequence[Table], told_apart: tuple[int, ...] = ()) -> list[Grouping]:
    """The grouping of every variable that some table keeps, in schema order.

    Variables in `told_apart` have a group for every level.
    """
    factors: dict[int, set[str]] = {axis: {schema.names[axis]} for axis in told_apart}
    for factor in factors_of(tables):
        factors.setdefault(schema.axis_of(factor), set()).add(factor)
    groupings = []
    for axis in sorted(factors):
        recodes = [schema.groups_of(factor) for factor in sorted(factors[axis]) if factor != schema.names[axis]]
        if axis in told_apart:
            groups = np.arange(schema.shape[axis])
        elif len(recodes) > 1:
            groups = np.unique(np.array(recodes, dtype=np.intp), axis=1, return_inverse=True)[1].ravel()
        elif recodes:
            groups = np.unique(recodes[0], return_inverse=True)[1]
        else:
            groups = np.zeros(schema.shape[axis], dtype=np.intp)
        groupings.append(Grouping(axis, groups))
    return groupings


def group_sums(schema: Schema, grouping: Grouping, factor: str | None) -> Float:
    """The 0/1 matrix (cells of the factor, r) that sums groups to the factor's cells; None is the total."""
    if factor is None:
        return np.ones((1, grouping.sizes.size))
    cells = np.array(schema.groups_of(factor))
    sums = np.zeros((cells.max() + 1, grouping.sizes.size))
    sums[cells, grouping.groups] = 1
    return sums

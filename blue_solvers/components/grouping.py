"""How the recodes in use divide each variable, and what a factor sees of the two parts.

For a variable with n levels let R be the common refinement of the recodes in use, other than the variable itself: r
groups (one if there are no recodes). R^n splits into G, constant on the groups, and C, summing to zero within every
group. Only the variable itself sees C; along G it acts as diag(1 / group sizes), and a recode as the 0/1 sums of
its groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from constraint_builders import Schema
from constraint_builders.arrays import Integers
from constraint_builders.description.table import Table, factors_of

Axes = tuple[int, ...]  # of a table, in increasing order
Recodes = Mapping[str, NDArray[np.intp]]
NO_RECODES: Recodes = {}


class Grouping:
    """One variable in use, and its groups.

    Parameters
    ----------
    axis : int
        The variable, as the schema numbers it.
    groups : ndarray of int, (n,)
        The group of every level.
    recodes : mapping of str to ndarray of int, (n,), optional
        The cell of every level, of the recodes that made the groups.

    Attributes
    ----------
    levels : int
        Their number, n.
    sizes : ndarray of int, (r,)
        Number of levels in each group.
    has_contrasts : bool
        Whether C is more than nothing: some group holds two levels or more.
    """

    def __init__(self, axis: int, groups: NDArray[np.intp], recodes: Recodes = NO_RECODES) -> None:
        self.axis, self.groups, self.recodes = axis, groups, recodes
        self.levels, self.sizes = groups.size, np.bincount(groups)
        self.has_contrasts = self.sizes.size < groups.size

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Levels in the order of slots: of every group all but its last level, then the last ones, (n,)."""
        last = np.zeros(self.sizes.size, dtype=np.intp)
        last[self.groups] = np.arange(self.levels)  # the last one stays
        others = np.setdiff1d(np.arange(self.levels), last)
        return np.concatenate([others[np.argsort(self.groups[others], kind="stable")], last])


@lru_cache(maxsize=8)
def groupings_of(schema: Schema, factors: frozenset[str], told_apart: tuple[int, ...] = ()) -> tuple[Grouping, ...]:
    """The grouping of every variable that some of these factors are of, in schema order.

    Variables in `told_apart` have a group for every level.
    """
    recodes: dict[int, dict[str, NDArray[np.intp]]] = {axis: {} for axis in told_apart}
    names, shape, axes = schema.names, schema.shape, schema.axes_and_sizes
    for factor in sorted(factors):
        axis = axes[factor][0]
        own = recodes.setdefault(axis, {})
        if factor != names[axis]:
            own[factor] = np.array(schema.groups_of(factor), dtype=np.intp)
    groupings = []
    for axis, own in sorted(recodes.items()):
        groups = np.arange(shape[axis]) if axis in told_apart else np.zeros(shape[axis], dtype=np.intp)
        for cells in own.values():
            groups = np.unique(groups * (cells.max() + 1) + cells, return_inverse=True)[1]
        groupings.append(Grouping(axis, groups, own))
    return tuple(groupings)


def axes_in_use(schema: Schema, tables: Sequence[Table]) -> SchemaAxes:
    """The axes of some tables."""
    return _axes(schema, factors_of(tables))


class SchemaAxes:
    """An axis for the levels of every variable; of one with recodes also for its groups and for every recode.

    Variables of one level have none. Where recodes tell all levels apart, the levels are the groups; a recode that
    tells all groups apart is them, and gives them their order.

    Parameters
    ----------
    schema : Schema
    groupings : sequence of Grouping
        Of all variables in use.

    Attributes
    ----------
    sizes : list of int
        Cells along every axis.
    variable : list of int
        Of every axis, as the schema numbers it.
    cells : list of ndarray of int, (levels,)
        Along every axis the cell of each level of its variable.
    bits : list of int
        Of every axis' variable the axis of levels as a bit, 0 where it has no contrasts.
    groups : list of int
        Of every axis' variable the axis of groups, -1 where it has one.
    is_whole : list of bool
        Whether an axis is of levels.
    has_groups : bool
        Whether some variable has several.
    provides : list of int
        Bits of an axis and of those of its variable that are sums over it.
    told : list of ndarray of int, (levels,)
        Of an axis of levels the group of each, of another one its cell of each level of the variable.
    counts : list of ndarray of int
        How many levels each of these groups, or cells, has.
    even_shares : list of ndarray
        Of an axis of levels the mean size of groups over each one's, of another one 1 for every cell.
    """

    def __init__(self, schema: Schema, groupings: Sequence[Grouping]) -> None:
        self.sizes: list[int] = []
        self.variable: list[int] = []
        self.cells: list[Integers] = []
        self.bits: list[int] = []
        self.groups: list[int] = []
        self.provides: list[int] = []
        self._number: dict[str, int] = {}
        for grouping in groupings:
            if grouping.levels > 1:
                self._lay(schema.names[grouping.axis], grouping)
        self.is_whole = [own == 1 << axis for axis, own in enumerate(self.bits)]
        self.has_groups = max(self.groups, default=-1) >= 0
        told = [self.groups[axis] if whole else axis for axis, whole in enumerate(self.is_whole)]
        self.told = [self.cells[own] if own >= 0 else np.zeros(self.sizes[i], np.intp) for i, own in enumerate(told)]
        self.counts = [np.bincount(own) for own in self.told]
        along = zip(self.counts, self.is_whole, self.sizes, strict=True)
        self.even_shares = [own.mean() / own if whole else np.ones(size) for own, whole, size in along]

    def _lay(self, name: str, grouping: Grouping) -> None:
        """The axes of a variable, by the factors that they are."""
        levels, first = {name: np.arange(grouping.levels)}, len(self.sizes)
        recodes = {own: cells for own, cells in grouping.recodes.items() if cells.max()}
        as_fine = {own: cells for own, cells in recodes.items() if cells.max() + 1 == grouping.sizes.size}
        groups = next(iter(as_fine.items()), ("", grouping.groups)) if grouping.has_contrasts else (name, levels[name])
        axes = (levels if grouping.has_contrasts else {}) | (dict([groups]) | recodes if recodes else {})
        for factor, cells in axes.items():
            self._number[factor] = len(self.sizes)
            self.sizes.append(int(cells.max()) + 1)
            self.cells.append(cells)
        own = range(first, len(self.sizes))
        self.variable += [grouping.axis for _ in own]
        self.bits += [grouping.has_contrasts << first for _ in own]
        self.groups += [first + grouping.has_contrasts if recodes else -1 for _ in own]
        self.provides += [sum([1 << other for other in own if self._refines(axis, other)]) for axis in own]

    def _refines(self, fine: int, coarse: int) -> bool:
        return bool((self.between(fine, coarse)[self.cells[fine]] == self.cells[coarse]).all())

    def of(self, table: Table) -> Axes:
        """The axes of a table."""
        number = self._number
        return tuple([number[name] for name in table.factors if name in number])

    def size(self, axes: Axes) -> int:
        """Cells of a table."""
        return prod([self.sizes[axis] for axis in axes])

    def between(self, fine: int, coarse: int) -> Integers:
        """The cell of the coarser axis of a variable that each of the finer one goes to."""
        found = np.zeros(self.sizes[fine], dtype=np.intp)
        found[self.cells[fine]] = self.cells[coarse]
        return found


@lru_cache(maxsize=4)
def _axes(schema: Schema, factors: frozenset[str]) -> SchemaAxes:
    return SchemaAxes(schema, groupings_of(schema, factors))

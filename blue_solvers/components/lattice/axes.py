"""The variables of a problem as axes: levels where they have contrasts, their groups, and every recode in use."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.grouping import Grouping, groupings_of
from constraint_builders import Schema
from constraint_builders.arrays import Integers
from constraint_builders.description.table import Table, factors_of

Axes = tuple[int, ...]  # of a table, in increasing order


class SchemaAxes:
    """An axis for the levels of every variable; of one with recodes also for its groups and for every recode.

    Variables of one level have none. Where recodes tell all levels apart, the levels are the groups; a recode that
    tells all groups apart is them, and gives them their order.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table

    Attributes
    ----------
    sizes : list of int
        Cells along every axis.
    variable : list of int
        Of every axis, as the schema numbers it.
    cells : list of ndarray of int, (levels,)
        Along every axis the cell of each level of its variable.
    levels, groups : list of int
        Of every axis' variable the axis of levels, -1 where it has no contrasts; and of groups, -1 where it has one.
    is_whole : list of bool
        Whether an axis is of levels.
    has_groups : bool
        Whether some variable has several.
    provides : list of int
        Bits of an axis and of those of its variable that are sums over it.
    """

    def __init__(self, schema: Schema, tables: Sequence[Table]) -> None:
        self.sizes: list[int] = []
        self.variable: list[int] = []
        self.cells: list[Integers] = []
        self.levels: list[int] = []
        self.groups: list[int] = []
        self.provides: list[int] = []
        self._number: dict[str, int] = {}
        factors: dict[int, list[str]] = {}
        for factor in sorted(factors_of(tables)):
            factors.setdefault(schema.axis_of(factor), []).append(factor)
        for grouping in groupings_of(schema, tables):
            if grouping.levels > 1:
                names = [own for own in factors[grouping.axis] if schema.size_of(own) > 1]
                recodes = {own: np.array(schema.groups_of(own)) for own in names if own != schema.names[grouping.axis]}
                self._lay(schema.names[grouping.axis], grouping, recodes)
        self.is_whole = [own == axis for axis, own in enumerate(self.levels)]
        self.has_groups = max(self.groups, default=-1) >= 0

    def _lay(self, name: str, grouping: Grouping, recodes: dict[str, Integers]) -> None:
        """The axes of a variable."""
        levels, first = {name: np.arange(grouping.levels)}, len(self.sizes)
        as_fine = {own: cells for own, cells in recodes.items() if cells.max() + 1 == grouping.sizes.size}
        groups = next(iter(as_fine.items()), ("", grouping.groups)) if grouping.has_contrasts else (name, levels[name])
        axes = (levels if grouping.has_contrasts else {}) | (dict([groups]) | recodes if recodes else {})
        for factor, cells in axes.items():
            self._number[factor] = len(self.sizes)
            self.sizes.append(int(cells.max()) + 1)
            self.cells.append(cells)
        own = range(first, len(self.sizes))
        self.variable += [grouping.axis for _ in own]
        self.levels += [first if grouping.has_contrasts else -1 for _ in own]
        self.groups += [first + grouping.has_contrasts if recodes else -1 for _ in own]
        self.provides += [sum([1 << other for other in own if self._refines(axis, other)]) for axis in own]

    def _refines(self, fine: int, coarse: int) -> bool:
        return bool((self.between(fine, coarse)[self.cells[fine]] == self.cells[coarse]).all())

    def of(self, table: Table) -> Axes:
        """The axes of a table."""
        return tuple([self._number[factor] for factor in table.factors if factor in self._number])

    def size(self, axes: Axes) -> int:
        """Cells of a table."""
        return prod([self.sizes[axis] for axis in axes])

    def keeps(self, mask: int, axis: int) -> bool:
        """Whether some variables, as bits of their axes of levels, have that of an axis."""
        return self.levels[axis] >= 0 and mask >> self.levels[axis] & 1 == 1

    def between(self, fine: int, coarse: int) -> Integers:
        """The cell of the coarser axis of a variable that each of the finer one goes to."""
        found = np.zeros(self.sizes[fine], dtype=np.int64)
        found[self.cells[fine]] = self.cells[coarse]
        return found

    def groups_along(self, axis: int) -> Integers:
        """Of an axis of levels the group of each, (levels,), of another one its cell of each level of the variable."""
        own = self.groups[axis] if self.is_whole[axis] else axis
        return self.cells[own] if own >= 0 else np.zeros(self.sizes[axis], dtype=np.int64)

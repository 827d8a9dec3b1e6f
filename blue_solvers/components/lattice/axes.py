"""The variables of a problem as axes: levels where they have contrasts, their groups, and every recode in use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.grouping import groupings_of_factors
from constraint_builders import Schema
from constraint_builders.arrays import Integers
from constraint_builders.description.table import Table, factors_of

Axes = tuple[int, ...]  # of a table, in increasing order


class SchemaAxes:
    """An axis for the levels of every variable; of one with recodes also for its groups and for every recode.

    Variables of one level have none. Where recodes tell all levels apart, the levels are the groups.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table

    Attributes
    ----------
    sizes : list of int
        Cells along every axis.
    groups_of : list of int
        Of an axis of levels that of its groups, -1 where there is one group; of other axes -2.
    cells : dict of ndarray
        Of an axis of levels, (levels,), the group of each; of one of a recode, (groups,), the cell of each group.
    provides : list of int
        Bits of an axis and of those of its variable that are sums over it.
    group_sizes : dict of ndarray
        Of axes of groups the levels in each.
    """

    def __init__(self, schema: Schema, tables: Sequence[Table]) -> None:
        self.sizes: list[int] = []
        self.groups_of: list[int] = []
        self.cells: dict[int, Integers] = {}
        self.provides: list[int] = []
        self.group_sizes: dict[int, Integers] = {}
        self._variable: list[int] = []
        self._levels: dict[int, int] = {}
        self._groups: dict[int, int] = {}
        self._number: dict[str, int] = {}
        used = factors_of(tables)
        factors = sorted((schema.axis_of(factor), factor) for factor in used)
        for grouping in groupings_of_factors(schema, used):
            axis, name = grouping.axis, schema.names[grouping.axis]
            if schema.shape[axis] == 1:
                continue
            recodes = [factor for at, factor in factors if at == axis and factor != name and schema.size_of(factor) > 1]
            levels = self._add(axis, schema.shape[axis], -1) if grouping.has_contrasts else -1
            groups = self._lay_groups(schema, axis, levels, grouping.groups, recodes) if recodes else -1
            self._number[name] = levels if levels >= 0 else groups
            self._levels[axis], self._groups[axis] = levels, groups
        self._lay_provided()

    def _add(self, variable: int, size: int, groups: int) -> int:
        self.sizes.append(size)
        self.groups_of.append(groups)
        self._variable.append(variable)
        return len(self.sizes) - 1

    def _lay_groups(self, schema: Schema, variable: int, levels: int, own: Integers, recodes: list[str]) -> int:
        """Axes of groups and of recodes; what is as fine, a recode or the levels, gives groups their order."""
        count = int(own.max()) + 1
        finest = next((factor for factor in recodes if schema.size_of(factor) == count and levels >= 0), None)
        if finest is not None:
            own = np.array(schema.groups_of(finest))
        elif levels < 0:
            own = np.arange(count)
        groups = self._add(variable, count, -2)
        self.group_sizes[groups] = np.bincount(own)
        if levels >= 0:
            self.groups_of[levels], self.cells[levels] = groups, own.astype(np.int64)
        first = np.unique(own, return_index=True)[1]
        for factor in recodes:
            self._number[factor] = groups if factor == finest else self._add(variable, schema.size_of(factor), -2)
            if factor != finest:
                self.cells[self._number[factor]] = np.array(schema.groups_of(factor), dtype=np.int64)[first]
        return groups

    def _lay_provided(self) -> None:
        for axis, variable in enumerate(self._variable):
            bits = 1 << axis
            for other in range(axis + 1, len(self.sizes)):
                if self._variable[other] != variable:
                    break
                recode = axis in self.cells and self.groups_of[axis] == -2
                if not recode or _refines(self.cells[axis], self.cells[other]):
                    bits |= 1 << other
            self.provides.append(bits)

    def of(self, table: Table) -> Axes:
        """The axes of a table."""
        return tuple([self._number[factor] for factor in table.factors if factor in self._number])

    def size(self, axes: Axes) -> int:
        """Cells of a table."""
        cells = 1
        for axis in axes:
            cells *= self.sizes[axis]
        return cells

    def between(self, fine: int, coarse: int) -> Integers:
        """The cell of the coarser axis of a variable that each of the finer one goes to."""
        if fine in self.group_sizes:
            return self.cells[coarse]
        own = self.cells[fine]
        if coarse in self.group_sizes:
            return own
        if self.groups_of[fine] >= 0:
            return self.cells[coarse][own]
        found = np.zeros(self.sizes[fine], dtype=np.int64)
        found[own] = self.cells[coarse]
        return found

    def levels_axis(self, axis: int) -> int:
        """The axis of levels of an axis' variable, -1 where it has no contrasts."""
        return self._levels[self._variable[axis]]

    def groups_axis(self, axis: int) -> int:
        """The axis of groups of an axis' variable, -1 where it has one group."""
        return self._groups[self._variable[axis]]

    def sizes_of_groups(self, axis: int) -> Integers:
        """The levels that each group of an axis of levels has, or each cell of another axis."""
        groups = self.groups_axis(axis)
        if groups < 0:
            return np.array([self.sizes[axis]])
        if self.groups_of[axis] >= -1 or axis == groups:
            return self.group_sizes[groups]
        return np.bincount(self.cells[axis], self.group_sizes[groups]).astype(np.int64)

    def groups_along(self, axis: int) -> Integers:
        """The group of every level of an axis of levels."""
        return self.cells.get(axis, np.zeros(self.sizes[axis], dtype=np.int64))

    def are_of_one_variable(self, axis: int, other: int) -> bool:
        """Whether two axes are of one variable."""
        return self._variable[axis] == self._variable[other]


def _refines(fine: Integers, coarse: Integers) -> bool:
    """Whether cells of one recode of groups lie within those of another."""
    return bool(np.unique(np.stack([fine, coarse]), axis=1).shape[1] == np.unique(fine).size)

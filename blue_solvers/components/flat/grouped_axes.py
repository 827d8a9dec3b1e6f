"""The variables of a problem as axes of closed tables: their levels, their groups, and every recode in use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blue_solvers.components.grouping import group_sums, groupings_of_factors
from constraint_builders import Schema
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.table import Table, factors_of
from constraint_builders.relations.closed_tables import ALWAYS, NOTHING


class GroupedAxes:
    """An axis for the levels of every variable; of one with recodes also for its groups and for every recode.

    Parameters
    ----------
    schema : Schema
    tables : sequence of Table

    Attributes
    ----------
    shape, instead : list of int
        As `ClosedTables.of` takes them.
    several : list of (int, ndarray)
        For every variable of several groups the axis of its levels, and the groups' sizes.
    groups : ndarray of int
        The groups of the levels of axes, one after the other, each after their number.
    listed : ndarray of int
        Where those of an axis are, -1 where it has one group.
    whitened : dict of ndarray
        Of the axis of groups and of recodes, their cells by group sums over the roots of the groups' sizes.
    roots : dict of ndarray
        Roots of the sizes of the groups; 1 for cells of recodes.
    """

    def __init__(self, schema: Schema, tables: Sequence[Table]) -> None:
        self.shape: list[int] = []
        self.instead: list[int] = []
        self.several: list[tuple[int, Integers]] = []
        self.whitened: dict[int, Float] = {}
        self.roots: dict[int, Float] = {}
        self._number: dict[str, int] = {}
        used = factors_of(tables)
        factors = sorted((schema.axis_of(factor), factor) for factor in used)
        groups: list[Integers] = []
        listed: list[int] = []
        for grouping in groupings_of_factors(schema, used):
            axis, sizes = grouping.axis, grouping.sizes
            if schema.shape[axis] == 1:
                continue
            self._number[schema.names[axis]] = len(self.shape)
            if sizes.size == 1:
                self._add(schema.shape[axis], NOTHING)
                listed.append(-1)
                continue
            self.several.append((len(self.shape), sizes))
            listed.append(sum(map(len, groups)))
            groups.append(np.concatenate([[sizes.size], grouping.groups]))
            self._add(schema.shape[axis], len(self.shape) + 1)
            self.whitened[len(self.shape)] = np.eye(sizes.size)
            self.roots[len(self.shape)] = np.sqrt(sizes)
            self._add(sizes.size, ALWAYS)
            for factor in (own for at, own in factors if at == axis and own != schema.names[axis]):
                if schema.size_of(factor) > 1:
                    self._number[factor] = len(self.shape)
                    self.whitened[len(self.shape)] = group_sums(schema, grouping, factor) * np.sqrt(sizes)
                    self.roots[len(self.shape)] = np.ones(schema.size_of(factor))
                    self._add(schema.size_of(factor), ALWAYS)
            listed += [-1] * (len(self.shape) - len(listed))
        self._is_whole = used <= self._number.keys()
        self.groups = np.concatenate([np.zeros(0, dtype=np.int64), *groups]).astype(np.int64)
        self.listed = np.array(listed, dtype=np.int64)

    def _add(self, size: int, instead: int) -> None:
        self.shape.append(size)
        self.instead.append(instead)

    def of(self, table: Table) -> tuple[int, ...]:
        """The axes of a table."""
        number = self._number
        if self._is_whole:
            return tuple(map(number.__getitem__, table.factors))
        return tuple(number[factor] for factor in table.factors if factor in number)

    def group_of(self, axis: int) -> Integers:
        """The groups of the levels of an axis of levels."""
        start, levels = self.listed[axis], self.shape[axis]
        return np.zeros(levels, np.int64) if start < 0 else self.groups[start + 1 : start + 1 + levels]

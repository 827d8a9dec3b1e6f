"""How the cells of tables are written down: one column a variable, holding a label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from constraint_builders.arrays import Integers
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table

SUMMED_OUT = "*"


@dataclass(frozen=True)
class CellKeys:
    """What every column says in every table.

    Attributes
    ----------
    labels : tuple
        ``labels[axis][factor]`` are the labels that the column of variable `axis` takes where a table has that factor
        of it: factor 0 is summed out, with the one label ``*``; 1 is the variable's levels, later ones its recodes.
    factors : ndarray, (tables, variables)
        Which factor of every variable every table has.
    """

    tables: tuple[Table, ...]
    labels: tuple[tuple[tuple[str, ...], ...], ...]
    factors: Integers

    @cached_property
    def strides(self) -> Integers:
        """By how much the position in a table grows with a cell along every variable, (tables, variables)."""
        strides = np.zeros_like(self.factors)
        for row, table in zip(strides, self.tables, strict=True):
            stride = 1
            for axis, size in zip(reversed(table.axes), reversed(table.shape), strict=True):
                row[axis] = stride
                stride *= size
        return strides

    def numbers(self, axis: int, table_of_cell: Integers, position_in_table: Integers) -> Integers:
        """For every cell the number of its label in ``labels[axis]``, all factors laid end to end."""
        extents = np.array([len(labels) for labels in self.labels[axis]])
        starts = np.cumsum(extents) - extents
        factors = self.factors[:, axis]
        along = position_in_table // np.maximum(self.strides[:, axis], 1)[table_of_cell]
        return starts[factors][table_of_cell] + along % extents[factors][table_of_cell]


def cell_keys(schema: Schema, tables: Sequence[Table]) -> CellKeys:
    """Work out what every column says in every one of `tables`.

    Raises
    ------
    ValueError
        If a level or a recode's group is labelled ``*``, which says that a variable is summed out.
    """
    labels: list[list[tuple[str, ...]]] = [[(SUMMED_OUT,), variable.levels] for variable in schema.variables]
    numbers = dict.fromkeys(schema.names, 1)
    for recode in schema.recodes:
        numbers[recode.name] = len(labels[recode.axis])
        labels[recode.axis].append(recode.labels)
    for name, factors in zip(schema.names, labels, strict=True):
        if any(SUMMED_OUT in factor for factor in factors[1:]):
            raise ValueError(
                f"variable {name!r} has the label {SUMMED_OUT!r}, in files the sign of summed out: rename it"
            )
    found = np.zeros((len(tables), len(labels)), dtype=np.int64)
    for row, table in zip(found, tables, strict=True):
        row[list(table.axes)] = [numbers[factor] for factor in table.factors]
    return CellKeys(tuple(tables), tuple(tuple(factors) for factors in labels), found)

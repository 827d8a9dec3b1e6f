"""Tables: which variables a marginal keeps, and at which recode."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod
from operator import itemgetter, lt

import numpy as np
from numpy.typing import NDArray

from constraint_builders.description.described import Described
from constraint_builders.description.schema import Schema


@dataclass(frozen=True)
class Table(Described):
    """One marginal of the detailed histogram.

    Attributes
    ----------
    axes : tuple of int
        The schema's variables that are not summed out, in the order of the name that the table was asked for under.
    factors : tuple of str
        For each of `axes` the name of the variable (all its levels) or of one of its recodes.
    shape : tuple of int
        Number of cells along each factor; cells are in C order.
    name : str
        Canonical name, the same for every order of the factors.
    """

    axes: tuple[int, ...]
    factors: tuple[str, ...]
    shape: tuple[int, ...]
    name: str

    @cached_property
    def size(self) -> int:
        """Number of cells."""
        return prod(self.shape)

    @property
    def is_turned(self) -> bool:
        """Whether the factors are in another order than the schema's."""
        return not all(map(lt, self.axes, self.axes[1:]))

    @property
    def schema_order(self) -> tuple[int, ...]:
        """The positions of `axes` in the schema's order: what ``transpose`` takes to turn the cells to it."""
        return tuple(position for position, _ in sorted(enumerate(self.axes), key=itemgetter(1)))

    @property
    def sort_key(self) -> tuple[int, tuple[int, ...], str]:
        """Puts tables in order: of few factors before those of many, of the schema's first variables before others."""
        return len(self.axes), tuple(sorted(self.axes)), self.name

    def places_in(self, other: Table) -> NDArray[np.intp]:
        """For every cell its position in the same table with its factors in another order."""
        cells = np.arange(other.size).reshape(other.shape)
        return cells.transpose([other.axes.index(axis) for axis in self.axes]).ravel()

    def over(self, smaller: Schema) -> Table:
        """What it becomes where it is summed over the variables that a schema has neither as such nor as recodes."""
        return make_table(smaller, tuple(factor for factor in self.factors if factor in smaller.factor_names))

    def in_schema_order(self) -> Table:
        """The same table with its factors in the schema's order."""
        return self._transposed(self.schema_order) if self.is_turned else self

    def _transposed(self, order: tuple[int, ...]) -> Table:
        axes, shape = (tuple(of[i] for i in order) for of in (self.axes, self.shape))
        return Table(axes, tuple(self.factors[i] for i in order), shape, self.name)


def make_table(schema: Schema, factors: tuple[str, ...]) -> Table:
    """Build the table with these factors (variables or recodes), given in any order, in the schema's.

    Raises
    ------
    ValueError
        If a factor is unknown, or two factors belong to one variable.
    """
    ordered = sorted((schema.axis_of(factor), factor) for factor in factors)
    axes = tuple(axis for axis, _ in ordered)
    names = tuple(factor for _, factor in ordered)
    if len(set(axes)) < len(axes):
        raise ValueError(f"table {' * '.join(factors)!r} uses a variable twice: each variable has one factor at most")
    name = " * ".join(names) or "total"
    if names == schema.names:
        name = "detailed"
    return Table(axes, names, tuple(schema.size_of(factor) for factor in names), name)


def parse_table(schema: Schema, name: str) -> Table:
    """Read a table's name, ``"total"``, ``"detailed"`` or factors joined by ``*``, in any order; its cells follow it.

    Parameters
    ----------
    schema : Schema
    name : str

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        If a factor is unknown, repeated or empty.

    Examples
    --------
    >>> parse_table(Schema({"sex": 2, "age": 4, "race": 5}), "age * sex")
    Table(axes=(1, 0), factors=('age', 'sex'), shape=(4, 2), name='sex * age')
    """
    if not isinstance(name, str):
        raise ValueError(f"table name {name!r} is not text: write factors joined by ' * ', or 'total', or 'detailed'")
    if name == "total":
        return Table((), (), (), name)
    factors = schema.names if name == "detailed" else tuple(name.split(" * "))
    try:
        axes, shape = zip(*map(schema.axes_and_sizes.__getitem__, factors), strict=True)
    except KeyError:
        return _parse_any_spelling(schema, name)
    if not all(map(lt, axes, axes[1:])):
        return _parse_any_spelling(schema, name)
    return Table(axes, factors, shape, "detailed" if factors == schema.names else name)


def _parse_any_spelling(schema: Schema, name: str) -> Table:
    if name.strip() == "total":
        return make_table(schema, ())
    if name.strip() == "detailed":
        return make_table(schema, schema.names)
    factors = tuple(factor.strip() for factor in name.split("*"))
    try:
        table = make_table(schema, factors)
    except ValueError as error:
        raise ValueError(f"table {name!r}: {error}") from None
    if factors == table.factors:
        return table
    return table._transposed(tuple(table.factors.index(factor) for factor in factors))


def axes_of(tables: Iterable[Table]) -> list[int]:
    """The variables that some of the tables keep, in order."""
    return sorted(set(chain.from_iterable(table.axes for table in tables)))


def factors_of(tables: Iterable[Table]) -> set[str]:
    """The factors that some of the tables keep."""
    return set(chain.from_iterable(table.factors for table in tables))

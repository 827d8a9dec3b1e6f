"""Tables: which variables a marginal keeps, and at which recode."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from constraint_builders.description.schema import Schema


@dataclass(frozen=True)
class Table:
    """One marginal of the detailed histogram.

    Attributes
    ----------
    axes : tuple of int
        The schema's variables that are not summed out, in increasing order.
    factors : tuple of str
        For each of `axes` the name of the variable (all its levels) or of one of its recodes.
    shape : tuple of int
        Number of cells along each factor; cells are in C order.
    name : str
        Canonical name.
    """

    axes: tuple[int, ...]
    factors: tuple[str, ...]
    shape: tuple[int, ...]
    name: str

    @property
    def size(self) -> int:
        """Number of cells."""
        return prod(self.shape)


def make_table(schema: Schema, factors: tuple[str, ...]) -> Table:
    """Build the table with these factors (variables or recodes), given in any order.

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
    """Read a table's name, ``"total"``, ``"detailed"`` or factors joined by ``*``, in any order.

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
    Table(axes=(0, 1), factors=('sex', 'age'), shape=(2, 4), name='sex * age')
    """
    if not isinstance(name, str):
        raise ValueError(f"table name {name!r} is not text: write factors joined by ' * ', or 'total', or 'detailed'")
    if name.strip() == "total":
        return make_table(schema, ())
    if name.strip() == "detailed":
        return make_table(schema, schema.names)
    try:
        return make_table(schema, tuple(factor.strip() for factor in name.split("*")))
    except ValueError as error:
        raise ValueError(f"table {name!r}: {error}") from None

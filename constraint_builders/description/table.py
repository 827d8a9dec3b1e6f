"""Tables: which variables a marginal keeps, and at which recode; what they are called, where, and how they lie.

Tables of some names lie in a vector one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import prod
from operator import attrgetter, itemgetter, lt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constraint_builders.description.areas import Places
from constraint_builders.description.described import Described
from constraint_builders.description.labelled import Dimension, refuse_sets
from constraint_builders.description.layout import Layout
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import ONE_PLACE, Spine


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


def factors_of(tables: Iterable[Table]) -> frozenset[str]:
    """The factors that some of the tables keep."""
    return frozenset(chain.from_iterable([table.factors for table in tables]))


class NamedTables(NamedTuple):
    """Tables of some names: how they lie in a vector, what they are, and the number of the level of each."""

    layout: Layout
    tables: tuple[Table, ...]
    levels: tuple[int, ...]


@dataclass(frozen=True)
class TableNames(Described):
    """Names of tables: (level, table), of a geolevel or a layer, or the table alone where there is no geography.

    Attributes
    ----------
    schema : Schema
    places : Spine or Areas
    by_level : bool
        Whether names say the level; without, there is one place.
    """

    schema: Schema
    places: Places
    by_level: bool

    @classmethod
    def of(cls, schema: Schema, places: Places | None) -> TableNames:
        """Of tables of some places, or without a geography."""
        return cls(schema, places or ONE_PLACE, places is not None)

    def read(self, name: Any) -> tuple[int, Table]:
        """The number of the level, and the table; `ValueError` for a name that means nothing."""
        if not self.by_level:
            return 0, parse_table(self.schema, name)
        if not isinstance(name, tuple) or len(name) != 2:
            kind = "a spine, tables are named (geolevel, table)"
            if not isinstance(self.places, Spine):
                kind = "areas, tables are named (layer, table)"
            raise ValueError(f"with {kind}: got {name!r}")
        level, table = name
        return self.places.level_index(level), parse_table(self.schema, table)

    def called(self, level: int, table: str) -> Any:
        """The name of a table, in some spelling, at a level."""
        return (self.places.levels[level], table) if self.by_level else table

    def canonical(self, name: Any) -> Any:
        """The one name of a table in all spellings; `ValueError` for a name that means nothing."""
        level, table = self.read(name)
        return self.called(level, table.name)

    def dimensions(self, name: Any) -> tuple[Dimension, ...]:
        """The axes of a table: with levels its geounits or areas, then the factors in the order of the name."""
        level, table = self.read(name)
        factors = tuple(Dimension(factor, self.schema.labels_of(factor)) for factor in table.factors)
        if not self.by_level:
            return factors
        if level not in self._codes:
            self._codes[level] = tuple(str(self.places.geocodes[i]) for i in self.places.members[level].tolist())
        return Dimension("geocode", self._codes[level]), *factors

    @cached_property
    def _codes(self) -> dict[int, tuple[str, ...]]:
        """The geounits of levels, by their numbers, that somebody asked for."""
        return {}

    def tables(self, names: Iterable[Any]) -> NamedTables:
        """Tables of some names, one after another, each an array of the shape of its `dimensions`."""
        names = tuple(names)
        levels, tables = zip(*map(self.read, names), strict=True) if names else ((), ())
        return self.laid_out(names, tables, levels)

    def laid_out(self, names: Sequence[Any], tables: tuple[Table, ...], levels: tuple[int, ...]) -> NamedTables:
        """The same of names that were read before."""
        keys: list[Any] = [table.name for table in tables]
        shapes = [table.shape for table in tables]
        if self.by_level:
            keys = [(self.places.levels[level], key) for level, key in zip(levels, keys, strict=True)]
            sizes = [self.places.members[level].size for level in levels]
            shapes = [(size, *shape) for size, shape in zip(sizes, shapes, strict=True)]
        return NamedTables(Layout(names, shapes, self, keys), tables, levels)


def read_desired(
    names: TableNames,
    desired: Mapping[str, Any] | Sequence[str] | str,
    observed: Sequence[Table],
    lacks: Callable[[int, Table], int | None],
) -> list[Any]:
    """Names of the desired tables, level by level.

    ``"all"`` stands for every plain marginal of some observed table, and these themselves, that the measurements
    determine everywhere: where `lacks`, of the level and the table, is None.
    """
    same: Mapping[str, Any] = dict.fromkeys(names.places.levels, desired)
    found: list[Any] = []
    for level, wanted in (desired if names.by_level and isinstance(desired, Mapping) else same).items():
        number = names.places.level_index(level)
        what = f"desired tables of {level!r}" if names.by_level else "desired tables"
        if isinstance(wanted, str):
            if wanted != "all":
                allowed = f"{what} must be a list" if names.by_level else "desired must be a list of tables"
                raise ValueError(f"{allowed}, or 'all': got {wanted!r}")
            wanted = [table.name for table in _marginals(names.schema, observed) if lacks(number, table) is None]
        refuse_sets(wanted, what)
        found += [names.called(number, table) for table in wanted]
    if not found:
        raise ValueError("no table is desired: name at least one, or leave it out for the observed ones")
    return found


def _marginals(schema: Schema, tables: Sequence[Table]) -> list[Table]:
    """Plain marginals of some table, and the tables themselves, in order of size."""
    found = {table.name: table for table in tables}
    for table in tables:
        plain = [factor for factor in table.factors if factor in schema.names]
        for kept in (c for k in range(len(plain) + 1) for c in combinations(plain, k)):
            marginal = parse_table(schema, " * ".join(kept) or "total")
            found.setdefault(marginal.name, marginal)
    return sorted(found.values(), key=attrgetter("sort_key"))

"""Reading which tables were measured, and are wanted, at which geolevel of a spine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.description.domain import Places
from constraint_builders.description.labelled import Dimension, aligned, refuse_sets
from constraint_builders.description.layout import Layout
from constraint_builders.description.reals import checked_variances, real_array
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table, parse_table
from constraint_builders.memory import require_cells
from constraint_builders.relations.constraints import SelfConsistency

LevelTable = tuple[str, str]


@dataclass(frozen=True)
class TableNames:
    """Canonical form of the names of tables."""

    schema: Schema

    def __call__(self, name: str) -> str:
        """Canonical name; `ValueError` if it means nothing."""
        return parse_table(self.schema, name).name


@dataclass(frozen=True)
class TableDimensions:
    """The axes of a table in the order of its name."""

    schema: Schema

    def __call__(self, name: str) -> tuple[Dimension, ...]:
        """One dimension for each factor."""
        factors = parse_table(self.schema, name).factors
        return tuple(Dimension(factor, self.schema.labels_of(factor)) for factor in factors)


@dataclass(frozen=True)
class SpineNames:
    """Canonical form of (geolevel, table) names."""

    schema: Schema
    places: Places

    def __call__(self, name: Any) -> LevelTable:
        """Canonical name; `ValueError` if it means nothing."""
        if not isinstance(name, tuple) or len(name) != 2:
            kind = "areas, tables are named (layer, table)"
            if isinstance(self.places, Spine):
                kind = "a spine, tables are named (geolevel, table)"
            raise ValueError(f"with {kind}: got {name!r}")
        level, table = name
        self.places.level_index(level)
        return level, parse_table(self.schema, table).name


@dataclass(frozen=True)
class SpineDimensions:
    """The axes of a table at a geolevel: its geounits, and what the table's name says."""

    schema: Schema
    places: Places

    def __call__(self, name: LevelTable) -> tuple[Dimension, ...]:
        """One dimension for the geounits, and one for each factor."""
        level, table = name
        members = self.places.members[self.places.level_index(level)].tolist()
        codes = tuple(str(self.places.geocodes[i]) for i in members)
        return Dimension("geocode", codes), *TableDimensions(self.schema)(table)


def spine_layout(schema: Schema, places: Places, names: Sequence[LevelTable]) -> Layout:
    """Layout of tables at geolevels: each an array (geounits of the level, *table's shape)."""
    reader = SpineNames(schema, places)
    for name in names:
        reader(name)
    shapes = [
        (places.members[places.level_index(level)].size, *parse_table(schema, table).shape) for level, table in names
    ]
    return Layout(names, shapes, reader, SpineDimensions(schema, places))


def table_layout(schema: Schema, names: Sequence[str], tables: Sequence[Table]) -> Layout:
    """Layout of tables without a geography, each under some spelling of its name."""
    shapes, keys = [table.shape for table in tables], [table.name for table in tables]
    return Layout(names, shapes, TableNames(schema), TableDimensions(schema), keys)


def read_observed(
    schema: Schema, places: Places, observed: Mapping[str, Mapping[str, Any]]
) -> tuple[list[LevelTable], list[Float]]:
    """Names and cell variances, (geounits, *shape), of the tables observed at every geolevel.

    Raises
    ------
    ValueError
        If a level or table is unknown, or a variance is negative, NaN or of another shape than (), (geounits,) or
        (geounits, *shape).
    """
    names: list[LevelTable] = []
    variances: list[Float] = []
    for level, tables in observed.items():
        count = places.members[places.level_index(level)].size
        if not isinstance(tables, Mapping):
            raise ValueError(f"observed tables of {level!r} must be given as {{table: variance}}: got {tables!r}")
        for name, value in tables.items():
            table = parse_table(schema, name)
            names.append((level, name))
            dimensions = partial(SpineDimensions(schema, places), (level, name))
            own = aligned(value, dimensions, _variance_of((level, name)))
            variances.append(_cell_variances((level, name), table, count, own))
    if not names:
        raise ValueError("a problem needs at least one observed table: got none")
    return names, variances


def _cell_variances(name: LevelTable, table: Table, count: int, value: Any) -> Float:
    shape = (count, *table.shape)
    require_cells(count * table.size, f"table {name!r}")
    variances = real_array(np.nan if value is None else value, _variance_of(name))
    if variances.shape not in ((), (count,), shape):
        raise ValueError(f"variance of table {name!r} must have shape (), ({count},) or {shape}: got {variances.shape}")
    if variances.shape == (count,):
        variances = variances.reshape(count, *[1] * len(table.shape))
    if value is not None:  # before they are spread over all cells
        variances = checked_variances(variances, _variance_of(name))
    return np.broadcast_to(variances, shape)


def _variance_of(name: LevelTable) -> str:
    return f"variance of table {name!r}"


def read_desired(
    schema: Schema,
    places: Places,
    desired: Mapping[str, Any] | Sequence[str] | str,
    observed: Sequence[Table],
    lacks: Callable[[int, Table], int | None],
) -> list[LevelTable]:
    """Names of the desired tables, level by level.

    ``"all"`` stands for every plain marginal of some observed table, and these themselves, that the measurements
    determine at every geounit of the level: where `lacks`, of the level and the table, is None.
    """
    by_level = desired if isinstance(desired, Mapping) else dict.fromkeys(places.levels, desired)
    names: list[LevelTable] = []
    for level, wanted in by_level.items():
        number = places.level_index(level)
        if isinstance(wanted, str):
            if wanted != "all":
                raise ValueError(f"desired tables of {level!r} must be a list, or 'all': got {wanted!r}")
            names += [(level, t.name) for t in _marginals(schema, observed) if lacks(number, t) is None]
        else:
            refuse_sets(wanted, f"desired tables of {level!r}")
            names += [(level, table) for table in wanted]
    if not names:
        raise ValueError("no table is desired: name at least one, or leave it out for the observed ones")
    return names


def _marginals(schema: Schema, tables: Sequence[Table]) -> list[Table]:
    """Plain marginals of some table, and the tables themselves, in order of size."""
    found = {table.name: table for table in tables}
    for table in tables:
        plain = [factor for factor in table.factors if factor in schema.names]
        for kept in (c for k in range(len(plain) + 1) for c in combinations(plain, k)):
            marginal = parse_table(schema, " * ".join(kept) or "total")
            found.setdefault(marginal.name, marginal)
    return sorted(found.values(), key=attrgetter("sort_key"))


def undetermined(observed: SelfConsistency, table: Table, members: NDArray[np.intp]) -> int | None:
    """A geounit among `members` where the measurements do not determine a table, or None."""
    for component, _ in observed.components(table):
        missing = np.flatnonzero(~observed.determined(component)[members])
        if missing.size:
            return int(members[missing[0]])
    return None

"""What tables are called, where they are from, and how those of some names lie in a vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from operator import attrgetter
from typing import Any, NamedTuple

from constraint_builders.description.areas import Places
from constraint_builders.description.labelled import Dimension, refuse_sets
from constraint_builders.description.layout import Layout
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import ONE_PLACE, Spine
from constraint_builders.description.table import Table, parse_table


class NamedTables(NamedTuple):
    """Tables of some names: how they lie in a vector, what they are, and the number of the level of each."""

    layout: Layout
    tables: tuple[Table, ...]
    levels: tuple[int, ...]


@dataclass(frozen=True)
class TableNames:
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

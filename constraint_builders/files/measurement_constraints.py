"""Constraint rows of noisy measurement files: exact counts and structural zeros, and what is neither."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.files.measurement_files import (
    CONSTRAINT_SUFFIX,
    DETAILED,
    SUMMED_OUT_SPELLINGS,
    Leftovers,
    Values,
    batches,
    groups,
)
from constraint_builders.files.naming import naming
from constraint_builders.files.settings import Settings

SIGNS = {"=": "=", "==": "=", "<=": "<=", ">=": ">="}


@dataclass(frozen=True)
class Zeros:
    """Cells of one table that are zero in some geounits.

    Attributes
    ----------
    table : Table
    geocodes : polars.Series of str, (rows,)
    cells : ndarray of bool, (rows, cells)
    """

    table: Table
    geocodes: pl.Series
    cells: NDArray[np.bool_]


@dataclass(frozen=True)
class ExactCounts:
    """Counts of one table that are known exactly in some geounits.

    Attributes
    ----------
    name : str
        The constraint's.
    table : Table
    geocodes : polars.Series of str, (rows,)
    values : ndarray, (rows, cells)
    """

    name: str
    table: Table
    geocodes: pl.Series
    values: NDArray


@dataclass(frozen=True)
class Query:
    """A constraint's left-hand side: a table, of which some variables are summed over a set of levels only.

    Attributes
    ----------
    table : Table
        With those variables in full.
    chosen : mapping of int to tuple of int
        For each of those axes of the table its set of levels.
    """

    table: Table
    chosen: Mapping[int, tuple[int, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each of the table's axes; 1 for those with a set of levels."""
        return tuple(1 if i in self.chosen else size for i, size in enumerate(self.table.shape))

    def spread(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark the table's cells, (rows, table.size), that the marked cells of the query, (rows, cells), sum."""
        full = np.zeros((len(cells), *self.table.shape), dtype=bool)
        levels = [self.chosen.get(i, range(size)) for i, size in enumerate(self.table.shape)]
        full[np.ix_(range(len(cells)), *levels)] = cells.reshape(-1, *self.shape)
        return full.reshape(len(cells), -1)


def read_constraints(
    path: Path,
    geolevel: str,
    settings: Settings,
    within: Sequence[str] | None,
    leftovers: Leftovers,
    rows_at_once: int | None = None,
) -> Iterator[Zeros | ExactCounts]:
    """The zeros that one file of constraints implies and its exact counts, some rows of the file at a time.

    A count that is 0, or at most 0, is zero. Any other inequality says nothing that a linear estimate can use. What is
    not understood is counted among the leftovers by name, with the reason.

    Raises
    ------
    ValueError
        As `batches`, or if a list of values has not one finite number for each cell.
    """
    required = ("geocode", "query_name", "sign", "value")
    for frame in batches(path, required, settings.schema.names, within, rows_at_once):
        keys = ["query_name", "sign", *(name for name in settings.schema.names if name in frame.columns)]
        with naming(path):
            silent = frame.filter(pl.col("value").is_null())
            for label, count in silent["query_name"].value_counts(sort=True).rows():
                leftovers.add(geolevel, label, "it gives no value", count)
            for said, rows, lists in groups(frame.filter(pl.col("value").is_not_null()), keys):
                yield from _used(said, rows, lists, geolevel, settings, leftovers)


def _used(
    said: Mapping[str, Any], rows: pl.DataFrame, lists: Values, geolevel: str, settings: Settings, leftovers: Leftovers
) -> Iterator[Zeros | ExactCounts]:
    """What rows of one constraint say that a linear estimate can use."""
    name, sign = said["query_name"], SIGNS.get(str(said["sign"]).strip())
    query, reason = _understood(said, sign, settings)
    if query is None:
        leftovers.add(geolevel, name, reason, rows.height)
        return
    values = lists.array(math.prod(query.shape), f"the constraint on {query.table.name!r}")
    empty = values <= 0 if sign == "<=" else values == 0
    if empty.any():
        yield Zeros(query.table, rows["geocode"], query.spread(empty))
    if sign == "<=":
        loose = int((values > 0).any(axis=1).sum())
        leftovers.add(geolevel, name, "a linear estimate cannot use an upper bound above 0", loose)
    elif query.chosen:
        other = int((values != 0).any(axis=1).sum())
        leftovers.add(geolevel, name, "it is an exact count of a set of levels that no table has", other)
    else:
        yield ExactCounts(name, query.table, rows["geocode"], values)


def _understood(said: Mapping[str, Any], sign: str | None, settings: Settings) -> tuple[Query | None, str]:
    """The constraint's query, or why it cannot be used."""
    if str(said["query_name"]).removesuffix(CONSTRAINT_SUFFIX) in settings.untrue:
        return None, "it holds of published estimates, not of the true counts"
    if sign is None:
        return None, f"its sign {said['sign']!r} is not one of {', '.join(SIGNS)}"
    if sign == ">=":
        return None, "a linear estimate cannot use a lower bound"
    missing = [name for name in settings.schema.names if name not in said]
    if len(missing) == len(settings.schema.names):
        return _named(str(said["query_name"]), settings.schema)
    if missing:
        return None, f"the file has no column {missing[0]!r} to say what it counts"
    try:
        return _query({name: said[name] for name in settings.schema.names}, settings), ""
    except ValueError as error:
        return None, str(error)


def _named(name: str, schema: Schema) -> tuple[Query | None, str]:
    """The query of a file without attribute columns, by its name."""
    try:
        return Query(parse_table(schema, name.removesuffix(CONSTRAINT_SUFFIX)).in_schema_order(), {}), ""
    except ValueError:
        return None, "no column says what it counts, and its name is no table of the schema"


def _query(said: Mapping[str, str | None], settings: Settings) -> Query:
    """Read the attribute columns: for each variable summed out, ``detailed``, a recode, or a set of levels."""
    factors: list[str] = []
    chosen: dict[str, tuple[int, ...]] = {}
    for variable, factor in said.items():
        if factor in SUMMED_OUT_SPELLINGS:
            continue
        if factor in (DETAILED, variable):
            factors.append(variable)
        elif factor in settings.selections.get(variable, {}):
            factors.append(variable)
            chosen[variable] = settings.selections[variable][str(factor)]
        else:
            factors.append(_own_recode(str(factor), variable, settings.schema))
    table = make_table(settings.schema, tuple(factors))
    return Query(table, {table.factors.index(variable): levels for variable, levels in chosen.items()})


def _own_recode(factor: str, variable: str, schema: Schema) -> str:
    own = [recode.name for recode in schema.recodes if schema.names[recode.axis] == variable]
    if factor not in own:
        known = ", ".join(repr(name) for name in (DETAILED, *own))
        raise ValueError(f"column {variable!r} says {factor!r}, of which the settings know only {known}")
    return factor

"""Constraint rows of noisy measurement files: exact counts and structural zeros, and what is neither."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.measurement_files import CONSTRAINTS, batches, leave_outside
from constraint_builders.files.measurement_queries import (
    CONSTRAINT_SUFFIX,
    Query,
    Values,
    groups,
    other_histogram,
    query_of,
)
from constraint_builders.files.naming import naming
from constraint_builders.files.row_accounts import RowAccounts
from constraint_builders.files.settings import Settings

SIGNS = {"=": "=", "==": "=", "<=": "<=", ">=": ">="}
UNTRUE = "it holds of published estimates, not of the true counts"
UNKNOWN = "the settings do not say that it holds of the true counts"
UPPER = "a linear estimate cannot use an upper bound above 0"
LOWER = "a linear estimate cannot use a lower bound"
OF_SETS = "it is an exact count of a set of levels that no table has"


@dataclass(frozen=True)
class Known:
    """What a constraint says of one table in some geounits.

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


class ExactCounts(Known):
    """Counts that are known exactly."""


@dataclass(frozen=True)
class Zeros(Known):
    """Cells that are zero, where values are true; and whether nothing else is said."""

    only_zeros: bool


@dataclass(frozen=True)
class Bounds(Known):
    """Bounds on the persons of every type that say how many facilities there are; the first type is households."""

    is_upper: bool


def read_constraints(
    path: Path,
    geolevel: str,
    settings: Settings,
    within: Sequence[str] | None,
    accounts: RowAccounts,
    at_once: int,
) -> Iterator[Known]:
    """The zeros that one file of constraints implies, its exact counts and its bounds, some rows of the file at a time.

    A count that is 0, or at most 0, is zero. Any other inequality says nothing that a linear estimate can use. What is
    not understood is counted by name, with the reason.

    Raises
    ------
    ValueError
        As `batches`, or if a list of values has not one finite number for each cell, or a count is negative or no
        whole number.
    """
    columns = ("sign", *settings.schema.names, *settings.beside)
    for frame, seen in batches(path, ("geocode", "query_name", "value"), columns, within, settings.schema, at_once):
        accounts.saw(geolevel, CONSTRAINTS, seen)
        leave_outside(geolevel, CONSTRAINTS, seen - frame.height, within, accounts)
        keys = ["query_name", *(name for name in columns if name in frame.columns)]
        with naming(path):
            silent = frame.filter(pl.col("value").is_null())
            for label, count in silent["query_name"].value_counts(sort=True).rows():
                accounts.leave(geolevel, CONSTRAINTS, label, "it gives no value", count)
            for said, rows, lists in groups(frame.filter(pl.col("value").is_not_null()), keys):
                yield from _used(said, rows, lists, geolevel, settings, accounts)


def _used(
    said: Mapping[str, Any], rows: pl.DataFrame, lists: Values, geolevel: str, settings: Settings, accounts: RowAccounts
) -> Iterator[Known]:
    """What rows of one constraint say that can be used."""
    name = said["query_name"]
    query, sign, reason = _understood(said, settings)
    if query is None:
        accounts.leave(geolevel, CONSTRAINTS, name, reason, rows.height)
        return
    values = lists.array(math.prod(query.shape), f"the constraint on {query.table.name!r}")
    if (values < 0).any():
        code = rows["geocode"][int((values < 0).any(axis=1).argmax())]
        raise ValueError(f"{name} of {geolevel} {code!r} is {values.min()}: no count is below 0")
    if (broken := values != np.rint(values)).any():
        row, cell = np.argwhere(broken)[0]
        raise ValueError(
            f"{name} of {geolevel} {rows['geocode'][int(row)]!r} is {values[row, cell]}: no count is broken"
        )
    says_facilities = _plain(name) in settings.facilities and len(query.table.factors) == 1 and not query.chosen
    if says_facilities:
        yield Bounds(name, query.table, rows["geocode"], values, _is_upper(name, settings))
    is_exact = sign == "=" and not query.chosen
    empty = (values == 0) & (sign != ">=")
    if empty.any():
        yield Zeros(name, query.table, rows["geocode"], query.spread(empty), not is_exact)
    used = rows.height if is_exact else int(empty.any(axis=1).sum())
    accounts.use(geolevel, CONSTRAINTS, name, used)
    why = UPPER if sign == "<=" else LOWER if sign == ">=" else OF_SETS
    if says_facilities:
        why += "; it says how many facilities there are"
    accounts.leave(geolevel, CONSTRAINTS, name, why, rows.height - used)
    if is_exact:
        yield ExactCounts(name, query.table, rows["geocode"], values)


def _plain(name: str) -> str:
    return name.removesuffix(CONSTRAINT_SUFFIX)


def _understood(said: Mapping[str, Any], settings: Settings) -> tuple[Query | None, str, str]:
    """The constraint's query and sign, or why it cannot be used."""
    name, names = _plain(str(said["query_name"])), settings.schema.names
    if name in settings.untrue:
        return None, "", UNTRUE
    other = other_histogram(said, settings)
    if other is not None:
        return None, "", other
    if not _is_trusted(name, settings):
        return None, "", UNKNOWN
    if said.get("sign") is None:
        return None, "", "it has no sign: whether it is an equality or a bound is not said"
    sign = SIGNS.get(str(said["sign"]).strip())
    if sign is None:
        return None, "", f"its sign {said['sign']!r} is not one of {', '.join(SIGNS)}"
    if name in settings.facilities and sign != (expected := "<=" if _is_upper(name, settings) else ">="):
        return None, "", f"its sign is {sign!r}, that of such bounds {expected!r}"
    missing = [own for own in names if own not in said]
    if len(missing) == len(names):
        query, reason = _named(name, settings.schema)
    elif missing:
        query, reason = None, f"the file has no column {missing[0]!r} to say what it counts"
    else:
        try:
            query, reason = query_of(said, settings), ""
        except ValueError as error:
            query, reason = None, str(error)
    return query, sign, reason


def _is_upper(name: str, settings: Settings) -> bool:
    """Whether one of the bounds that say how many facilities there are is the upper one."""
    return _plain(name) == settings.facilities[1]


def _is_trusted(name: str, settings: Settings) -> bool:
    """Whether the settings say that a constraint holds of the true counts, or do not say which ones do."""
    if not settings.true or name in settings.facilities:
        return True
    return any(fnmatchcase(name, pattern) for pattern in settings.true)


def _named(name: str, schema: Schema) -> tuple[Query | None, str]:
    """The query of a file without attribute columns, by its name."""
    try:
        return Query(parse_table(schema, name).in_schema_order(), {}), ""
    except ValueError:
        return None, "no column says what it counts, and its name is no table of the schema"

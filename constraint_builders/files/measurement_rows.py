"""What the rows of noisy measurement files say of tables: measured values, exact counts, structural zeros and bounds.

A reader of one geolevel counts what becomes of every row.
"""

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

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.measurement_files import CONSTRAINTS, EVERY_NAME, MEASUREMENTS, batches
from constraint_builders.files.measurement_queries import (
    CONSTRAINT_SUFFIX,
    MEASUREMENT_SUFFIX,
    NOT_A_TABLE,
    Query,
    Values,
    columns_said,
    groups,
    measured_table,
    other_histogram,
    place_of,
    query_of,
)
from constraint_builders.files.naming import naming
from constraint_builders.files.reading_report import RowAccounts
from constraint_builders.files.settings import Settings

SIGNS = {"=": "=", "==": "=", "<=": "<=", ">=": ">="}
UNTRUE = "it holds of published estimates, not of the true counts"
UNKNOWN = "the settings do not say that it holds of the true counts"
UPPER = "a linear estimate cannot use an upper bound above 0"
LOWER = "a linear estimate cannot use a lower bound"
OF_SETS = "it is an exact count of a set of levels that no table has"
NOT_MEASURED = "it was not measured: no value, or an infinite variance"


@dataclass(frozen=True)
class TableRows:
    """What rows of one name in one file say of a table in some geounits.

    Attributes
    ----------
    path : Path
    name : str
        The query's or the constraint's.
    table : Table
    geocodes : polars.Series of str, (rows,)
    values : ndarray, (rows, cells)
        In C order of the table.
    """

    path: Path
    name: str
    table: Table
    geocodes: pl.Series
    values: NDArray


@dataclass(frozen=True)
class MeasuredRows(TableRows):
    """Measurements, with the variance of every cell of a row, (rows,)."""

    variances: Float


class ExactCounts(TableRows):
    """Counts that are known exactly."""


@dataclass(frozen=True)
class Zeros(TableRows):
    """Cells that are zero, where values are true; and whether nothing else is said."""

    only_zeros: bool


@dataclass(frozen=True)
class Bounds(TableRows):
    """Bounds on the persons of every type that say how many facilities there are; the first type is households."""

    is_upper: bool


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of one geolevel.

    Attributes
    ----------
    geolevel : str
    settings : Settings
    within : sequence of str or None
        Only rows whose geocodes begin with one of these are used.
    accounts : RowAccounts
        Are told what becomes of every row.
    at_once : int
        Cells of a file that may be in memory.
    """

    geolevel: str
    settings: Settings
    within: Sequence[str] | None
    accounts: RowAccounts
    at_once: int

    def measurements(self, path: Path) -> Iterator[MeasuredRows]:
        """The measured rows of one file of measurements by table, some rows of the file at a time.

        Raises
        ------
        ValueError
            As `batches`, or if a variance or a value cannot be one, a list of values has not one for each cell, or a
            row's columns contradict its name.
        """
        required, settings = ("geocode", "query_name", "value", "variance"), self.settings
        for frame in self._batches(path, MEASUREMENTS, required, ("query_shape",)):
            with naming(path):
                beside = settings.variables if settings.beside else ()  # by which rows of histograms are told apart
                keys = ["query_name", *(name for name in beside if name in frame.columns)]
                for said, rows, lists in groups(self._measured(frame), keys):
                    name = said["query_name"]
                    table, reason = _measured_table(name.removesuffix(MEASUREMENT_SUFFIX), rows, said, settings)
                    if table is None:
                        self._leave(MEASUREMENTS, name, reason, rows.height)
                    else:
                        self.accounts.use(self.geolevel, MEASUREMENTS, name, rows.height)
                        values = lists.array(table.size, f"table {table.name!r}")
                        yield MeasuredRows(path, name, table, rows["geocode"], values, rows["variance"].to_numpy())

    def constraints(self, path: Path) -> Iterator[TableRows]:
        """The zeros that one file of constraints implies, its exact counts and its bounds, some rows at a time.

        A count that is 0, or at most 0, is zero. Any other inequality says nothing that a linear estimate can use. What
        is not understood is counted by name, with the reason.

        Raises
        ------
        ValueError
            As `batches`, or if a list of values has not one finite number for each cell, or a count is negative or no
            whole number.
        """
        for frame in self._batches(path, CONSTRAINTS, ("geocode", "query_name", "value"), ("sign",)):
            keys = ["query_name", *(name for name in ("sign", *self.settings.variables) if name in frame.columns)]
            with naming(path):
                frame = self._without(frame, CONSTRAINTS, pl.col("value").is_null(), "it gives no value")
                for said, rows, lists in groups(frame, keys):
                    yield from self._known(path, said, rows, lists)

    def leave_outside(self, kind: str, rows: int) -> None:
        """Count rows of geounits that are not taken."""
        self._leave(kind, EVERY_NAME, f"it is of a geounit outside of {', '.join(self.within or ())}", rows)

    def _leave(self, kind: str, name: str, reason: str, rows: int) -> None:
        self.accounts.leave(self.geolevel, kind, name, reason, rows)

    def _batches(
        self, path: Path, kind: str, required: Sequence[str], optional: Sequence[str]
    ) -> Iterator[pl.DataFrame]:
        """The rows that are taken of one file, with the columns of all variables that it has."""
        columns = (*optional, *self.settings.variables)
        for frame, seen in batches(path, required, columns, self.within, self.settings.schema, self.at_once):
            self.accounts.saw(self.geolevel, kind, seen)
            self.leave_outside(kind, seen - frame.height)
            yield frame

    def _without(self, frame: pl.DataFrame, kind: str, left: pl.Expr, reason: str) -> pl.DataFrame:
        """The other rows, those that are left counted by name."""
        lost = frame.select(left.alias("lost")).to_series()
        if not lost.any():
            return frame
        for name, count in frame.filter(lost)["query_name"].value_counts(sort=True).rows():
            self._leave(kind, name, reason, count)
        return frame.filter(~lost)

    def _measured(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows with a value and a finite variance, which becomes float64."""
        frame = frame.with_columns(pl.col("variance").cast(pl.Float64))
        wrong = frame.filter(pl.col("variance") <= 0)
        if wrong.height:
            raise ValueError(f"{place_of(wrong)}: variance {wrong['variance'][0]} is none of noise: it must be above 0")
        measured = pl.col("variance").is_finite().fill_null(False) & pl.col("value").is_not_null()
        return self._without(frame, MEASUREMENTS, ~measured, NOT_MEASURED)

    def _known(self, path: Path, said: Mapping[str, Any], rows: pl.DataFrame, lists: Values) -> Iterator[TableRows]:
        """What rows of one constraint say that can be used."""
        name, geocodes = said["query_name"], rows["geocode"]
        query, sign, reason = _understood(said, self.settings)
        if query is None:
            self._leave(CONSTRAINTS, name, reason, rows.height)
            return
        values = lists.array(math.prod(query.shape), f"the constraint on {query.table.name!r}")
        for wrong, why in ((values < 0, "no count is below 0"), (values != np.rint(values), "no count is broken")):
            if wrong.any():
                row, cell = np.argwhere(wrong)[0]
                code = geocodes[int(row)]
                raise ValueError(f"{name} of {self.geolevel} {code!r} is {values[row, cell]}: {why}")
        bounds = self.settings.facilities
        says_facilities = _plain(name) in bounds and len(query.table.factors) == 1 and not query.chosen
        if says_facilities:
            yield Bounds(path, name, query.table, geocodes, values, _plain(name) == bounds[1])
        is_exact = sign == "=" and not query.chosen
        empty = (values == 0) & (sign != ">=")
        if empty.any():
            yield Zeros(path, name, query.table, geocodes, query.spread(empty), not is_exact)
        used = rows.height if is_exact else int(empty.any(axis=1).sum())
        self.accounts.use(self.geolevel, CONSTRAINTS, name, used)
        why = UPPER if sign == "<=" else LOWER if sign == ">=" else OF_SETS
        why += "; it says how many facilities there are" if says_facilities else ""
        self._leave(CONSTRAINTS, name, why, rows.height - used)
        if is_exact:
            yield ExactCounts(path, name, query.table, geocodes, values)


def _measured_table(
    name: str, rows: pl.DataFrame, said: Mapping[str, str], settings: Settings
) -> tuple[Table | None, str]:
    """The table of measured rows of one name, or why there is none."""
    other = other_histogram(said, settings)
    if other is not None:
        return None, other
    try:
        table = measured_table(name, [said] if settings.beside else columns_said(rows, settings), settings)
    except ValueError as error:
        _require_shape(rows, parse_table(settings.schema, name).in_schema_order(), settings.schema)
        raise ValueError(f"{place_of(rows)}: {error}") from None
    if table is not None:
        _require_shape(rows, table, settings.schema)
    return table, NOT_A_TABLE


def _require_shape(rows: pl.DataFrame, table: Table, schema: Schema) -> None:
    """Refuse a query whose shape, one size for each variable and 1 where summed out, is not the table's."""
    if not isinstance(rows.schema.get("query_shape"), pl.List | pl.Array):
        return
    sizes = dict(zip(table.axes, table.shape, strict=True))
    expected = [sizes.get(axis, 1) for axis in range(len(schema.names))]
    for shape in rows["query_shape"].unique().drop_nulls().to_list():
        whole = len(shape) == len(expected)
        if list(shape) != expected if whole else [n for n in shape if n != 1] != [n for n in expected if n != 1]:
            raise ValueError(f"{place_of(rows)}: query_shape {shape}, but table {table.name!r} has {expected}")


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
    if settings.true and name not in settings.facilities and not any(fnmatchcase(name, own) for own in settings.true):
        return None, "", UNKNOWN
    if said.get("sign") is None:
        return None, "", "it has no sign: whether it is an equality or a bound is not said"
    sign = SIGNS.get(str(said["sign"]).strip())
    if sign is None:
        return None, "", f"its sign {said['sign']!r} is not one of {', '.join(SIGNS)}"
    if name in settings.facilities and sign != (expected := "<=" if name == settings.facilities[1] else ">="):
        return None, "", f"its sign is {sign!r}, that of such bounds {expected!r}"
    missing = [own for own in names if own not in said]
    if missing and len(missing) < len(names):
        return None, "", f"the file has no column {missing[0]!r} to say what it counts"
    try:
        query = query_of(said, settings) if not missing else Query(parse_table(settings.schema, name).in_schema_order())
    except ValueError as error:
        by_name = "no column says what it counts, and its name is no table of the schema"
        return None, "", by_name if missing else str(error)
    return query, sign, ""

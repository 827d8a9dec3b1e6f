"""What the rows of noisy measurement files say of tables: measured values, exact counts, structural zeros and bounds.

A row counts what its name and its attribute columns say, read into tables of the schema. An attribute column holds
``*`` where its variable is summed out, ``detailed`` or the variable's own name for all levels (two spellings of one
thing), a recode's name, or the name of a set of levels, of which the row has the sum alone. A reader of one geolevel
counts what becomes of every row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.files.measurement_files import (
    CONSTRAINT_SUFFIX,
    CONSTRAINTS,
    EVERY_NAME,
    MEASUREMENT_SUFFIX,
    MEASUREMENTS,
    Values,
    batches,
    groups,
    place_of,
)
from constraint_builders.files.naming import naming
from constraint_builders.files.reading_report import RowAccounts
from constraint_builders.files.settings import Settings

SUMMED_OUT, DETAILED = "*", "detailed"
SUMMED_OUT_SPELLINGS = (None, "", SUMMED_OUT, "total")
SIGNS = {"=": "=", "==": "=", "<=": "<=", ">=": ">="}
OTHER_HISTOGRAM = "it is of another histogram of the same geounits, which these settings do not have"
BOTH_HISTOGRAMS = "it ties two histograms, of which these settings have one"
NOT_A_TABLE = "it is not a table of the schema"
UNTRUE = "it holds of published estimates, not of the true counts"
UNKNOWN = "the settings do not say that it holds of the true counts"
UPPER = "a linear estimate cannot use an upper bound above 0"
LOWER = "a linear estimate cannot use a lower bound"
OF_SETS = "it is an exact count of a set of levels that no table has"
NOT_MEASURED = "it was not measured: no value, or an infinite variance"

Said = Mapping[str, str | None]
Read = TypeVar("Read", bound=tuple[Any, ...])


@dataclass(frozen=True)
class TableRows:
    """What rows of one name in one file say of a table in some geounits.

    Attributes
    ----------
    kind : str
        "measured"; "exact" where counts are known exactly; "zeros" where cells that are true are 0, and "only zeros"
        where the rows say nothing else; "lower" and "upper" of bounds on the persons of every type that say how many
        facilities there are, the first type being households.
    path : Path
    name : str
        The query's or the constraint's.
    table : Table
    geocodes : polars.Series of str, (rows,)
    values : ndarray, (rows, cells)
        In C order of the table.
    variances : ndarray, (rows,)
        Of every cell of a row; 0 of what was not measured.
    are_of_units : bool
        Whether the table is of a second histogram of the same geounits.
    """

    kind: str
    path: Path
    name: str
    table: Table
    geocodes: pl.Series
    values: NDArray
    variances: Float = field(default_factory=lambda: np.zeros(1))
    are_of_units: bool = False


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
    units : Settings or None
        Of a second histogram of the same geounits, in the same files.
    """

    geolevel: str
    settings: Settings
    within: Sequence[str] | None
    accounts: RowAccounts
    at_once: int
    units: Settings | None = None

    def measurements(self, path: Path) -> Iterator[TableRows]:
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
                    of_units, (table, reason) = self._by_either(partial(measured_table, rows, said))
                    if table is None:
                        self._leave(MEASUREMENTS, name, reason, rows.height)
                    else:
                        self.accounts.use(self.geolevel, MEASUREMENTS, name, rows.height)
                        values = lists.array(table.size, f"table {table.name!r}")
                        variances = rows["variance"].to_numpy()
                        yield TableRows("measured", path, name, table, rows["geocode"], values, variances, of_units)

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

    def _by_either(self, read: Callable[[Settings], Read]) -> tuple[bool, Read]:
        """What rows say by the settings, or by those of a second histogram where they are of it; and whether they are.

        What is read begins with None where nothing can be used, and ends with the reason.
        """
        found = read(self.settings)
        if found[0] is None and self.units is not None:
            other = read(self.units)
            if other[0] is not None or found[-1] == OTHER_HISTOGRAM:
                return True, other
        return False, found

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
        of_units, (query, sign, reason) = self._by_either(partial(_understood, said))
        if query is None:
            self._leave(CONSTRAINTS, name, reason, rows.height)
            return
        values = lists.array(math.prod(query.shape), f"the constraint on {query.table.name!r}")
        for wrong, why in ((values < 0, "no count is below 0"), (values != np.rint(values), "no count is broken")):
            if wrong.any():
                row, cell = np.argwhere(wrong)[0]
                raise ValueError(f"{name} of {self.geolevel} {geocodes[int(row)]!r} is {values[row, cell]}: {why}")
        bounds, plain = () if of_units else self.settings.facilities, name.removesuffix(CONSTRAINT_SUFFIX)
        says_facilities = plain in bounds and len(query.table.factors) == 1 and not query.chosen
        if says_facilities:
            yield TableRows("upper" if plain == bounds[1] else "lower", path, name, query.table, geocodes, values)
        is_exact = sign == "=" and not query.chosen
        empty = (values == 0) & (sign != ">=")
        if empty.any():
            kind, cells = "zeros" if is_exact else "only zeros", query.spread(empty)
            yield TableRows(kind, path, name, query.table, geocodes, cells, are_of_units=of_units)
        used = rows.height if is_exact else int(empty.any(axis=1).sum())
        self.accounts.use(self.geolevel, CONSTRAINTS, name, used)
        why = UPPER if sign == "<=" else LOWER if sign == ">=" else OF_SETS
        why += "; it says how many facilities there are" if says_facilities else ""
        self._leave(CONSTRAINTS, name, why, rows.height - used)
        if is_exact:
            yield TableRows("exact", path, name, query.table, geocodes, values, are_of_units=of_units)


@dataclass(frozen=True)
class Query:
    """A table, of which some variables are summed over a set of levels only.

    Attributes
    ----------
    table : Table
        With those variables in full.
    chosen : mapping of int to tuple of int
        For each of those axes of the table its set of levels.
    """

    table: Table
    chosen: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each of the table's axes; 1 for those with a set of levels."""
        return tuple(1 if i in self.chosen else size for i, size in enumerate(self.table.shape))

    def spread(self, cells: Flags) -> Flags:
        """Mark the table's cells, (rows, table.size), that the marked cells of the query, (rows, cells), sum."""
        full = np.zeros((len(cells), *self.table.shape), dtype=bool)
        levels = [self.chosen.get(i, range(size)) for i, size in enumerate(self.table.shape)]
        full[np.ix_(range(len(cells)), *levels)] = cells.reshape(-1, *self.shape)
        return full.reshape(len(cells), -1)


def query_of(said: Said, settings: Settings) -> Query:
    """What attribute columns, one for each variable, say; `ValueError` if one names nothing that the settings know."""
    factors: list[str] = []
    chosen: dict[str, tuple[int, ...]] = {}
    for variable in settings.schema.names:
        factor, sets = said[variable], settings.selections.get(variable, {})
        if factor in (None, ""):
            raise ValueError(f"column {variable!r} is empty: it does not say what is counted")
        if factor in SUMMED_OUT_SPELLINGS:
            continue
        _, *own = settings.schema.factors_of(variable)
        if factor in (DETAILED, variable):
            factors.append(variable)
        elif factor in sets:
            factors.append(variable)
            chosen[variable] = sets[str(factor)]
        elif factor in own:
            factors.append(str(factor))
        else:
            known = ", ".join(repr(name) for name in (DETAILED, *own))
            raise ValueError(f"column {variable!r} says {factor!r}, of which the settings know only {known}")
    table = make_table(settings.schema, tuple(factors))
    return Query(table, {table.factors.index(variable): levels for variable, levels in chosen.items()})


def other_histogram(said: Said, settings: Settings) -> str:
    """Why a row is not of the settings' histogram, where files hold several; empty if it may be.

    It is of another if only columns of variables that the settings have `beside` their own name a factor, and of both
    if those of both do.
    """
    own, others = (
        any(said.get(name) not in SUMMED_OUT_SPELLINGS for name in names)
        for names in (settings.schema.names, settings.beside)
    )
    return (BOTH_HISTOGRAMS if own else OTHER_HISTOGRAM) if others else ""


def measured_table(rows: pl.DataFrame, said: Said, settings: Settings) -> tuple[Table | None, str]:
    """The table of measured rows of one name, in the schema's order of the variables, or why there is none.

    Parameters
    ----------
    rows : polars.DataFrame
        Whose columns say what is counted if their name, without its ending, is no table of the schema.
    said : mapping of str to str
        What tells them from other rows: their name, and of several histograms the attribute columns.
    settings : Settings

    Raises
    ------
    ValueError
        If the columns, where all say something, contradict the name, or `query_shape` does.
    """
    other, schema = other_histogram(said, settings), settings.schema
    if other:
        return None, other
    present = [name for name in settings.variables if name in rows.columns]
    columns = [said] if settings.beside else rows.select(present).unique(maintain_order=True).to_dicts()
    try:
        table = parse_table(schema, str(said["query_name"]).removesuffix(MEASUREMENT_SUFFIX)).in_schema_order()
    except ValueError:
        try:
            queries = [query_of(row, settings) for row in columns]
        except (ValueError, KeyError):  # of a column that is not there
            return None, NOT_A_TABLE
        if not queries or any(query.chosen or query.table != queries[0].table for query in queries):
            return None, NOT_A_TABLE
        table = queries[0].table
    _require_shape(rows, table, schema)
    factors = dict(zip(table.axes, table.factors, strict=True))
    for row in columns:
        for axis, variable in enumerate(schema.names if all(row.get(name) for name in schema.names) else ()):
            text = row[variable]
            factor = None if text in SUMMED_OUT_SPELLINGS else variable if text == DETAILED else text
            if factor != factors.get(axis):
                raise ValueError(
                    f"{place_of(rows)}: its name says table {table.name!r}, its column {variable!r} says {text!r}: "
                    "which it is cannot be told"
                )
    return table, ""


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


def _understood(said: Mapping[str, Any], settings: Settings) -> tuple[Query | None, str, str]:
    """The constraint's query and sign, or why it cannot be used."""
    name, names = str(said["query_name"]).removesuffix(CONSTRAINT_SUFFIX), settings.schema.names
    if name in settings.untrue:
        return None, "", UNTRUE
    other = other_histogram(said, settings)
    if other:
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

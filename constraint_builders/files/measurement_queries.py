"""What a row of measurement files counts: its name and its attribute columns, read into tables of the schema.

An attribute column holds ``*`` where its variable is summed out, ``detailed`` or the variable's own name for all levels
(two spellings of one thing), a recode's name, or the name of a set of levels, of which the row has the sum alone. Lists
of numbers become arrays, without a copy where that can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.files.settings import Settings

MEASUREMENT_SUFFIX, CONSTRAINT_SUFFIX = "_dpq", "_con"
SUMMED_OUT = "*"
SUMMED_OUT_SPELLINGS = (None, "", SUMMED_OUT, "total")
DETAILED = "detailed"
OTHER_HISTOGRAM = "it is of another histogram of the same geounits, which these settings do not have"
BOTH_HISTOGRAMS = "it ties two histograms, of which these settings have one"
NOT_A_TABLE = "it is not a table of the schema"

LARGEST = 2.0**53  # beyond, not every whole number is a floating-point number
ROW, POSITION = "row*", "position*"  # columns of ours: no variable's name has a *

Said = Mapping[str, str | None]


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

    def spread(self, cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Mark the table's cells, (rows, table.size), that the marked cells of the query, (rows, cells), sum."""
        full = np.zeros((len(cells), *self.table.shape), dtype=bool)
        levels = [self.chosen.get(i, range(size)) for i, size in enumerate(self.table.shape)]
        full[np.ix_(range(len(cells)), *levels)] = cells.reshape(-1, *self.shape)
        return full.reshape(len(cells), -1)


def says_nothing(text: str | None) -> bool:
    """Whether a column names no factor."""
    return text in SUMMED_OUT_SPELLINGS


def query_of(said: Said, settings: Settings) -> Query:
    """What attribute columns, one for each variable, say.

    Raises
    ------
    ValueError
        If one names nothing that the settings know.
    """
    factors: list[str] = []
    chosen: dict[str, tuple[int, ...]] = {}
    for variable in settings.schema.names:
        factor = said[variable]
        if factor in (None, ""):
            raise ValueError(f"column {variable!r} is empty: it does not say what is counted")
        if says_nothing(factor):
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


def other_histogram(said: Said, settings: Settings) -> str | None:
    """Why a row is not of the settings' histogram, where files hold several; None if it may be.

    It is of another if only columns of variables that the settings have `beside` their own name a factor, and of both
    if those of both do.
    """
    if all(says_nothing(said.get(name)) for name in settings.beside):
        return None
    if all(says_nothing(said.get(name)) for name in settings.schema.names):
        return OTHER_HISTOGRAM
    return BOTH_HISTOGRAMS


def measured_table(name: str, said: list[Said], settings: Settings) -> Table | None:
    """The table of measured rows of one name, in the schema's order of the variables; None if it is none of the schema.

    Parameters
    ----------
    name : str
        Factors in any order; ``total`` or ``detailed``.
    said : list of mapping of str to str
        What the attribute columns that there are say, every combination once.
    settings : Settings

    Raises
    ------
    ValueError
        If the columns, where all say something, contradict the name.
    """
    schema = settings.schema
    try:
        table = parse_table(schema, name).in_schema_order()
    except ValueError:
        return _said_by_columns(said, settings)
    factors = dict(zip(table.axes, table.factors, strict=True))
    complete = [row for row in said if all(row.get(variable) for variable in schema.names)]
    for row in complete:
        for axis, variable in enumerate(schema.names):
            if _spelt_out(row[variable], variable) != factors.get(axis):
                raise ValueError(
                    f"its name says table {table.name!r}, its column {variable!r} says {row[variable]!r}: which it is "
                    "cannot be told"
                )
    return table


def _spelt_out(text: str | None, variable: str) -> str | None:
    """A column's factor; None if it is summed out."""
    if says_nothing(text):
        return None
    return variable if text == DETAILED else text


def _said_by_columns(said: list[Said], settings: Settings) -> Table | None:
    """The table that attribute columns of all variables agree on."""
    if not said or any(name not in said[0] for name in settings.schema.names):
        return None
    try:
        queries = [query_of(row, settings) for row in said]
    except ValueError:
        return None
    first = queries[0]
    if any(query.chosen or query.table != first.table for query in queries):
        return None
    return first.table


def columns_said(rows: pl.DataFrame, settings: Settings) -> list[Said]:
    """Every combination of what the attribute columns of some rows say, own and beside."""
    present = [name for name in settings.variables if name in rows.columns]
    return list(rows.select(present).unique(maintain_order=True).iter_rows(named=True)) if present else []


def place_of(rows: pl.DataFrame) -> str:
    """What messages call the first of some rows of a file."""
    row, name, geocode = rows.select(ROW, "query_name", "geocode").row(0)
    return f"row {row} ({name} of {geocode!r})"


@dataclass(frozen=True)
class Values:
    """The lists of some rows of a file.

    Attributes
    ----------
    rows : polars.DataFrame
        Their other columns.
    elements : polars.Series
        The elements of all lists of the file, one after another.
    starts, lengths : ndarray of int, (rows,)
        Where the list of each row begins, and its length.
    """

    rows: pl.DataFrame
    elements: pl.Series
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def array(self, size: int, what: str) -> NDArray:
        """The lists as an array, (rows, size).

        Raises
        ------
        ValueError
            If a list has another length, or an element is empty, NaN, infinite or so large that sums would not be
            exact; the first such row is named.
        """
        wrong = np.flatnonzero(self.lengths != size)
        if wrong.size:
            place, count = place_of(self.rows[int(wrong[0]) :]), self.lengths[wrong[0]]
            raise ValueError(f"{place}: {count} values, but {what} has {size} cells: is the schema the file's?")
        if (np.diff(self.starts) == size).all():
            values = self.elements.slice(int(self.starts[0]), self.starts.size * size).to_numpy().reshape(-1, size)
        else:
            values = self.elements.to_numpy()[self.starts[:, None] + np.arange(size)]
        if values.dtype.kind in "iu" and values.dtype.itemsize <= 4:
            return values  # whole numbers, none of which is so large
        if values.size and values.min() >= -LARGEST and values.max() <= LARGEST:
            return values
        for bad, why in (
            (~np.isfinite(values), "is empty, NaN or infinite"),
            ((values < -LARGEST) | (values > LARGEST), f"is beyond {LARGEST:,.0f}: no such number is a count"),
        ):
            if bad.any():
                raise ValueError(f"{place_of(self.rows[int(bad.any(axis=1).argmax()) :])}: a value {why}")
        return values


def groups(frame: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], pl.DataFrame, Values]]:
    """The rows of a file that agree in some columns: what these say, the other columns, and the lists of values.

    Groups come in order of first appearance; no list may be null.
    """
    lengths = frame["value"].list.len().cast(pl.Int64).to_numpy()
    empty = np.flatnonzero(lengths == 0)
    if empty.size:
        raise ValueError(f"{place_of(frame[int(empty[0]) :])}: the list of values is empty")
    starts, elements = np.cumsum(lengths) - lengths, frame["value"].explode()
    others = frame.drop("value").with_row_index(POSITION)
    for said, rows in others.group_by(keys, maintain_order=True):
        positions = rows[POSITION].to_numpy()
        yield dict(zip(keys, said, strict=True)), rows, Values(rows, elements, starts[positions], lengths[positions])

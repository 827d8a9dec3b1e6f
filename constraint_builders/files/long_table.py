"""Long tables: one row a published cell, in CSV or Parquet files or in data frames.

======================  ================================================================================
column                  holds
======================  ================================================================================
``table``               the table's name: factors joined by ``*``, ``total`` or ``detailed``
one for each variable   a level's label, ``*`` where the variable is summed out, the group of a recode
``value``               the published number; may be empty where it was not measured
``variance``            variance of its noise: 0 for an exact value, ``inf`` where it was not measured
======================  ================================================================================

Results have ``estimate``, ``std_error``, ``lower`` and ``upper`` in place of the last two.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders.files.cell_keys import SUMMED_OUT, CellKeys, Integers, cell_keys
from constraint_builders.files.replacing import replacing
from constraint_builders.layout import Float, Layout
from constraint_builders.problem import Problem
from constraint_builders.schema import Schema
from constraint_builders.table import Table, parse_table

try:
    import polars as pl
except ImportError as error:
    raise ImportError("files and data frames need polars: pip install 'blue-solvers[frames]'") from error

VALUE_COLUMNS = ("value", "variance")
GEOGRAPHY_COLUMNS = ("geolevel", "geocode")
SUFFIXES = (".csv", ".parquet")


def read_long_table(
    source: Any,
    schema: Schema | None = None,
    *,
    desired: Sequence[str] | str | None = None,
    noise: str = "gaussian",
) -> tuple[Problem, Float]:
    """Read measurements from a long table.

    Parameters
    ----------
    source : path or data frame
        A ``.csv`` or ``.parquet`` file, or a frame with the Arrow PyCapsule interface (``__arrow_c_stream__``: pandas,
        polars, pyarrow). Rows may come in any order.
    schema : Schema, optional
        What the rows must agree with; by default `infer_schema` of them.
    desired, noise
        As in `Problem`.

    Returns
    -------
    problem : Problem
        Observing the tables in order of first appearance, under the names that the rows give them.
    y : ndarray, (n,)
        The values over the observed layout, NaN where empty.

    Raises
    ------
    ValueError
        If the file cannot be read as a table; if a column or a cell is missing; if a table or a level is unknown; if a
        cell is given twice; if a value or a variance is not a number that it can be; if exact values contradict one
        another. The message names the file and the place.
    OSError
        If the file cannot be opened.
    TypeError
        If `source` is neither a path nor a data frame.

    Examples
    --------
    >>> frame = pl.DataFrame(
    ...     {"table": ["sex", "sex", "total"], "sex": ["f", "m", "*"], "value": [6, 9, 14], "variance": [1.0, 1.0, 0.0]}
    ... )
    >>> read_long_table(frame)
    (Problem(2 observed tables, 3 cells; 2 desired tables, 3 cells), array([ 6.,  9., 14.]))
    """
    frame, what = _open(source)
    with _naming(what):
        inferred = schema is None
        schema = _infer(frame) if schema is None else schema
        rows = _Rows(frame, schema, inferred)
        order = rows.order()
        values, variances = (column[order] for column in rows.measurements())
        layout = Layout(rows.names, [table.shape for table in rows.tables])
        observed = {str(name): cells for name, cells in layout.tables(variances).items()}
        problem = Problem(schema, observed, desired, noise=noise)
        problem.check_vector(values)
        return problem, values


def infer_schema(source: Any) -> Schema:
    """The schema that a long table implies: its variables, with levels in order of first appearance.

    Parameters
    ----------
    source : path or data frame
        As for `read_long_table`. Recodes cannot be inferred: tables with recodes need a schema.

    Raises
    ------
    ValueError, OSError, TypeError
        As for `read_long_table`.
    """
    frame, what = _open(source)
    with _naming(what):
        return _infer(frame)


def measurements_frame(problem: Problem, y: ArrayLike) -> pl.DataFrame:
    """Write measurements as a long table; the inverse of `read_long_table`.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.
    y : array_like, (n,)
        Values over its observed layout; NaN becomes an empty value.

    Returns
    -------
    polars.DataFrame

    Raises
    ------
    ValueError
        If the noise is correlated, or `y` has another length.
    """
    if problem.covariance is not None:
        raise ValueError("a long table holds variances only: this problem's noise is correlated")
    columns = _columns(problem.observed, value=y, variance=problem.variances)
    columns[0] = columns[0].fill_nan(None)
    return _key_columns(problem.schema, problem.observed, problem.observed_tables).with_columns(columns)


def estimates_frame(
    problem: Problem, estimate: ArrayLike, std_error: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> pl.DataFrame:
    """Write results as a long table, with the same keys as the measurements.

    Parameters
    ----------
    problem : Problem
    estimate, std_error, lower, upper : array_like, (m,)
        Over its desired layout.

    Returns
    -------
    polars.DataFrame

    Raises
    ------
    ValueError
        If a vector has another length.
    """
    columns = _columns(problem.desired, estimate=estimate, std_error=std_error, lower=lower, upper=upper)
    return _key_columns(problem.schema, problem.desired, problem.desired_tables).with_columns(columns)


def write_frame(frame: pl.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a frame to a ``.csv`` or ``.parquet`` file, whole or not at all: a failure leaves what was there before.

    Raises
    ------
    ValueError
        If the file's suffix is neither.
    OSError
        If the file cannot be written.
    """
    suffix = require_suffix(path)
    with replacing(path) as temporary:
        if suffix == ".csv":
            frame.write_csv(temporary)
        else:
            frame.write_parquet(temporary)


def require_suffix(path: str | os.PathLike[str]) -> str:
    """The kind of a long table's file, ``.csv`` or ``.parquet``; `ValueError` for any other."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{os.fspath(path)}: the name must end in {' or '.join(SUFFIXES)}")
    return suffix


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Make every complaint a `ValueError` that begins with the file's name."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{what}: not readable as a table: {reason}") from None


def _open(source: Any) -> tuple[pl.DataFrame, str]:
    """The rows, and what to call them in messages."""
    if hasattr(source, "__arrow_c_stream__"):
        with _naming("data frame"):
            return pl.DataFrame(source), "data frame"
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a long table is a path or a data frame (pandas, polars, ...): got {type(source).__name__}")
    suffix = require_suffix(source)
    what = os.fspath(source)
    with Path(source).open("rb") as file, _naming(what):
        return pl.read_csv(file, infer_schema=False) if suffix == ".csv" else pl.read_parquet(file), what


def _infer(frame: pl.DataFrame) -> Schema:
    _require_columns(frame, ("table", *VALUE_COLUMNS))
    levels = {}
    for name in frame.columns:
        if name not in ("table", *VALUE_COLUMNS):
            labels = _text(frame, name).unique(maintain_order=True).to_list()
            levels[name] = [label for label in labels if label != SUMMED_OUT]
            if not levels[name]:
                raise ValueError(f"column {name!r} is {SUMMED_OUT!r} in every row: remove it, or give a schema")
    return Schema(levels)


def _require_columns(frame: pl.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise ValueError(f"column {name!r} is missing: there are {', '.join(map(repr, frame.columns)) or 'none'}")
    for name in GEOGRAPHY_COLUMNS:
        if name in frame.columns:
            raise ValueError(f"column {name!r}: several geounits are not read yet; make geography an ordinary variable")
    if frame.is_empty():
        raise ValueError("there are no rows: give one for every cell")


def _text(frame: pl.DataFrame, name: str) -> pl.Series:
    column = frame[name].cast(pl.String)
    if column.null_count():
        row = column.is_null().arg_max()
        hint = "" if name == "table" else f": write {SUMMED_OUT!r} where the variable is summed out"
        raise ValueError(f"column {name!r} is empty in row {_count(row)}{hint}")
    return column


def _count(row: int | None) -> int:
    """Rows as people count them."""
    return 1 + int(row or 0)


def _codes(column: pl.Series) -> tuple[list[str], NDArray[np.integer]]:
    """The different labels of a column in order of first appearance, and for every row the number of its label."""
    labels = column.unique(maintain_order=True)
    return labels.to_list(), column.cast(pl.Enum(labels)).to_physical().to_numpy()


class _Rows:
    """The rows of a long table, each matched with a cell of a schema's tables."""

    def __init__(self, frame: pl.DataFrame, schema: Schema, inferred: bool) -> None:
        _require_columns(frame, ("table", *schema.names, *VALUE_COLUMNS))
        unknown = [name for name in frame.columns if name not in ("table", *schema.names, *VALUE_COLUMNS)]
        if unknown:
            raise ValueError(f"column {unknown[0]!r} is no variable of the schema: it has {', '.join(schema.names)}")
        self.frame = frame
        self.schema = schema
        self.names, self.table_of_row = _codes(_text(frame, "table"))
        self.tables = self._parse_tables(inferred)
        self.keys: CellKeys = cell_keys(schema, self.tables)
        self.cells = [self._cells_along(axis) for axis in range(len(schema.names))]

    def _parse_tables(self, inferred: bool) -> list[Table]:
        try:
            return [parse_table(self.schema, name) for name in self.names]
        except ValueError as error:
            hint = "; recodes cannot be inferred, give a schema" if inferred else ""
            raise ValueError(f"{error}{hint}") from None

    def _cells_along(self, axis: int) -> NDArray[np.int32]:
        """For every row the level or group along one variable, 0 where it is summed out."""
        labels, codes = _codes(_text(self.frame, self.schema.names[axis]))
        lookup = np.full((len(self.keys.labels[axis]), len(labels)), -1, dtype=np.int32)
        for row, known in zip(lookup, self.keys.labels[axis], strict=True):
            numbers = {label: number for number, label in enumerate(known)}
            row[:] = [numbers.get(label, -1) for label in labels]
        cells = lookup[self.keys.factors[self.table_of_row, axis], codes]
        if cells.min() < 0:
            self._refuse_label(axis, int(cells.argmin()), labels[codes[cells.argmin()]])
        return cells

    def _refuse_label(self, axis: int, row: int, label: str) -> None:
        name, table = self.schema.names[axis], int(self.table_of_row[row])
        factor = int(self.keys.factors[table, axis])
        place = f"table {self.names[table]!r}, row {_count(row)}"
        if factor == 0:
            raise ValueError(f"{place}: column {name!r} must be {SUMMED_OUT!r}, the table sums it out: got {label!r}")
        if label == SUMMED_OUT:
            raise ValueError(f"{place}: column {name!r} is {SUMMED_OUT!r}, but the table keeps it: give a level")
        known = self.keys.labels[axis][factor]
        shown = ", ".join(map(repr, known[:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        raise ValueError(f"{place}: unknown level {label!r} in column {name!r}: there are {shown}")

    def order(self) -> Integers:
        """The row of every cell of the layout, each there exactly once."""
        self._refuse_missing_cells()
        sizes = np.array([table.size for table in self.tables])
        starts, strides = np.cumsum(sizes) - sizes, self.keys.strides
        positions = starts[self.table_of_row]
        for axis, cells in enumerate(self.cells):
            positions += strides[self.table_of_row, axis] * cells
        self._refuse_duplicates(positions, int(sizes.sum()))
        order = np.empty_like(positions)
        order[positions] = np.arange(positions.size)
        return order

    def _refuse_missing_cells(self) -> None:
        found = np.bincount(self.table_of_row, minlength=len(self.tables))
        for number, (table, rows) in enumerate(zip(self.tables, found, strict=True)):
            if rows < table.size:
                mine = np.flatnonzero(self.table_of_row == number)
                gap = _first_gap(np.stack([self.cells[axis][mine] for axis in table.axes], axis=1), table.shape)
                labels = [self.schema.labels_of(factor)[cell] for factor, cell in zip(table.factors, gap, strict=True)]
                cell = _describe(self.names[number], [self.schema.names[axis] for axis in table.axes], labels)
                raise ValueError(f"{cell} is missing: the table has {rows:,} of {table.size:,} cells; give each a row")

    def _refuse_duplicates(self, positions: Integers, size: int) -> None:
        counts = np.bincount(positions, minlength=size)
        repeated = np.flatnonzero(counts[positions] > 1)
        if repeated.size:
            first, second = np.flatnonzero(positions == positions[repeated[0]])[:2]
            raise ValueError(f"{self._cell(first)} is given twice, in rows {_count(first)} and {_count(second)}")

    def _cell(self, row: int) -> str:
        table, *labels = self.frame.select("table", *self.schema.names).row(int(row))
        return _describe(table, self.schema.names, labels)

    def measurements(self) -> tuple[Float, Float]:
        """The values of the rows, NaN for an empty one, and their variances."""
        values, variances = (self._numbers(name).fill_null(np.nan).to_numpy() for name in VALUE_COLUMNS)
        self._refuse("variance", np.isnan(variances), "is missing: give a number, 0 for exact, or inf for not measured")
        self._refuse("variance", variances < 0, "is negative: give a number of 0 or more")
        missing = np.isnan(values) & np.isfinite(variances)
        self._refuse("value", missing, "is missing: give a number, or the variance inf for not measured")
        self._refuse("value", np.isinf(values), "is infinite: give a finite number")
        return values, variances

    def _numbers(self, name: str) -> pl.Series:
        column = self.frame[name]
        numbers = column.cast(pl.Float64, strict=False)
        wrong = (numbers.is_null() & column.is_not_null()).to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{self._cell(row)}: {name} {column[row]!r} is not a number (row {_count(row)})")
        return numbers

    def _refuse(self, name: str, wrong: NDArray[np.bool_], why: str) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{self._cell(row)}: {name} {why} (row {_count(row)})")


def _first_gap(cells: NDArray[np.int32], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The first cell, in C order, that is not among the rows of `cells`; all cells may be more than can be counted."""
    present = np.unique(cells, axis=0)
    expected = np.empty((len(present) + 1, len(shape)), dtype=np.int64)
    rest = np.arange(len(present) + 1)
    for axis in reversed(range(len(shape))):
        rest, expected[:, axis] = np.divmod(rest, shape[axis])
    gaps = np.flatnonzero((present != expected[:-1]).any(axis=1))
    return tuple(int(i) for i in expected[gaps[0] if gaps.size else -1])


def _describe(table: str, variables: Sequence[str], labels: Sequence[str]) -> str:
    """Name a cell for a message, for instance ``table 'sex * age', cell (sex=male, age=3)``."""
    kept = [f"{name}={label}" for name, label in zip(variables, labels, strict=True) if label != SUMMED_OUT]
    return f"table {table!r}" + (f", cell ({', '.join(kept)})" if kept else "")


def _key_columns(schema: Schema | None, layout: Layout, tables: Sequence[Table]) -> pl.DataFrame:
    """The columns that name every cell of a layout."""
    if schema is None:
        raise ValueError("a problem made from a matrix has no tables: there is no long table of it")
    keys = cell_keys(schema, tables)
    table_of_cell = np.repeat(np.arange(len(tables)), layout.sizes)
    position_in_table = np.arange(layout.size) - layout.offsets[:-1][table_of_cell]
    columns = [pl.Series("table", [str(name) for name in layout.names]).gather(table_of_cell)]
    for axis, name in enumerate(schema.names):
        labels = [label for factor in keys.labels[axis] for label in factor]
        columns.append(pl.Series(name, labels).gather(keys.numbers(axis, table_of_cell, position_in_table)))
    return pl.DataFrame(columns)


def _columns(layout: Layout, **vectors: ArrayLike) -> list[pl.Series]:
    columns = []
    for name, vector in vectors.items():
        array = np.asarray(vector, dtype=np.float64)
        if array.shape != (layout.size,):
            raise ValueError(f"{name} must have shape ({layout.size},): got {array.shape}")
        columns.append(pl.Series(name, array))
    return columns

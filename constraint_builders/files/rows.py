"""The rows of a long table, matched with the cells of a schema's tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.files.cell_keys import SUMMED_OUT, Integers, cell_keys
from constraint_builders.files.numbers import NotANumberError, read_labels, read_numbers
from constraint_builders.files.source import Source
from constraint_builders.layout import Float
from constraint_builders.schema import Schema
from constraint_builders.table import Table, parse_table

VALUE_COLUMNS = ("value", "variance")
GEOGRAPHY_COLUMNS = ("geolevel", "geocode")


def infer(source: Source) -> Schema:
    """The variables that the columns are, with levels in order of first appearance."""
    _require_columns(source.frame, ("table", *VALUE_COLUMNS))
    levels = {}
    for name in source.frame.columns:
        if name not in ("table", *VALUE_COLUMNS):
            labels = _labels(source, name).unique(maintain_order=True).to_list()
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


def _labels(source: Source, name: str) -> pl.Series:
    column = read_labels(source.frame[name])
    if column.null_count():
        row = source.rows[int(column.is_null().arg_max() or 0)]
        hint = "" if name == "table" else f": write {SUMMED_OUT!r} where the variable is summed out"
        raise ValueError(f"column {name!r} is empty in row {row}{hint}")
    return column


def _codes(column: pl.Series) -> tuple[list[str], NDArray[np.integer]]:
    """The different labels of a column in order of first appearance, and for every row the number of its label."""
    labels = column.unique(maintain_order=True)
    return labels.to_list(), column.cast(pl.Enum(labels)).to_physical().to_numpy()


class Rows:
    """The rows of a long table, each matched with a cell of a schema's tables.

    Parameters
    ----------
    source : Source
    schema : Schema
    inferred : bool
        Whether the schema comes from the rows themselves, for messages.

    Attributes
    ----------
    names : list of str
        Names of the tables as the rows give them, in order of first appearance.
    tables : list of Table
        What they are.

    Raises
    ------
    ValueError
        If a column is missing or not of the schema, or a table or a label is unknown. `order` and `measurements` refuse
        the rest.
    """

    def __init__(self, source: Source, schema: Schema, inferred: bool) -> None:
        frame = source.frame
        _require_columns(frame, ("table", *schema.names, *VALUE_COLUMNS))
        unknown = [name for name in frame.columns if name not in ("table", *schema.names, *VALUE_COLUMNS)]
        if unknown:
            raise ValueError(f"column {unknown[0]!r} is no variable of the schema: it has {', '.join(schema.names)}")
        self.source = source
        self.schema = schema
        self.names, self.table_of_row = _codes(_labels(source, "table"))
        self.tables = self._parse_tables(inferred)
        self.keys = cell_keys(schema, self.tables)
        self.cells = [self._cells_along(axis) for axis in range(len(schema.names))]

    def _parse_tables(self, inferred: bool) -> list[Table]:
        try:
            return [parse_table(self.schema, name) for name in self.names]
        except ValueError as error:
            hint = "; recodes cannot be inferred, give a schema" if inferred else ""
            raise ValueError(f"{error}{hint}") from None

    def _cells_along(self, axis: int) -> NDArray[np.int32]:
        """For every row the level or group along one variable, 0 where it is summed out."""
        labels, codes = _codes(_labels(self.source, self.schema.names[axis]))
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
        place = f"table {self.names[table]!r}, row {self.source.rows[row]}"
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
            raise ValueError(
                f"{self._cell(first)} is given twice, in rows {self.source.rows[first]} and {self.source.rows[second]}"
            )

    def _cell(self, row: int) -> str:
        table, *labels = self.source.frame.select("table", *self.schema.names).row(int(row))
        return _describe(table, self.schema.names, labels)

    def measurements(self) -> tuple[Float, Float]:
        """The values of the rows, NaN for an empty one, and their variances."""
        values, variances = (self._numbers(name) for name in VALUE_COLUMNS)
        self._refuse("variance", np.isnan(variances), "is missing: give a number, 0 for exact, or inf for not measured")
        self._refuse("variance", variances < 0, "is negative: give a number of 0 or more")
        missing = np.isnan(values) & np.isfinite(variances)
        self._refuse("value", missing, "is missing: give a number, or the variance inf for not measured")
        self._refuse("value", np.isinf(values), "is infinite: give a finite number")
        return values, variances

    def _numbers(self, name: str) -> Float:
        try:
            return read_numbers(self.source.frame[name])
        except NotANumberError as error:
            row = self.source.rows[error.row]
            raise ValueError(f"{self._cell(error.row)}: {name} {error} (row {row})") from None

    def _refuse(self, name: str, wrong: NDArray[np.bool_], why: str) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{self._cell(row)}: {name} {why} (row {self.source.rows[row]})")


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

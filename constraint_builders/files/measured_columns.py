"""The values of a long table's rows and the variances of their noise, however it says how precise they are."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri

from constraint_builders.arrays import Float
from constraint_builders.files.columns import CV_PERCENT, MARGIN, VARIANCE, Columns, Spread
from constraint_builders.files.numbers import TEXT, NotANumberError, decimal_mark, read_numbers
from constraint_builders.files.rows import Rows


def read_measurements(rows: Rows, columns: Columns) -> tuple[Float, Float]:
    """The values of the rows, NaN for an empty one, and their variances.

    Standard errors are squared; margins of error are divided by the normal quantile of their level first, and
    coefficients of variation multiplied by the value.

    Raises
    ------
    ValueError
        If an entry is not a number that it can be. The message names the cell and the row.
    """
    numbers = _NumberColumns(rows, columns)
    values, spread = numbers.read(columns.value, "value"), columns.spread
    said = numbers.read(spread.column, spread.column)
    missing = "is missing: give a number, 0 for exact, or inf for not measured"
    numbers.refuse(spread.column, np.isnan(said), missing)
    numbers.refuse(spread.column, said < 0, "is negative: give a number of 0 or more")
    numbers.refuse("value", np.isinf(values), "is infinite: give a finite number")
    if spread.kind == CV_PERCENT:
        empty = np.isfinite(said) & (values == 0)
        numbers.refuse(spread.column, empty, "says nothing about a value of 0: give variances or std_error instead")
    variances = variances_of(said, values, spread)
    numbers.refuse(spread.column, (variances == 0) & (said > 0), "is too small for a variance: write 0 for exact")
    numbers.refuse(spread.column, np.isinf(variances) & np.isfinite(said), "has a variance beyond floating point")
    unknown = np.isnan(values) & np.isfinite(variances)
    instead = f"the {spread.column} inf for not measured"
    numbers.refuse("value", unknown, f"is missing: give a number, or {instead}")
    return values, variances


def variances_of(said: Float, values: Float, spread: Spread) -> Float:
    """The variances that a column of precisions says of its values."""
    if spread.kind == VARIANCE:
        return said
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if spread.kind == MARGIN:
            said = said / float(ndtri((1 + spread.level) / 2))
        elif spread.kind == CV_PERCENT:
            said = np.where(np.isinf(said), np.inf, said / 100 * abs(values))
        return said**2


class _NumberColumns:
    """Columns of numbers of a table, and errors that name a cell of it."""

    def __init__(self, rows: Rows, columns: Columns) -> None:
        self._rows = rows
        self._frame = rows.source.frame
        marked = [self._frame[name] for name in (columns.value, columns.spread.column)]
        if columns.spread.kind == CV_PERCENT and marked[1].dtype in TEXT:
            without = marked[1].cast(pl.String).str.strip_chars().str.strip_suffix("%")
            self._frame = self._frame.with_columns(without)
            marked[1] = without
        self._mark = decimal_mark(marked, rows.source.delimiter)

    def read(self, column: str, what: str) -> Float:
        """A column of numbers; `what` messages call it."""
        try:
            return read_numbers(self._frame[column], self._mark)
        except NotANumberError as error:
            row = self._rows.source.rows[error.row]
            hint = "; where nothing was published leave the value empty, its variance inf" if what == "value" else ""
            raise ValueError(f"{self._rows.cell(error.row)}: {what} {error} (row {row}){hint}") from None

    def refuse(self, what: str, wrong: NDArray[np.bool_], why: str) -> None:
        """Refuse the first row that is wrong."""
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{self._rows.cell(row)}: {what} {why} (row {self._rows.source.rows[row]})")

"""Tables from wherever they are: CSV, Parquet and Excel files, and data frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.extras import missing_extra
from constraint_builders.files.naming import naming
from constraint_builders.files.pandas_frames import from_pandas, is_pandas
from constraint_builders.files.parquet import read_parquet
from constraint_builders.files.text_table import COMMENT, TextTable, named_columns, read_text_table

FRAME = "data frame"
SUFFIXES = (".csv", ".csv.gz", ".parquet", ".xlsx")


@dataclass(frozen=True)
class Source:
    """A table as it was found.

    Attributes
    ----------
    frame : polars.DataFrame
    what : str
        What messages call it.
    rows : ndarray of int, (height,)
        The number of every row there, as people count: in text and in Excel the header is a row too.
    delimiter : str
        Of the cells in text, empty elsewhere.
    """

    frame: pl.DataFrame
    what: str
    rows: NDArray[np.int64]
    delimiter: str = ""


def open_source(source: Any) -> Source:
    """Read a table.

    Parameters
    ----------
    source : path or data frame
        A ``.csv``, ``.csv.gz``, ``.parquet`` or ``.xlsx`` file; a pandas frame, whose named index becomes columns; or a
        frame with the Arrow PyCapsule interface (``__arrow_c_stream__``: polars, pyarrow).

    Raises
    ------
    ValueError
        If the file cannot be read as a table.
    OSError
        If the file cannot be opened.
    TypeError
        If `source` is neither a path nor a data frame.
    ImportError
        For Excel files without the extra ``excel``.
    """
    if is_pandas(source) or hasattr(source, "__arrow_c_stream__"):
        with naming(FRAME):
            frame = from_pandas(source) if is_pandas(source) else pl.DataFrame(source)
            return Source(frame, FRAME, np.arange(1, frame.height + 1))
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a table is a path or a data frame (pandas, polars, ...): got {type(source).__name__}")
    path, what = Path(source), os.fspath(source)
    suffix = require_suffix(path, SUFFIXES)
    with path.open("rb") as file, naming(path):
        if suffix == ".parquet":
            frame = read_parquet(path)
            return Source(frame, what, np.arange(1, frame.height + 1))
        table = _read_excel(file.read()) if suffix == ".xlsx" else read_text_table(file.read())
        return Source(table.frame, what, table.rows, table.delimiter)


def _read_excel(data: bytes) -> TextTable:
    """The one sheet of a workbook that is not empty, all cells as text."""
    try:
        import fastexcel
    except ImportError as error:
        raise missing_extra("Excel files need fastexcel", "excel", "save the sheet as CSV") from error
    try:
        book = fastexcel.read_excel(data)
        options: dict[str, Any] = {"header_row": None, "skip_rows": 0, "dtypes": "string"}
        sheets = {name: book.load_sheet(name, **options) for name in book.sheet_names}
    except fastexcel.FastExcelError as error:
        raise ValueError(f"not readable as an Excel file: {str(error).splitlines()[0]}") from None
    filled = {name: sheet.to_polars() for name, sheet in sheets.items() if sheet.height and sheet.width}
    if len(filled) != 1:
        names = ", ".join(map(repr, filled)) or "none"
        raise ValueError(f"one sheet must hold a table: {names} do; save the one that is meant as CSV")
    (cells,) = filled.values()
    start = next((i for i, row in enumerate(cells.iter_rows()) if not _is_comment(row)), 0)
    return named_columns(cells[start:], start, "")


def _is_comment(row: Sequence[str | None]) -> bool:
    said = next((cell for cell in row if cell is not None and cell.strip()), COMMENT)
    return said.startswith(COMMENT)


def require_suffix(path: str | os.PathLike[str], suffixes: Sequence[str]) -> str:
    """The ending of a file's name, one of `suffixes`; `ValueError` for any other."""
    name = Path(path).name.lower()
    found = [suffix for suffix in suffixes if name.endswith(suffix)]
    if not found:
        raise ValueError(f"{os.fspath(path)}: the name must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    return found[0]

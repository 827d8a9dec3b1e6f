"""Tables in Excel workbooks; needs the extra ``excel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from constraint_builders.files.text_table import COMMENT, TextTable, named_columns


def read_excel(file: BinaryIO) -> TextTable:
    """The one sheet of a workbook that is not empty, all cells as text.

    Raises
    ------
    ValueError
        If it is no workbook, not one sheet holds a table, or a column has no name of its own.
    """
    import fastexcel

    try:
        book = fastexcel.read_excel(file.read())
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

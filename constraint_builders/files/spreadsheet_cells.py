"""Text that a spreadsheet would run as a formula, written so that it does not, and read back as it was.

A spreadsheet that opens a CSV file runs every cell that begins with ``=``, ``+``, ``-`` or ``@``; labels come from
strangers. As OWASP advises such cells are written with an apostrophe before them, also where they would begin only
after another delimiter than the comma. Reading takes one apostrophe away again, so that nothing is lost. Numbers stay
as they are.

References
----------
OWASP, "CSV Injection".
"""

from __future__ import annotations

import polars as pl

_START = r"(^|[,;|\t\r\n])"
_FORMULA = "('*[=+\\-@\uff1d\uff0b\uff0d\uff20])"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Put an apostrophe before what a spreadsheet would run, in text and in the names of columns."""
    texts = [name for name, dtype in frame.schema.items() if dtype in (pl.String, pl.Categorical, pl.Enum)]
    frame = frame.with_columns(_escaped(frame[name].cast(pl.String)) for name in texts)
    return frame.rename(dict(zip(frame.columns, _escaped(pl.Series(frame.columns, dtype=pl.String)), strict=True)))


def _escaped(text: pl.Series) -> pl.Series:
    escaped = text.str.replace_all(_START + _FORMULA, "$1'$2")
    return text.zip_with(text.str.contains(_NUMBER).fill_null(True), escaped)


def with_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The inverse of `without_formulas`, of a frame of text."""
    has_one = frame.select(pl.all().str.contains("'", literal=True).any()).row(0)
    apostrophes = [name for name, has in zip(frame.columns, has_one, strict=True) if has]
    return frame.with_columns(frame[name].str.replace_all(f"{_START}'{_FORMULA}", "$1$2") for name in apostrophes)

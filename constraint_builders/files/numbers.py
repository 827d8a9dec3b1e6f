"""What the columns of files hold, read strictly: numbers, labels, codes and marks.

What is none of these, or could be two numbers, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from constraint_builders.arrays import Float
from constraint_builders.files.naming import shown

HOLDS = {
    pl.Boolean: "true and false",
    pl.Date: "dates",
    pl.Datetime: "dates and times",
    pl.Time: "times of day",
    pl.Duration: "durations",
    pl.Struct: "records",
    pl.List: "lists",
    pl.Array: "lists",
    pl.Binary: "bytes",
    pl.Float32: "decimal numbers",
    pl.Float64: "decimal numbers",
}
TEXT = (pl.String, pl.Categorical, pl.Enum)
LARGEST = 2.0**53  # beyond, not every whole number is a floating-point number

MINUS = "\N{MINUS SIGN}"
EMPTY = r"^(?i:nan|na|n/a)?$"
INFINITE = r"^[+-]?(?i:inf|infinity)$"
NOT_ZERO = r"^[+-]?[0-9.]*[1-9]"
SPACED = r"^[+-]?[0-9]{1,3}([ \u00a0\u202f'’][0-9]{3})+([.,][0-9]*)?$"
SPACES = r"[ \u00a0\u202f'’]"
# What each decimal mark alone can mean, and what could be a thousand in one country and one in another.
FIRST = r"^[+-]?[1-9][0-9]{0,2}"
GROUPED = {".": rf"{FIRST}(,[0-9]{{3}})+(\.[0-9]*)?$", ",": rf"{FIRST}(\.[0-9]{{3}})+(,[0-9]*)?$"}
BY_POINT = rf"^[+-]?[0-9]*\.[0-9]*(?i:e[+-]?[0-9]+)?$|{FIRST}(,[0-9]{{3}})+\.[0-9]*$|{FIRST}(,[0-9]{{3}}){{2,}}$"
BY_COMMA = rf"^[+-]?[0-9]*,[0-9]*(?i:e[+-]?[0-9]+)?$|{FIRST}(\.[0-9]{{3}})+,[0-9]*$|{FIRST}(\.[0-9]{{3}}){{2,}}$"
EITHER = rf"{FIRST}[.,][0-9]{{3}}$"
WITH_COMMA = rf"{FIRST},[0-9]{{3}}$"
WITH_POINT = rf"{FIRST}\.[0-9]{{3}}$"  # which may be thousands beside numbers without a point
ROUND = rf"{FIRST}\.[0-9]{{2}}0$"  # nobody writes 1.2 so beside numbers without decimals, grouped or not
WHOLE = r"^[+-]?[0-9]+$"
UNGROUPED = r"^[+-]?[0-9]{4,}$"


class NotANumberError(ValueError):
    """An entry of a column is not a number; `row` is its position."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def read_numbers(column: pl.Series, mark: str = ".") -> Float:
    """The numbers of a column, NaN where it is empty.

    Parameters
    ----------
    column : polars.Series
        Numbers, or text: thousands may be grouped, by the mark that is not the decimal one, spaces or apostrophes.
    mark : str
        The decimal mark of text, ``"."`` or ``","``.

    Returns
    -------
    ndarray, (rows,)

    Raises
    ------
    NotANumberError
        If an entry is not a number, or too large or too small for floating point.
    ValueError
        If the column holds anything else: dates, durations, true and false, lists, records.
    """
    if column.dtype.is_numeric() or column.dtype == pl.Null:
        return column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    text = _text(column, "numbers")
    numbers = text.cast(pl.Float64, strict=False)
    if mark == "," or (numbers.is_null() & text.is_not_null()).any():
        text = _plain(text, mark)
        numbers = text.cast(pl.Float64, strict=False)
    _refuse(column, numbers.is_null() & text.is_not_null(), "is not a number")
    _refuse(column, numbers.is_infinite() & ~text.str.contains(INFINITE), "is too large for a floating-point number")
    _refuse(column, (numbers == 0) & text.str.contains(NOT_ZERO), "is too small for a floating-point number")
    return numbers.fill_null(np.nan).to_numpy()


def decimal_mark(columns: Sequence[pl.Series], delimiter: str) -> str:
    """Which decimal mark columns of text use, by what only one of them can have written.

    Parameters
    ----------
    columns : sequence of polars.Series
    delimiter : str
        Of the cells in their file, empty if there is none: where it is a comma the decimal mark is a point.

    Raises
    ------
    ValueError
        If entries contradict one another, or could mean two numbers each.
    """
    written = [column for column in columns if column.dtype in TEXT]
    if not any(column.cast(pl.String).str.contains("[.,]").any() for column in written):
        return "."
    texts = [_unspaced(_text(column, "numbers")).drop_nulls() for column in written]
    text = pl.concat(texts)
    certain = text.filter(~text.str.contains(EITHER))
    point, comma = _like(certain, BY_POINT), _like(certain, BY_COMMA)
    if delimiter != "," and comma.len():
        if point.len():
            raise ValueError(
                f"{point[0]!r} has a decimal point and {comma[0]!r} a decimal comma: write all with a point"
            )
        return ","
    doubtful = _doubtful(texts, delimiter)
    if doubtful.len() and not point.len():
        digits = doubtful[0].replace(".", ",").split(",")
        whole, decimal = "".join(digits), ".".join(digits)
        raise ValueError(f"{doubtful[0]!r} may mean {whole} or {decimal}: write {whole}, or {decimal}0")
    return "."


def _doubtful(texts: Sequence[pl.Series], delimiter: str) -> pl.Series:
    """Numbers of which the mark may group digits or be the decimal one, where no other number tells.

    Between cells that commas separate a comma groups digits, but beside digits that are not grouped; a point may, but
    in a column where digits are not grouped.
    """
    text = pl.concat(texts)
    if delimiter == ";":
        return _like(text, EITHER)
    if delimiter == ",":
        marks = [ROUND if own.str.contains(UNGROUPED).any() else WITH_POINT for own in texts]
        points = [_like(own, mark, WHOLE) for own, mark in zip(texts, marks, strict=True)]
        return pl.concat([_like(text, WITH_COMMA, UNGROUPED), *points])
    return pl.concat([_like(text, WITH_COMMA), _like(text, WITH_POINT, WHOLE)])


def read_labels(column: pl.Series) -> pl.Series:
    """A column of labels as text, null where empty.

    Raises
    ------
    ValueError
        If it holds neither text, nor whole numbers, nor true and false.
    """
    if column.dtype.is_integer() or column.dtype in (*TEXT, pl.Boolean, pl.Null):
        return column.cast(pl.String)
    raise ValueError(f"column {column.name!r} holds {held(column.dtype)}: labels are text or whole numbers")


def read_codes(column: pl.Series) -> pl.Series:
    """A column of codes without outer spaces, null where empty; `ValueError` if it holds no text."""
    if column.dtype not in (*TEXT, pl.Null):
        what = "numbers" if column.dtype.is_numeric() else held(column.dtype)
        raise ValueError(f"column {column.name!r} must hold text, for leading zeros: it holds {what}")
    return column.cast(pl.String).str.strip_chars().replace("", None)


def held(dtype: pl.DataType) -> str:
    """What a column of a type holds, in words."""
    return HOLDS.get(dtype.base_type(), str(dtype))


def _text(column: pl.Series, needed: str) -> pl.Series:
    """A column of text without outer spaces, null where nothing is said."""
    if column.dtype not in TEXT:
        raise ValueError(f"column {column.name!r} holds {held(column.dtype)}: give {needed}")
    text = column.cast(pl.String).str.strip_chars()
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, text.len())
    return text.zip_with(~text.str.contains(EMPTY).fill_null(True), nothing)


def _like(text: pl.Series, pattern: str, beside: str = "") -> pl.Series:
    """What is written as a pattern says, if anything is as another one says."""
    found = text.filter(text.str.contains(pattern))
    return found if text.str.contains(beside).any() else found.clear()


def _unspaced(text: pl.Series) -> pl.Series:
    """Text with minus signs as hyphens, and without spaces between groups of digits."""
    text = text.str.replace(MINUS, "-", literal=True)
    return text.zip_with(~text.str.contains(SPACED).fill_null(False), text.str.replace_all(SPACES, ""))


def _plain(text: pl.Series, mark: str) -> pl.Series:
    """Numbers as programs write them."""
    text = _unspaced(text)
    grouped = text.str.contains(GROUPED[mark]).fill_null(False)
    other = "," if mark == "." else "."
    text = text.zip_with(~grouped, text.str.replace_all(other, "", literal=True))
    return text.str.replace(",", ".", literal=True) if mark == "," else text


def _refuse(column: pl.Series, wrong: pl.Series, why: str) -> None:
    if wrong.any():
        row = int(wrong.fill_null(False).arg_max() or 0)
        hint = ": write decimals with a point" if "," in str(column[row]) else ""
        raise NotANumberError(row, f"{shown(column[row])} {why}{hint}")


def marked(column: pl.Series, marks: Sequence[str | float]) -> pl.Series:
    """Where a column holds one of the marks, of which an empty one means that it is empty."""
    numbers = [float(mark) for mark in marks if is_number(mark)]
    marked = is_empty(column) & ("" in marks)
    if column.dtype in TEXT:
        text = column.cast(pl.String).str.strip_chars()
        marked |= text.is_in([str(mark).strip() for mark in marks]).fill_null(False)
    elif not column.dtype.is_numeric():
        return marked
    return marked | column.cast(pl.Float64, strict=False).is_in(numbers).fill_null(False)


def is_number(mark: str | float) -> bool:
    """Whether a mark is a number, or text of one."""
    try:
        float(mark)
    except ValueError:
        return False
    return True


def is_empty(column: pl.Series) -> pl.Series:
    """Where a column holds nothing, or says that it does."""
    if column.dtype in TEXT:
        return column.cast(pl.String).str.strip_chars().str.contains(EMPTY).fill_null(True)
    empty = column.is_null()
    return empty | column.is_nan().fill_null(False) if column.dtype.is_float() else empty

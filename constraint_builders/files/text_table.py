"""Tables in text, as spreadsheets and programs export them: every cell as text, every row by its number.

Text that a spreadsheet would run as a formula is written so that it does not, and read back as it was. A spreadsheet
that opens a CSV file runs every cell that begins with ``=``, ``+``, ``-`` or ``@``; labels come from strangers. As
OWASP advises such cells are written with an apostrophe before them, also where they would begin only after another
delimiter than the comma. Reading takes one apostrophe away again, so that nothing is lost. Numbers stay as they are.

References
----------
OWASP, "CSV Injection".
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.declared_size import TEXT_BYTES, DeclaredSize
from constraint_builders.files.columns import NOTES, names_measurements, plain_name
from constraint_builders.files.titles import (
    MOST_TITLES,
    left_out,
    notes_below,
    refuse_levels,
    refuse_note_of_commas,
    titles_above,
)
from constraint_builders.memory import format_bytes

DELIMITERS = (",", ";", "\t", "|")
COMMENT = "#"
LINE_END = b"\n"
GZIP = b"\x1f\x8b"
UTF_8_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
QUOTED = re.compile(rb'"[^"]*"')
AT_ONCE = 1 << 20  # bytes
ROWS_WRITTEN = 1 << 18  # at once
LONGEST_HEADER = 4 << 20  # bytes: the library that reads it copies names some forty times
_HEADER = re.compile(rb'(?:[^"\n]+|"[^"]*")*+(?:"[^"]*\Z)?')
LONGEST_TITLES = 1 << 16  # bytes, of all of them and the header
ACROSS = b"\\"
DIRECTIVE = b"sep="  # a first line by which Excel states the delimiter
_START = r"(^|[,;|\t\r\n])"
_FORMULA = "('*[=+\\-@\uff1d\uff0b\uff0d\uff20])"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True)
class TextTable:
    """The cells of a table in text.

    Attributes
    ----------
    frame : polars.DataFrame
        All columns text, null where empty; rows without any cell, and comments, are left out.
    rows : ndarray of int, (height,)
        Number of every row in the file, as a spreadsheet counts: the header has a number too.
    delimiter : str
    doubts : tuple of str
        What is doubtful about how they were written.
    left_out : tuple of str
        What was left out above and below the table.
    """

    frame: pl.DataFrame
    rows: NDArray[np.int64]
    delimiter: str
    doubts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def read_text_table(data: bytes, skip_rows: int = 0) -> TextTable:
    """Read comma-, semicolon-, tab- or bar-separated text, UTF-8 or UTF-16, also compressed by gzip.

    Lines before the header that are empty or begin with ``#`` are skipped, as are rows in the midst of which the first
    cell begins with ``#`` and all others are empty, or with ``# `` and the last is empty and no two others are numbers.
    Titles above the header and notes below the last row are left out where they are plain, or `skip_rows` lines.
    The delimiter is what occurs most in the header, or a tab where a backslash stands before the first.

    Raises
    ------
    ValueError
        If it is not text, not one table, or a column has no name of its own; the row is named. If it is far more text
        than its bytes can be.
    MemoryError
        If it takes more memory than is free.
    """
    text = _utf8(_decompressed(data))
    _require_moderate(len(text), text.count(LINE_END), 1, data)
    start, skipped, delimiter = _header(text, skip_rows)
    titles = [] if skip_rows else _titles(text[start:], delimiter)
    above = left_out([line.decode(errors="replace") for line in titles], skipped + 1, "above")
    start, skipped = start + sum(map(len, titles)), skipped + len(titles)
    if start >= len(text):
        raise ValueError("it is empty: the first row must name the columns")
    text = text[start:] if start else text
    header = next(_HEADER.finditer(text[: LONGEST_HEADER + 1]))[0]
    if len(header) > LONGEST_HEADER:
        raise ValueError(f"row {1 + skipped} has more than {format_bytes(LONGEST_HEADER)}: it must name the columns")
    delimiter = delimiter or _delimiter(text.partition(LINE_END)[0])
    width = 1 + header.count(delimiter.encode())
    _require_moderate(len(text), width * (1 + text.count(LINE_END)), width, data)
    try:
        cells = pl.read_csv(text, has_header=False, infer_schema=False, separator=delimiter)
    except pl.exceptions.ComputeError:
        raise ValueError(_what_is_wrong(text, delimiter, skipped)) from None
    table = named_columns(cells, skipped, delimiter)
    return replace(table, left_out=above + table.left_out)


def write_csv(frame: pl.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a frame as CSV, text that a spreadsheet would run as a formula after an apostrophe."""
    text = without_formulas(frame)
    with open(path, "wb") as file:
        for first in range(0, max(1, text.height), ROWS_WRITTEN):
            file.write(text[first : first + ROWS_WRITTEN].write_csv(include_header=first == 0).encode())


def named_columns(cells: pl.DataFrame, skipped: int, delimiter: str) -> TextTable:
    """Take the first row for the header, and leave out empty rows, comments and notes below the last row.

    Parameters
    ----------
    cells : polars.DataFrame
        All columns text.
    skipped : int
        Rows before them.
    delimiter : str

    Raises
    ------
    ValueError
        If there are no rows, a column that is not empty has no name, or two have one.
    """
    if cells.is_empty():
        raise ValueError("it holds no rows: give a header and a row for every cell")
    cells = with_formulas(cells)
    last = cells.height - notes_below(cells)
    texts = cells[last:, 0].to_list()
    below = left_out(texts, skipped + last + 1, "below")
    refuse_levels(texts, below)
    cells = cells[:last]
    names = [(name or "").strip() for name in cells.row(0)]
    if plain_name(names[0]) not in NOTES:
        refuse_note_of_commas(cells[max(1, last - MOST_TITLES) :, 0].to_list(), skipped + last)
    names[0] = names[0].removeprefix(COMMENT).strip() or names[0]
    filled = cells[1:].select(pl.all().str.strip_chars().ne("").any()).row(0)
    kept = [i for i, name in enumerate(names) if name or filled[i]]
    first = {name: i for i, name in reversed(list(enumerate(names)))}
    for i in kept:
        if not names[i]:
            row = 1 + skipped
            raise ValueError(
                f"column {i + 1} has no name in row {row}: name it, or empty it; say skip_rows={row} if that is a title"
            )
        if first[names[i]] < i:
            raise ValueError(f"column {names[i]!r} is given twice, as columns {first[names[i]] + 1} and {i + 1}")
    if not kept:
        raise ValueError("it holds nothing but empty cells: give a header and a row for every cell")
    frame = cells[1:, kept]
    frame.columns = [names[i] for i in kept]
    said = frame.select(pl.any_horizontal(pl.all().str.strip_chars().ne("")).fill_null(False)).to_series()
    rows = np.arange(2 + skipped, 2 + skipped + frame.height)
    used = said & ~_comments(frame) if frame.width > 1 else said
    return TextTable(frame.filter(used), rows[used.to_numpy()], delimiter, left_out=below)


def is_header(row: Sequence[str | None], following: Sequence[str | None]) -> bool:
    """Whether a row that begins with ``#`` names columns all the same: those of a measurement, as the next does not."""
    named, named_next = (names_measurements([cell or "" for cell in cells]) for cells in (row, following))
    return len(row) == len(following) and named and not named_next


def _comments(frame: pl.DataFrame) -> pl.Series:
    first = frame.to_series(0).fill_null("")
    comment = first.str.starts_with(COMMENT) & frame.to_series(-1).is_null()
    if not comment.any():
        return comment
    others = frame[:, 1:]
    numbers = others.select(pl.sum_horizontal(pl.all().cast(pl.Float64, strict=False).is_not_null())).to_series()
    nothing = others.select(pl.all_horizontal(pl.all().is_null())).to_series()
    return comment & (nothing | (first.str.starts_with(f"{COMMENT} ") & (numbers < 2)))


def _decompressed(data: bytes) -> bytes:
    if not data.startswith(GZIP):
        return data
    unpacked = 0
    try:
        with gzip.open(io.BytesIO(data)) as file:
            while piece := file.read(AT_ONCE):  # counted, before any is kept
                unpacked += len(piece)
                _require_moderate(unpacked, 0, 1, data)
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        raise ValueError("it is compressed by gzip, and cut short or damaged: copy it again") from None


def _require_moderate(unpacked: int, cells: int, columns: int, data: bytes) -> None:
    DeclaredSize(cells, columns, unpacked, TEXT_BYTES).require_moderate(len(data))


def _utf8(data: bytes) -> bytes:
    """The text in UTF-8, lines ending in line feeds."""
    if data.startswith(UTF_16_MARKS):
        try:
            data = data.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise ValueError("it begins as UTF-16 and is not: save it as UTF-8") from None
    data = data.removeprefix(UTF_8_MARK)
    if b"\0" in data:
        raise ValueError(f"row {data.count(LINE_END, 0, data.index(0)) + 1} holds a NUL byte: it is no text")
    return data if b"\n" in data or b"\r" not in data else data.replace(b"\r", b"\n")


def _header(text: bytes, skip_rows: int) -> tuple[int, int, str]:
    """Where the header begins, how many lines stand before it, and the delimiter if it is stated."""
    start, skipped, stated = 0, 0, ""
    while skipped < skip_rows and start < len(text):
        start, skipped = _end_of_line(text, start), skipped + 1
    while start < len(text):
        end = _end_of_line(text, start)
        line = text[start:end].strip()
        if line.lower().startswith(DIRECTIVE) and len(line) == len(DIRECTIVE) + 1:
            stated = line[-1:].decode()
        elif line.startswith(COMMENT.encode()):
            mark = stated or _delimiter(line)
            following = text[end : _end_of_line(text, end)]
            if is_header(*(own.decode(errors="replace").split(mark) for own in (text[start:end], following))):
                break
        elif line.strip("".join(DELIMITERS).encode()):
            break
        start, skipped = end, skipped + 1
    return start, skipped, stated


def _titles(text: bytes, stated: str) -> list[bytes]:
    """The lines of titles with which text begins; none of them is long."""
    lines = text[:LONGEST_TITLES].split(LINE_END, MOST_TITLES)[:-1]
    rows: list[list[str]] = []
    for line in lines:
        if line.count(b'"') % 2:  # a cell of several lines, as names of columns may be
            break
        cells = csv.reader([line.decode(errors="replace")], delimiter=stated or _delimiter(line))
        rows.append(next(cells, []))
    return [line + LINE_END for line in lines[: titles_above(rows)]]


def _end_of_line(text: bytes, start: int) -> int:
    end = text.find(LINE_END, start)
    return len(text) if end < 0 else end + 1


def _delimiter(header: bytes) -> str:
    first, tab, _ = header.partition(b"\t")
    if tab and ACROSS in first:  # of Eurostat, whose first column joins names by commas
        return "\t"
    unquoted = QUOTED.sub(b"", header)
    return max(DELIMITERS, key=lambda delimiter: unquoted.count(delimiter.encode()))


def _what_is_wrong(text: bytes, delimiter: str, skipped: int) -> str:
    """Why text is no table; rows are counted from the first one after those that were skipped."""
    try:
        records = csv.reader(io.StringIO(text.decode(), newline=""), delimiter=delimiter, strict=True)
    except UnicodeDecodeError as error:
        row = text.count(b"\n", 0, error.start) + 1 + skipped
        begin = text.rfind(b"\n", 0, error.start) + 1
        seen = text[begin : error.start + 8].decode("latin-1").splitlines()[0][-24:]
        byte = f"byte 0x{text[error.start]:02X}, in Latin-1 it reads {seen!r}"
        return f"row {row} is not UTF-8 ({byte}): save it as 'CSV UTF-8'"
    width, row = 0, skipped
    limit = csv.field_size_limit(sys.maxsize)
    try:
        for row, record in enumerate(records, skipped + 1):
            width = width or len(record)
            if len(record) > width:
                found = f"row {row} has {len(record)} cells, the header {width}"
                return f"{found}: put text with {delimiter!r} in quotes, or say skip_rows= where titles stand above"
    except csv.Error:
        return f"a quotation mark in row {row + 1} is not closed, or text follows it: write two of them within text"
    finally:
        csv.field_size_limit(limit)
    return "its quotation marks do not match: write two of them within text"


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

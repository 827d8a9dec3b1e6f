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
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise

import polars as pl

from constraint_builders.files.titles import COMMENT, Source, header_at, is_header, named_columns
from constraint_builders.memory import format_bytes
from constraint_builders.opening import TEXT_BYTES, DeclaredSize

DELIMITERS = (",", ";", "\t", "|")
_EMPTY = b",;\t| \r\n\f\v"  # of a line in which nothing is said
LINE_END = b"\n"
GZIP = b"\x1f\x8b"
UTF_8_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
QUOTED = re.compile(rb'"[^"]*"')
AT_ONCE = 1 << 20  # bytes
ROWS_WRITTEN = 1 << 18  # at once
LONGEST_HEADER = 4 << 20  # bytes: the library that reads it copies names some forty times
_HEADER = re.compile(rb'(?:[^"\n]+|"[^"]*")*+(?:"[^"]*\Z)?')
LONGEST_TITLE = 1 << 16  # bytes: of a longer row it is not asked whether it is one
ACROSS = b"\\"
# A first line by which Excel states the delimiter, behind others that are empty or comments.
_STATED = re.compile(rb"(?:(?:[ \t]*#[^\n]*|[,;\t| \r\f\v]*|[ \t]*sep=(\S)[ \t\r]*)(?:\n|\Z))*+", re.IGNORECASE)
_START = r"(^|[,;|\t\r\n])"
_FORMULA = "('*[=+\\-@\uff1d\uff0b\uff0d\uff20])"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def read_text_table(data: bytes, skip_rows: int = 0) -> Source:
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
    lines = io.BytesIO(text)
    start = sum(map(len, islice(lines, skip_rows)))
    stated = _STATED.match(text, start)
    delimiter, skipped = "", 0
    if stated and stated[1]:
        delimiter, skipped = stated[1].decode(), text.count(LINE_END, start, stated.end(1)) + 1
    empty, titles = header_at(_cells(islice(lines, skipped, None), delimiter))
    first = skip_rows + skipped + empty
    skipped = first + (0 if skip_rows else titles)
    above = list(islice(io.BytesIO(text), skipped))
    text = text[sum(map(len, above)) :] if above else text
    if not text:
        raise ValueError("it is empty: the first row must name the columns")
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
    return named_columns(
        with_formulas(cells), skipped, delimiter, [line.decode(errors="replace") for line in above[first:]]
    )


def write_csv(frame: pl.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a frame as CSV, text that a spreadsheet would run as a formula after an apostrophe."""
    text = without_formulas(frame)
    with open(path, "wb") as file:
        for first in range(0, max(1, text.height), ROWS_WRITTEN):
            file.write(text[first : first + ROWS_WRITTEN].write_csv(include_header=first == 0).encode())


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


def _cells(lines: Iterable[bytes], stated: str) -> Iterator[list[str]]:
    """The cells of lines, none of comments, up to a line that is long or ends within a cell."""
    for line, following in pairwise(chain(lines, [b""])):
        mark = stated or _delimiter(line)
        if line.lstrip().startswith(COMMENT.encode()):
            cells, others = (own.decode(errors="replace").split(mark) for own in (line, following))
            yield cells if is_header(cells, others) else []
        elif not line.strip(_EMPTY):
            yield []
        elif line.count(b'"') % 2 or len(line) > LONGEST_TITLE:
            return
        else:
            text = line.decode(errors="replace").replace("\r", " ")  # alone it ends no line here
            yield next(csv.reader([text], delimiter=mark), [])


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

"""Tables in Excel workbooks; needs the extra ``excel``."""

from __future__ import annotations

import io
import logging
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from constraint_builders.files.columns import SUMMED_OUT, is_role, names_measurements, plain_name
from constraint_builders.files.naming import listed, shown
from constraint_builders.files.text_table import with_formulas
from constraint_builders.files.titles import Source, header_at, named_columns, without_comments
from constraint_builders.opening import MOST_COLUMNS, TEXT_BYTES, DeclaredSize, read_whole

MOST_ROWS = 1 << 20
WORKBOOK, OTHERS = "xl/workbook.xml", {"xl/workbook.bin", "content.xml"}  # of formats that would be read in its place
_TAG = rb"""<(?:[^<>\s/:]+:)?%s(?=[\s/>])(?:[^<]*?\sr\s*=\s*["']"""  # a tag with a reference r, which may be missing
_ROW = re.compile(_TAG % b"row" + rb"([0-9]*))?")
_CELL = re.compile(_TAG % b"c" + rb"([A-Za-z]*)([0-9]*))?")
_NOT_WORKED_OUT = re.compile(rb"""\sfullCalcOnLoad\s*=\s*["'](?:1|true)""")  # by programs that write formulas alone
_FORMULA = re.compile(rb"<(?:[^<>\s/:]+:)?c(\s[^<>]*)>\s*<(?:[^<>\s/:]+:)?f[\s>/]")
_ERROR = re.compile(rb"""<(?:[^<>\s/:]+:)?c(\s(?=[^<>]*\st\s*=\s*["']e["'])[^<>]*)>""")
_HIDDEN = re.compile(rb"""<(?:[^<>\s/:]+:)?(row|col)(\s(?=[^<>]*\bhidden\s*=\s*["'](?:1|true))[^<>]*)>""")
_ATTRIBUTE = re.compile(rb"""\s(r|min|max)\s*=\s*["']([0-9]{1,9})["']""")
_CELL_TAG = re.compile(rb"<(?:[^<>\s/:]+:)?c(\s[^<>]*)>")
_REFERENCE = re.compile(rb"""\sr\s*=\s*["']([A-Z]{1,3})([0-9]{1,9})["']""")
# A text that is a number, up to a raised one behind it.
_RAISED = re.compile(
    rb"(<(?:[^<>\s/:]+:)?(?:si|is)(?:\s*<?[^<>]*>){1,24}?\s*[-+]?[0-9][0-9.,\s]*</[^<>]*t>\s*</[^<>]*r>"
    rb"(?:\s*<[^<>]*>){1,24}?\s*<[^<>]*vertAlign[^<>]*superscript[^<>]*>(?:\s*<[^<>]*>){1,24}?\s*)(?=[0-9][0-9,\s]*<)"
)
_MARK = "\ufdd0"  # no character, of no text
_LIBRARYS_WORDS = logging.getLogger("calamine")  # written on standard error where nobody listens
_TEXTS = re.compile(rb"""\suniqueCount\s*=\s*["']([0-9]+)""")  # room for so many texts is made before they are read


def read_excel(file: BinaryIO, sheet: str | Sequence[str] | None = None, skip_rows: int = 0) -> Source:
    """A table in a workbook, all cells as text.

    Parameters
    ----------
    file : binary file
    sheet : str or sequence of str, optional
        The sheets that hold it, one after the other: columns that one has not are summed out there. By default the one
        that is not empty, or that alone names measurements.
    skip_rows : int
        How many rows stand above the header; by default those that are plainly titles.

    Raises
    ------
    ValueError
        If it is no workbook, a cell lies where no sheet has one or far from all others, is an error or a formula
        without its value, or holds a number with a raised mark of a note; not one sheet holds a table, or a column has
        no name of its own.
    MemoryError
        If it takes more memory than is free.
    """
    import fastexcel

    if not _LIBRARYS_WORDS.handlers:
        _LIBRARYS_WORDS.addHandler(logging.NullHandler())
    data = read_whole(file)
    declared(data).require_moderate(len(data))
    try:
        book = fastexcel.read_excel(_with_marks(data))
        options: dict[str, Any] = {"header_row": None, "skip_rows": 0, "dtypes": "string"}
        sheets = {name: book.load_sheet(name, **options) for name in book.sheet_names}
    except fastexcel.FastExcelError as error:
        raise ValueError(f"not readable as an Excel file: {str(error).splitlines()[0]}") from None
    filled = {name: sheet.to_polars() for name, sheet in sheets.items() if sheet.height and sheet.width}
    tables = _meant(filled, [sheet] if isinstance(sheet, str) else sheet, skip_rows)
    for name in tables:
        _refuse_raised(filled[name])
    found = [_table(filled[name], *own) for name, own in tables.items()]
    unread = tuple(f"sheet {shown(name)}" for name in filled if name not in tables)
    table = found[0] if len(found) == 1 else _together(found)
    hidden = [f"sheet {shown(name)} is hidden, and is read" for name in tables if sheets[name].visible != "visible"]
    return replace(table, doubts=(*hidden, *_hidden(data)), left_out=unread + table.left_out)


def _meant(
    filled: Mapping[str, pl.DataFrame], wanted: Sequence[str] | None, skip_rows: int
) -> dict[str, tuple[int, int]]:
    """The sheets that are meant, by name, each with where titles begin and where its header is."""
    for name in wanted or ():
        if name not in filled:
            raise ValueError(f"sheet={name!r} is none that holds something: there are {listed(filled)}")
    starts = {}
    for name in wanted or filled:
        empty, titles = header_at(without_comments(filled[name][skip_rows:].iter_rows()))
        starts[name] = skip_rows + empty, skip_rows + empty + (0 if skip_rows else titles)
    if wanted is not None or len(filled) == 1:
        return starts
    rows = {name: filled[name][header : header + 1] for name, (_, header) in starts.items()}
    named = {name: own for name, own in starts.items() if any(map(names_measurements, rows[name].iter_rows()))}
    if len(named) != 1:
        raise ValueError(
            f"one sheet must hold a table: {listed(filled)} do; say sheet= of the one that is meant, or of all"
        )
    return named


def _with_marks(data: bytes) -> bytes:
    """The same workbook with a sign between a number and a raised one behind it, which are read as one."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = ((name, archive.read(name)) for name in archive.namelist())
        found = {name: _RAISED.sub(rb"\1" + _MARK.encode(), part) for name, part in parts if b"superscript" in part}
        if not any(_MARK.encode() in part for part in found.values()):
            return data
        with zipfile.ZipFile(written, "w") as other:
            for name in archive.namelist():
                other.writestr(name, found.get(name) or archive.read(name))
    return written.getvalue()


def _refuse_raised(cells: pl.DataFrame) -> None:
    """Refuse cells that hold a number and a raised one, as the mark of a note is."""
    for column in cells:
        wrong = column.str.contains(_MARK, literal=True).fill_null(False)
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            number, _, mark = column[row].partition(_MARK)
            raise ValueError(
                f"row {row + 1} has {number!r} and a raised {mark!r} in one cell, read as one number: take marks of "
                "notes out of cells"
            )


def _table(cells: pl.DataFrame, first: int, header: int) -> Source:
    return named_columns(with_formulas(cells[header:]), header, titles=cells[first:header, 0].to_list())


def _together(tables: Sequence[Source]) -> Source:
    """Tables one below the other; a variable that one has not is summed out there.

    Names of columns that differ in capitals and the like are one; a row that one table has twice is refused.
    """
    called: dict[str, str] = {}
    frames = []
    for own in tables:
        twice = own.frame.is_duplicated()
        if twice.any():
            raise ValueError(f"row {own.row_of(twice)} is there twice in one sheet: leave one out")
        names = {name: called.setdefault(plain_name(name) or name, name) for name in own.frame.columns}
        frames.append(own.frame.rename(names) if len(set(names.values())) == len(names) else own.frame)
    tables = [replace(own, frame=frame) for own, frame in zip(tables, frames, strict=True)]
    frame = pl.concat(frames, how="diagonal")
    for name in (name for name in frame.columns if not is_role(name)):
        absent = pl.concat(
            [pl.Series([name not in own.frame.columns]).new_from_index(0, own.rows.size) for own in tables]
        )
        frame = frame.with_columns(pl.when(absent).then(pl.lit(SUMMED_OUT)).otherwise(pl.col(name)).alias(name))
    rows = np.concatenate([own.rows for own in tables])
    return Source(frame, rows, left_out=tuple(line for own in tables for line in own.left_out))


def declared(data: bytes) -> DeclaredSize:
    """What a workbook declares: the library that reads it makes all cells up to the last row and the last column."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = archive.infolist()
            names = {part.filename for part in parts}
            if WORKBOOK not in names or OTHERS & names:
                raise ValueError("not readable as an Excel file: it is another archive, save it anew from Excel")
            plain = sum(part.file_size for part in parts)
            DeclaredSize(0, 1, plain, TEXT_BYTES).require_moderate(len(data))
            is_worked_out = not _NOT_WORKED_OUT.search(archive.read(WORKBOOK))
            extents = [_extent(archive.read(part), is_worked_out) for part in parts]
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise ValueError(f"not readable as an Excel file: {error}") from None
    return DeclaredSize(sum(rows * columns for rows, columns in extents), 1, plain, TEXT_BYTES)


def _hidden(data: bytes) -> Iterator[str]:
    """Which rows and columns that hold something are hidden, in words: they are read as all others are."""
    rows: set[int] = set()
    columns: set[int] = set()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for part in archive.infolist():
            sheet = archive.read(part) if "/worksheets/" in part.filename else b""
            tags = [(kind, dict(_ATTRIBUTE.findall(tag))) for kind, tag in _HIDDEN.findall(sheet)]
            if tags:
                filled_rows, filled_columns = _filled(sheet)
                rows |= filled_rows & {int(own.get(b"r", 0)) for kind, own in tags if kind == b"row"}
                columns |= filled_columns & _spanned([own for kind, own in tags if kind == b"col"])
    letters = [_letters(number) for number in sorted(columns)]
    for kind, found in (("row", list(map(str, sorted(rows)))), ("column", letters)):
        if found:
            several = f"{len(found):,} {kind}s are hidden, {found[0]} first"
            one = f"{kind} {found[0]} is hidden"
            yield (
                f"{several if len(found) > 1 else one}: what a sheet does not show is read like all else, leave it out "
                "where it does not count"
            )


def _spanned(columns: Sequence[Mapping[bytes, bytes]]) -> set[int]:
    """The numbers of columns from the least to the largest of any tag."""
    ends = np.zeros(MOST_COLUMNS + 2, dtype=np.intp)
    for own in columns:
        ends[min(int(own.get(b"min", 0)), MOST_COLUMNS + 1)] += 1
        ends[min(int(own.get(b"max", 0)), MOST_COLUMNS) + 1] -= 1
    return set(np.flatnonzero(ends.cumsum() > 0).tolist())


def _filled(sheet: bytes) -> tuple[set[int], set[int]]:
    """The rows and the columns in which a cell holds something."""
    cells = [_REFERENCE.search(tag) for tag in _CELL_TAG.findall(sheet) if not tag.endswith(b"/")]
    columns, rows = ({cell[i] for cell in cells if cell} for i in (1, 2))
    return set(map(int, rows)), set(map(_column, columns))


def _extent(sheet: bytes, is_worked_out: bool) -> tuple[int, int]:
    """At most how many rows and columns a part of a workbook makes; 0 and 0 of one that is no sheet."""
    formula = None if is_worked_out else _FORMULA.search(sheet)
    if formula is not None:
        raise ValueError(
            f"cell {_cell(formula[1])} is a formula that nobody worked out: open the file in a spreadsheet and save it"
        )
    error = _ERROR.search(sheet)
    if error is not None:
        cell = _cell(error[1])
        raise ValueError(f"cell {cell} is an error, such as #REF!: correct it, or empty it where nothing was published")
    if any(len(digits) > 15 or int(digits) > len(sheet) for digits in _TEXTS.findall(sheet)):
        raise ValueError("it says that it has more texts than it can have: it is damaged, copy it again")
    last_row = last_column = 0
    pieces = _ROW.split(sheet)[1:]
    for own, row in zip(pieces[::2], pieces[1::2], strict=True):
        cells = _CELL.findall(row)
        if cells:
            columns, rows = zip(*cells, strict=True)
            last_row = max(last_row + 1, *map(_row, {own or b"", *rows}))
            last_column = max(last_column, max(map(_column, set(columns))) + columns.count(b""))
    return last_row, last_column


def _cell(tag: bytes) -> str:
    """The reference in the tag of a cell, empty without one."""
    found = _REFERENCE.search(tag)
    return b"".join(found.groups()).decode() if found else ""


def _row(digits: bytes) -> int:
    """The number of a row; 0 without one."""
    if len(digits) > len(str(MOST_ROWS)) or int(digits or 0) > MOST_ROWS:
        raise ValueError(f"a cell is in row {digits[:20].decode()}, and a sheet has {MOST_ROWS:,}: it is damaged")
    return int(digits or 0)


def _column(letters: bytes) -> int:
    """The number of a column of letters; 0 without one."""
    number = 0
    for letter in letters.upper():
        number = 26 * number + letter - ord("A") + 1
        if number > MOST_COLUMNS:
            raise ValueError(f"a cell is in column {letters[:20].decode()}, and the last is XFD: it is damaged")
    return number


def _letters(number: int) -> str:
    """The letters of a column by its number; the inverse of `_column`."""
    letters = ""
    while number > 0:
        number, last = divmod(number - 1, 26)
        letters = chr(ord("A") + last) + letters
    return letters

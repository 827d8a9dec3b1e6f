"""Tables in cells of text, and what is written around them: titles and comments above, sources and notes below.

Left out is only what is plainly no part of it. A title is a row above the header, which is the first row that names
what was measured, or the first of several cells after rows of one. A note below has nothing but its first cell, and
begins as notes do, ``Source:`` or ``(1)``, or stands below an empty row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Float
from constraint_builders.files.columns import NOTES, names_measurements, plain_name
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import LARGEST, NotANumberError, decimal_mark, read_numbers

COMMENT = "#"
MOST_TITLES = 40  # rows, or notes
NOTE = re.compile(
    r"(sources?|notes?|footnotes?|n\.? ?b\.?|quellen?|anmerkung(en)?|hinweis|fuentes?|notas?|fontes?|remarques?|bron|"
    r"kilde|källa|lähde)\b.*:|[(\[]?\d{1,2}[)\]] |[*†‡]+ ?\w|©|\(c\) |\.\.+ ?=",
    re.IGNORECASE,
)
IN_NOTES = re.compile(rf"^({NOTE.pattern})|\S\s+\S+\s+\S+\s+\S|[.:]|https?:", re.IGNORECASE)  # in levels hardly ever
YEAR = re.compile(r"(1[89]|20|21)\d\d")
IN_WORDS = re.compile(r"[^\W\d]\w* ?:")
NUMBER = re.compile(r"[-+]?[\d.,]*\d%?")


@dataclass(frozen=True)
class Source:
    """A table as it was found.

    Attributes
    ----------
    frame : polars.DataFrame
        Of text and Excel all columns are text, null where empty; rows without any cell, and comments, are left out.
    rows : ndarray of int, (height,)
        The number of every row there, as people count: in text and in Excel the header is a row too.
    delimiter : str
        Of the cells in text, empty elsewhere.
    doubts : tuple of str
        What is doubtful about how they were written.
    left_out : tuple of str
        What was left out of it, above and below the table.
    what : str
        What messages call it.
    """

    frame: pl.DataFrame
    rows: NDArray[np.int64]
    delimiter: str = ""
    doubts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    what: str = ""

    def row_of(self, flags: pl.Series) -> int:
        """The number of the first row that is flagged in (height,)."""
        return int(self.rows[int(flags.arg_max() or 0)])

    def counts(self, names: Sequence[str], whole: bool = False, may_be_empty: bool = False) -> list[Float]:
        """Columns of counts, (height,) each, NaN where one is empty and may be; `ValueError` where one holds others."""
        mark = decimal_mark([self.frame[name] for name in names], self.delimiter)
        return [self._counts(name, mark, whole, may_be_empty) for name in names]

    def _counts(self, name: str, mark: str, whole: bool, may_be_empty: bool) -> Float:
        column = self.frame[name]
        try:
            numbers = read_numbers(column, mark)
        except NotANumberError as error:
            raise ValueError(f"column {name!r}: {error} (row {self.rows[error.row]})") from None
        right = (numbers >= 0) & (numbers <= LARGEST) & ((numbers == np.rint(numbers)) | (not whole))
        wrong = pl.Series(~(right | (np.isnan(numbers) & may_be_empty)))
        if wrong.any():
            what = f"column {name!r} holds {shown(column.filter(wrong)[0])} in row {self.row_of(wrong)}"
            raise ValueError(f"{what}: a count is a {'whole ' if whole else ''}number from 0 to {LARGEST:,.0f}")
        return numbers

    def filled(self, labels: pl.Series, hint: str) -> pl.Series:
        """The same column, (height,); `ValueError`, which ends in a hint, where it is empty."""
        if labels.null_count():
            raise ValueError(f"column {labels.name!r} is empty in row {self.row_of(labels.is_null())}{hint}")
        return labels

    def refuse(self, flags: pl.Series, texts: pl.Series, why: str) -> None:
        """Raise `ValueError` for the first row that is flagged in (height,), by its number and text."""
        if flags.any():
            raise ValueError(f"row {self.row_of(flags)}: {shown(texts.filter(flags)[0])} {why}")

    def kept(self, flags: pl.Series) -> Source:
        """The rows that are flagged in (height,)."""
        return replace(self, frame=self.frame.filter(flags), rows=self.rows[flags.to_numpy()])

    def stacked(self, blocks: Iterable[Sequence[Any]]) -> Source:
        """All rows once for each of some lists of columns, by what polars selects, one after another."""
        parts = [self.frame.select(*columns) for columns in blocks]
        return replace(self, frame=pl.concat(parts, how="vertical_relaxed"), rows=np.tile(self.rows, len(parts)))


def header_at(rows: Iterable[Sequence[str | None]]) -> tuple[int, int]:
    """How many rows stand above a table, all of them empty, and how many titles then, before its header.

    Parameters
    ----------
    rows : iterable of sequence of str or None
        The cells of the rows, of any length, none of a comment. No more are taken than is needed.
    """
    ahead, above, first = iter(rows), 0, None
    for first in ahead:
        if any(cell and cell.strip() for cell in first):
            break
        above += 1
    return above, _titles_above([first or (), *islice(ahead, MOST_TITLES - 1)])


def without_comments(rows: Iterable[Sequence[str | None]]) -> Iterator[Sequence[str | None]]:
    """The same rows, those empty that begin with ``#`` and are no header."""
    for row, following in pairwise(chain(rows, [()])):
        first = next((cell for cell in row if cell and cell.strip()), "")
        yield () if first.startswith(COMMENT) and not is_header(row, following) else row


def is_header(row: Sequence[str | None], following: Sequence[str | None]) -> bool:
    """Whether a row that begins with ``#`` names columns all the same: those of a measurement, as the next does not."""
    return len(row) == len(following) and names_measurements(row) and not names_measurements(following)


def _titles_above(rows: Sequence[Sequence[str | None]]) -> int:
    """How many of the first rows stand above the header; 0 where that is not plain."""
    filled = [_cells(row) for row in rows]
    most = 0
    for number, row in enumerate(filled):
        if len(row) > most and names_measurements(row) and not any(map(NUMBER.fullmatch, row)):
            return number
        if len(row) > 1 and _has_numbers(row):  # of another table, or of this one
            break
        most = max(most, len(row))
    first = next((number for number, row in enumerate(filled) if len(row) > 1), 0)
    return first if any(filled[:first]) and not _has_numbers(filled[first]) else 0


def named_columns(cells: pl.DataFrame, skipped: int, delimiter: str = "", titles: Sequence[str | None] = ()) -> Source:
    """Take the first row for the header, and leave out empty rows, comments and notes below the last row.

    Parameters
    ----------
    cells : polars.DataFrame
        All columns text.
    skipped : int
        Rows before them.
    delimiter : str
    titles : sequence of str or None
        The first cells of the last of these.

    Raises
    ------
    ValueError
        If there are no rows, a column that is not empty has no name, or two have one.
    """
    if cells.is_empty():
        raise ValueError("it holds no rows: give a header and a row for every cell")
    last = cells.height - _notes_below(cells)
    above = _left_out(titles, skipped + 1 - len(titles), "above")
    texts = cells[last:, 0].to_list()
    below = _left_out(texts, skipped + last + 1, "below")
    _refuse_levels(texts, below)
    cells = cells[:last]
    names = [(name or "").strip() for name in cells.row(0)]
    if plain_name(names[0]) not in NOTES:
        _refuse_note_of_commas(cells[max(1, last - MOST_TITLES) :, 0].to_list(), skipped + last)
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
    return Source(frame, rows, delimiter, left_out=above + below).kept(used)


def _comments(frame: pl.DataFrame) -> pl.Series:
    first = frame.to_series(0).fill_null("")
    comment = first.str.starts_with(COMMENT) & frame.to_series(-1).is_null()
    if not comment.any():
        return comment
    others = frame[:, 1:]
    numbers = others.select(pl.sum_horizontal(pl.all().cast(pl.Float64, strict=False).is_not_null())).to_series()
    nothing = others.select(pl.all_horizontal(pl.all().is_null())).to_series()
    return comment & (nothing | (first.str.starts_with(f"{COMMENT} ") & (numbers < 2)))


def _has_numbers(row: Sequence[str]) -> bool:
    """Whether a cell is a number that is no year."""
    return any(NUMBER.fullmatch(cell) and not YEAR.fullmatch(cell) for cell in row)


def _cells(row: Sequence[str | None]) -> list[str]:
    """The cells of a row that hold something; one of a sentence, which has a space after each of its commas."""
    found = [cell for cell in row if cell and cell.strip()]
    is_sentence = all(cell.startswith(" ") for cell in found[1:]) and not names_measurements(found)
    return [cell.strip() for cell in (found[:1] if is_sentence else found)]


def _notes_below(cells: pl.DataFrame) -> int:
    """How many of the last rows, (rows,) of text, are notes, or empty."""
    cells = cells.tail(MOST_TITLES)
    others = pl.any_horizontal(pl.all().exclude(cells.columns[0]).str.strip_chars().ne("")).fill_null(False)
    used = cells.select(others).to_series().arg_true() if cells.width > 1 else pl.Series([], dtype=pl.UInt32)
    if not used.len():
        return 0
    first = int(used[-1]) + 1
    texts = [(text or "").strip() for text in cells[:, 0]]
    below = texts[first:]
    are_labels = any(map(NOTE.match, texts[1:first]))  # such as "1) farms"
    for start, text in enumerate(below):
        if not text or (NOTE.match(text) and not are_labels):
            return 0 if any(map(NUMBER.fullmatch, filter(None, below[start:]))) else len(below) - start
    return 0


def _refuse_levels(texts: Sequence[str | None], said: Sequence[str]) -> None:
    """Refuse to leave out rows below a table of which none reads as a note, by the first cells of all of them."""
    if said and not any(IN_NOTES.search(text.strip()) for text in texts if text):
        raise ValueError(
            f"{said[0]} would be left out: if it is a level take the empty row out, if a note write 'Note: ' before it"
        )


def _refuse_note_of_commas(texts: Sequence[str | None], last: int) -> None:
    """Refuse a last row whose cells are a note that its commas cut, by the first cells of all, and its number."""
    labels = [(text or "").strip() for text in texts]
    alike = [text for text in labels if NOTE.match(text) and IN_WORDS.match(text)]
    if alike and alike == labels[-1:]:
        raise ValueError(f"row {last}, {shown(labels[-1])}, is a note in several cells: quote it, or leave it out")


def _left_out(texts: Sequence[str | None], first: int, where: str) -> tuple[str, ...]:
    """What is said of rows that were left out, by the texts of their first cells and the number of the first."""
    said = [(number, text.strip()) for number, text in enumerate(texts, first) if text and text.strip()]
    if not said:
        return ()
    rows = f"rows {said[0][0]} to {said[-1][0]}" if len(said) > 1 else f"row {said[0][0]}"
    return (f"{rows} {where} the table: {shown(said[0][1])}",)

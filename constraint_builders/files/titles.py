"""What publishers write around a table: titles above its header, and sources and notes below its last row.

Left out is only what is plainly no part of it. A title is a row above the header, which is the first row that names
what was measured, or the first of several cells after rows of one. A note below has nothing but its first cell, and
begins as notes do, ``Source:`` or ``(1)``, or stands below an empty row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from constraint_builders.files.columns import names_measurements
from constraint_builders.files.naming import shown

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


def titles_above(rows: Sequence[Sequence[str | None]]) -> int:
    """How many of the first rows stand above the header; 0 where that is not plain.

    Parameters
    ----------
    rows : sequence of sequence of str or None
        The cells of the first rows, of any length.
    """
    filled = [_cells(row) for row in rows[:MOST_TITLES]]
    most = 0
    for number, row in enumerate(filled):
        if len(row) > most and names_measurements(row) and not any(map(NUMBER.fullmatch, row)):
            return number
        if len(row) > 1 and _has_numbers(row):  # of another table, or of this one
            break
        most = max(most, len(row))
    first = next((number for number, row in enumerate(filled) if len(row) > 1), 0)
    return first if any(filled[:first]) and not _has_numbers(filled[first]) else 0


def _has_numbers(row: Sequence[str]) -> bool:
    """Whether a cell is a number that is no year."""
    return any(NUMBER.fullmatch(cell) and not YEAR.fullmatch(cell) for cell in row)


def _cells(row: Sequence[str | None]) -> list[str]:
    """The cells of a row that hold something; one of a sentence, which has a space after each of its commas."""
    found = [cell for cell in row if cell and cell.strip()]
    is_sentence = all(cell.startswith(" ") for cell in found[1:]) and not names_measurements(found)
    return [cell.strip() for cell in (found[:1] if is_sentence else found)]


def notes_below(cells: pl.DataFrame) -> int:
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


def refuse_levels(texts: Sequence[str | None], said: Sequence[str]) -> None:
    """Refuse to leave out rows below a table of which none reads as a note, by the first cells of all of them."""
    if said and not any(IN_NOTES.search(text.strip()) for text in texts if text):
        raise ValueError(
            f"{said[0]} would be left out: if it is a level take the empty row out, if a note write 'Note: ' before it"
        )


def refuse_note_of_commas(texts: Sequence[str | None], last: int) -> None:
    """Refuse a last row whose cells are a note that its commas cut, by the first cells of all, and its number."""
    labels = [(text or "").strip() for text in texts]
    alike = [text for text in labels if NOTE.match(text) and IN_WORDS.match(text)]
    if alike and alike == labels[-1:]:
        raise ValueError(f"row {last}, {shown(labels[-1])}, is a note in several cells: quote it, or leave it out")


def left_out(texts: Sequence[str | None], first: int, where: str) -> tuple[str, ...]:
    """What is said of rows that were left out, by the texts of their first cells and the number of the first."""
    said = [(number, text.strip()) for number, text in enumerate(texts, first) if text and text.strip()]
    if not said:
        return ()
    rows = f"rows {said[0][0]} to {said[-1][0]}" if len(said) > 1 else f"row {said[0][0]}"
    return (f"{rows} {where} the table: {shown(said[0][1])}",)

"""Labels as people write them, matched with those of a schema.

Those that count everybody have many names, in several languages, and are asked about where they may be levels. Of those
that are ranges of numbers, such as ages, two that overlap count some people twice.
"""

from __future__ import annotations

import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.columns import SUMMED_OUT
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import is_number, read_labels
from constraint_builders.files.source import Source
from constraint_builders.opening import SHIPPED

_SIGNS_ALIKE = str.maketrans("‐‑‒–—−‘’‛ʼ", "------''''")  # dashes and apostrophes
_WHOLE_FLOAT = re.compile(r"([0-9]+)\.0+")
_LANGUAGES = tomllib.loads((SHIPPED / "words" / "labels.toml").read_text(encoding="utf-8")).values()


def _listed(kind: str) -> list[str]:
    """The words of a kind in all languages."""
    return [word.strip() for own in _LANGUAGES for word in own.get(kind, "").split(",") if word.strip()]


def _any(kind: str) -> str:
    """A pattern of all of them."""
    return f"(?:{'|'.join(map(re.escape, _listed(kind)))})"


SDMX_TOTAL = "_t"
OTHERS = (
    r"(?!.*\b(others?|else|rest|remaining|autres?|ander\w*|ubrig\w*|sonstig\w*|otr[ao]s|demas|altr[ie]|outr[ao]s)\b)"
)
ALL_OF = re.compile(
    rf"(all|total|totale?s?|totaa?l|alle[rs]?|tous|toutes|tod[ao]s|tutt[ei]) {OTHERS}\w.*"
    r"|.* (totals?|totale|insgesamt|zusammen|combined)|(sub ?totals?|sum of) .*"
    r"|(both|ambos|beiderlei|beide|les deux|deux) (sexes|genders|sexos|geschlechts?|geschlechter)"
)
NO_COUNTS = re.compile(rf"%|\b{_any('no_count')}\b", re.IGNORECASE)
_NOTED = re.compile(r"\s+\(\d{1,2}\)$")  # with the mark of a note
_WORD = re.compile(r"[^\W_]+")
_NUMBER = r"(\d+(?:\.\d+)?k?)"
_UNITS = r"(?: [^\W\d]+){0,3}"
_LED = r"(?:(?:from|between|von|de|entre|da|van) )?"
_FROM_TO = re.compile(rf"{_LED}{_NUMBER} ?{_any('to')} ?{_NUMBER}{_UNITS}")
_FROM = re.compile(rf"{_NUMBER}{_UNITS} ?(?:\+|{_any('and_more')}){_UNITS}|{_any('at_least')} ?{_NUMBER}{_UNITS}")
_BEYOND = re.compile(rf"{_any('beyond')} ?{_NUMBER}{_UNITS}")
_BELOW = re.compile(rf"{_any('below')} ?{_NUMBER}{_UNITS}|{_NUMBER} ?{_any('and_less')}")
_INTERVAL = re.compile(rf"([\[(]){_NUMBER} ?[,;] ?{_NUMBER}[\])]")
_MONTH = r"(?:jan|feb|mar|mrz|mär|apr|mai|may|jun|jul|aug|sep|okt|oct|nov|dez|dec)[a-z]*\.?"
_DATE = re.compile(rf"\d{{1,2}}[-./ ]+{_MONTH}|{_MONTH}[- ]\d{{1,2}}|\d{{4}}-\d\d-\d\d(?: .*)?|4[4-7]\d{{3}}")
_ALONE = re.compile(rf"{_NUMBER}{_UNITS}")
_SIGNS = str.maketrans("‐‑‒–—−~〜～", "---------", "$€£,歳岁歲세")
_SHORT = (  # codes of SDMX, "under-18s", who is counted, what stands in brackets, spaces in numbers
    (re.compile(r"y_?(g[et]|l[et])_?(?=\d)"), lambda code: {"ge": ">=", "gt": ">", "lt": "<", "le": "<="}[code[1]]),
    (re.compile(r"y(\d+)(?:[-t_](\d+))?"), lambda ages: "-".join(filter(None, ages.groups()))),
    (re.compile(r"(under|over)-(\d+)s?"), r"\1 \2"),
    (re.compile(r"(?:(?:age[ds]?|pop\.?|population|people|persons?|alter|âge)[ :]+)+(?=.*\d)"), ""),
    (re.compile(r"(?<=.)\([^()]*\)$"), ""),
    (re.compile(r"(?<=\d) (?=\d{3}\b)"), ""),
    (re.compile(r"&"), "and"),
)


class LabelNumbers:
    """The numbers of labels: of the very label, or of the only one whose `plain_label` is the same.

    Parameters
    ----------
    labels : sequence of str
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._exact = {label: number for number, label in enumerate(labels)}
        self._alike: dict[str, int | None] = {}
        for number, label in enumerate(labels):
            self._alike[plain_label(label)] = None if plain_label(label) in self._alike else number

    def get(self, label: str) -> int:
        """Its number, or -1."""
        found = self._exact.get(label, self._alike.get(plain_label(label)))
        return -1 if found is None else found


def plain_label(label: str) -> str:
    """A label without what makes no difference: capitals, kinds of spaces, dashes, accents, what nobody sees, 1.0."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) != "Cf")
    plain = " ".join(seen.translate(_SIGNS_ALIKE).casefold().split())
    return _WHOLE_FLOAT.sub(r"\1", plain) if _WHOLE_FLOAT.fullmatch(plain) else plain


def _alike(labels: Iterable[str]) -> tuple[str, str] | None:
    """The first two labels of one `plain_label`."""
    first: dict[str, str] = {}
    pairs = ((first.setdefault(plain_label(label), label), label) for label in labels)
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def refuse_alike(labels: Iterable[str], what: str) -> None:
    """Raise `ValueError` for two labels of one `plain_label`."""
    if both := _alike(labels):
        raise ValueError(f"{what} has both {both[0]!a} and {both[1]!a}: write one of them")


def inferred_levels(labels: pl.Series, rows: NDArray[np.int64]) -> list[str]:
    """The levels that labels name, without outer spaces, in order as `in_order` puts them.

    Parameters
    ----------
    labels : polars.Series
        A column of a table.
    rows : ndarray of int, (n,)
        The number of every row there, for messages.

    Raises
    ------
    ValueError
        If two have one `plain_label`.
    """
    stripped = labels.str.strip_chars()
    levels = [label for label in stripped.unique(maintain_order=True) if label != SUMMED_OUT]
    if both := _alike(levels):
        are_one = len({unicodedata.normalize("NFC", label) for label in both}) == 1
        as_shown, else_ = (ascii, "") if are_one else (repr, ", or give a schema with both")
        places = [rows[int((stripped == label).arg_max() or 0)] for label in both]
        seen = " and ".join(f"{as_shown(label)} (row {row})" for label, row in zip(both, places, strict=True))
        raise ValueError(f"column {labels.name!r} has both {seen}: write one of them{else_}")
    return in_order(levels)


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels sorted: numbers by size, others by the alphabet, digits inside of them as numbers."""
    return sorted(labels, key=_natural)


def _natural(label: str) -> tuple[bool, float, list[tuple[int, str]], str]:
    """A key to sort labels by: 2 before 10, ``0-4`` and ``5-9`` before ``10-14``."""
    try:
        number = float(label)
    except ValueError:
        number = np.nan
    digits = [part.lstrip("0") if i % 2 else part for i, part in enumerate(re.split(r"([0-9]+)", plain_label(label)))]
    text = [(len(part) if i % 2 else 0, part) for i, part in enumerate(digits)]
    return (True, 0.0, text, label) if np.isnan(number) else (False, number, text, label)


def read_table_name(schema: Schema, name: str) -> tuple[str, Table]:
    """A table by its name, or one that differs from it in capitals and spaces alone, and the name put right.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return name, parse_table(schema, name)
    except ValueError:
        factors = [*schema.names, *(recode.name for recode in schema.recodes), "total", "detailed"]
        numbers = LabelNumbers(factors)
        found = [numbers.get(factor) for factor in name.split("*")]
        if min(found) < 0:
            raise
        right = " * ".join(factors[number] for number in found)
        return right, parse_table(schema, right)


def _words(label: str) -> str:
    """The words of a label, in small letters without accents, with one space between them."""
    letters = unicodedata.normalize("NFKD", label.casefold().replace("ł", "l"))
    return " ".join(_WORD.findall("".join(c for c in letters if not unicodedata.combining(c))))


TOTALS, MAY_BE_TOTALS = (frozenset(map(_words, _listed(kind))) for kind in ("total", "may_be_total"))


def is_total(label: str) -> bool:
    """Whether a label says that all are counted, in one of several languages."""
    return _words(_NOTED.sub("", label)) in TOTALS or label.strip().casefold() == SDMX_TOTAL


def may_be_total(label: str) -> bool:
    """Whether a label may say that all are counted, and may be a level."""
    words = _words(label)
    return not words or words in MAY_BE_TOTALS or ALL_OF.fullmatch(words) is not None


def with_totals(
    table: Source, variables: Mapping[str, str], schema: Schema | None, marks: Sequence[str]
) -> tuple[Source, tuple[str, ...]]:
    """Put ``*`` for every label that counts everybody.

    Parameters
    ----------
    table : Source
    variables : mapping of str to str
        The column of every variable.
    schema : Schema or None
        Its labels are no totals, unless a mark is one. Without it what may be a total is asked about.
    marks : sequence of str
        The labels that count everybody, if they are said: where one of them is, or ``*`` is among them, no others do.

    Returns
    -------
    table : Source
    found : tuple of str
        Columns and labels, other than ``*``, such as ``"sex 'Total:'"``.

    Raises
    ------
    ValueError
        If a label may be a total, or a mark is none of the labels.
    """
    found: list[str] = []
    columns = []
    said = {plain_label(mark) for mark in marks}
    missing = said - {SUMMED_OUT}
    for variable, column in variables.items():
        labels = read_labels(table.frame[column])
        there = labels.drop_nulls().unique(maintain_order=True).to_list()
        missing -= set(map(plain_label, there))
        known = map(schema.labels_of, schema.factors_of(variable)) if schema else ()
        taken = {plain_label(label) for own in known for label in own}
        totals = [label for label in there if plain_label(label) in said]
        if not totals and SUMMED_OUT not in said:
            totals = [label for label in there if is_total(label) and plain_label(label) not in taken]
            if not schema:
                ask_about(column, [label for label in there if label not in totals])
        totals = [label for label in totals if label.strip() != SUMMED_OUT]
        if totals:
            found += [f"{column} {label!r}" for label in totals]
            columns.append(labels.replace(totals, [SUMMED_OUT] * len(totals)).alias(column))
    if missing:
        mark = next(mark for mark in marks if plain_label(mark) in missing)
        raise ValueError(f"{mark!r} is said to count everybody by total= and is no label of {', '.join(variables)}")
    return (replace(table, frame=table.frame.with_columns(columns)) if columns else table), tuple(found)


def refuse_numbers(column: str, labels: Iterable[str]) -> None:
    """Refuse a column that is called a percentage, or whatever is no count, of labels that all are numbers."""
    if NO_COUNTS.search(column.replace("_", " ")) and all(is_number(label) for label in labels if label != SUMMED_OUT):
        is_level = f"where it is a level, say total= '{SUMMED_OUT}' or give a schema"
        raise ValueError(f"column {column!r} holds numbers: call it 'note' if they are no labels; {is_level}")


def ask_about(column: str, labels: Sequence[str]) -> None:
    """Refuse labels of a column that may be totals, or are of no counts."""
    is_level = f"where it is a level, say total= '{SUMMED_OUT}' or give a schema"
    for label in labels:
        if not label.strip():
            raise ValueError(f"column {column!r} has an empty label: write {SUMMED_OUT!r} where all are counted")
        if NO_COUNTS.search(label.replace("_", " ")):
            raise ValueError(f"column {column!r}: is {shown(label)} a count? leave its rows out or, {is_level}")
        if label.strip() != SUMMED_OUT and may_be_total(label):
            raise ValueError(
                f"column {column!r}: does {shown(label)} count everybody? write 'total' in its place, or name it by "
                f"total= or, {is_level}"
            )


Range = tuple[float, float]


def refuse_overlapping(schema: Schema) -> None:
    """Refuse a variable of which two levels are ranges that overlap, or some are ranges and one is a date.

    Raises
    ------
    ValueError
        The levels are named.
    """
    for variable in schema.variables:
        ranges = [level for level in variable.levels if _range(level) is not None]
        dates = [level for level in variable.levels if _DATE.fullmatch(level.casefold())]
        if ranges and dates:
            raise ValueError(
                f"column {variable.name!r}: {dates[0]!r} is a date beside ranges such as {ranges[0]!r}, which a "
                "spreadsheet made of one: write the range; say total= '*' or give a schema if it is a level"
            )
        both = overlapping(variable.levels)
        if both is not None:
            raise ValueError(
                f"column {variable.name!r}: {both[0]!r} and {both[1]!r} count some people twice: leave the rows of a "
                "subtotal out, or give a schema in which it is a group of a recode; say total= '*' if these are levels"
            )


def overlapping(levels: Sequence[str]) -> tuple[str, str] | None:
    """Two levels whose ranges have more than an end in common, or a number within a range; None if levels are codes.

    Examples
    --------
    >>> overlapping(["0-17", "0-4", "5-17", "18+"])
    ('0-17', '0-4')
    """
    found = [(own, level) for level in levels if (own := _range(level)) is not None]
    numbers = [(number, level) for level in levels if (number := _alone(level)) is not None]
    ends = {end for (low, high), _ in found if low < high for end in (low, high)}
    if any(low > high or (low == high and low in ends) for (low, high), _ in found):
        return None
    numbers += [(low, level) for (low, high), level in found if low == high]
    ranges = sorted((own for own in found if own[0][0] < own[0][1]), key=lambda own: (own[0][0], -own[0][1]))
    for ((_, end), before), ((start, _), level) in pairwise(ranges):
        if start < end:
            return before, level
    inside = ((level, alone) for number, alone in numbers for (low, high), level in ranges if low <= number < high)
    return next(inside, None)


def _range(level: str) -> Range | None:
    """The ends; the lower one of what is said to lie beyond it is above it."""
    if found := _INTERVAL.fullmatch(" ".join(level.split())):
        return (_number(found[2]) if found[1] == "[" else _above(found[2])), _number(found[3])
    text = _plain(level)
    if found := _FROM_TO.fullmatch(text):
        return _from_to(found[1], found[2])
    if found := _FROM.fullmatch(text):
        return _number(found[1] or found[2]), math.inf
    if found := _BEYOND.fullmatch(text):
        return _above(found[1]), math.inf
    if found := _BELOW.fullmatch(text):
        return -math.inf, _number(found[1] or found[2])
    return None


def _alone(level: str) -> float | None:
    """The number that a label is, with or without a unit."""
    number = _ALONE.fullmatch(_plain(level))
    return None if number is None or _range(level) else _number(number[1])


def _plain(level: str) -> str:
    """A label without what makes no difference to what range it is."""
    text = " ".join(level.casefold().translate(_SIGNS).split())
    for pattern, plain in _SHORT:
        text = pattern.sub(plain, text).strip()
    return text


def _from_to(low: str, high: str) -> Range:
    """Both ends; of ``5-10k`` the lower one is in thousands too, and ``2010-11`` ends in 2011."""
    if len(low) == 4 and len(high) == 2 and high.isdigit():
        high = low[:2] + high
    thousands = "k" if high.endswith("k") and not low.endswith("k") and float(low) < float(high[:-1]) else ""
    return _number(low + thousands), _number(high)


def _number(text: str) -> float:
    return 1000 * float(text[:-1]) if text.endswith("k") else float(text)


def _above(text: str) -> float:
    return math.nextafter(_number(text), math.inf)

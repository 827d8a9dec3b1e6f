"""Levels that are ranges of numbers, such as ages: those that overlap count some people twice."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from constraint_builders.description.schema import Schema

_NUMBER = r"(\d+(?:\.\d+)?)"
_UNITS = r"(?: [^\W\d]+){0,3}"
_FROM_TO = re.compile(rf"{_NUMBER} ?(?:-|to|through|bis|a|à|do|t/m|tot) ?{_NUMBER}{_UNITS}")
_FROM = re.compile(
    rf"{_NUMBER}{_UNITS} ?(?:\+|and over|and older|and above|or more|or over|or older|plus){_UNITS}"
    rf"|(?:>|≥|>=|over) ?{_NUMBER}{_UNITS}"
)
_BELOW = re.compile(rf"(?:<|under|below|less than|younger than) ?{_NUMBER}{_UNITS}")
_MONTH = r"(?:jan|feb|mar|mrz|mär|apr|mai|may|jun|jul|aug|sep|okt|oct|nov|dez|dec)[a-z]*\.?"
_DATE = re.compile(rf"\d{{1,2}}[-./ ]+{_MONTH}|{_MONTH}[- ]\d{{1,2}}|\d{{4}}-\d\d-\d\d(?: .*)?|4[4-7]\d{{3}}")
_DASHES = str.maketrans("‐‑‒–—−", "------", "$€£,")

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
    """Two levels whose ranges have more than an end in common; None if there are none, or levels are codes.

    Examples
    --------
    >>> overlapping(["0-17", "0-4", "5-17", "18+"])
    ('0-17', '0-4')
    """
    ranges = [(found, level) for level in levels if (found := _range(level)) is not None]
    if any(low >= high for (low, high), _ in ranges):
        return None
    ranges.sort(key=lambda own: (own[0][0], -own[0][1]))
    widest = ranges[0] if ranges else None
    for own in ranges[1:]:
        if widest is not None and own[0][0] < widest[0][1]:
            return widest[1], own[1]
        widest = own
    return None


def _range(level: str) -> Range | None:
    text = " ".join(level.casefold().translate(_DASHES).split())
    if both := _FROM_TO.fullmatch(text):
        return float(both[1]), float(both[2])
    if low := _FROM.fullmatch(text):
        return float(low[1] or low[2]), math.inf
    if high := _BELOW.fullmatch(text):
        return -math.inf, float(high[1])
    return None

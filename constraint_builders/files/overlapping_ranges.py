"""Levels that are ranges of numbers, such as ages: those that overlap count some people twice."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from constraint_builders.description.schema import Schema

_NUMBER = r"(\d+(?:\.\d+)?k?)"
_UNITS = r"(?: [^\W\d]+){0,3}"
_LED = r"(?:(?:age[ds]?|from|between|von|de|entre|da|van) )?"
_TO = (
    r"(?:-|to under|to less than|to|through|until|till|and|bis unter|bis|und|à moins de|à|a menos de|a|al|hasta|e|et|y|"
    r"do|t/m|tot|til)"
)
_FROM_TO = re.compile(rf"{_LED}{_NUMBER} ?{_TO} ?{_NUMBER}{_UNITS}")
_AND_MORE = (
    r"(?:and (?:over|older|above|more|up)|or (?:more|over|older|above)|plus|und (?:mehr|älter|darüber)|"
    r"oder (?:mehr|älter)|et (?:plus|au-delà)|ou plus|y más|o más|e (?:più|oltre|mais)|o più|ou mais|"
    r"en (?:ouder|meer)|of (?:ouder|meer)|og (?:over|eldre|ældre)|och (?:över|äldre)|i (?:więcej|starsi))"
)
_FROM = re.compile(
    rf"{_NUMBER}{_UNITS} ?(?:\+|{_AND_MORE}){_UNITS}"
    rf"|(?:>|≥|>=|over|older than|more than|from|above|über|ab|mehr als|plus de|à partir de|más de|oltre|più di|"
    rf"mais de|vanaf|över|fra) ?{_NUMBER}{_UNITS}"
)
_BELOW = re.compile(
    rf"(?:<|≤|<=|under|below|less than|younger than|up to|unter|bis unter|bis|weniger als|moins de|menos de|menores de|"
    rf"hasta|meno di|sotto i|fino a|onder|tot|under|poniżej) ?{_NUMBER}{_UNITS}"
)
_MONTH = r"(?:jan|feb|mar|mrz|mär|apr|mai|may|jun|jul|aug|sep|okt|oct|nov|dez|dec)[a-z]*\.?"
_DATE = re.compile(rf"\d{{1,2}}[-./ ]+{_MONTH}|{_MONTH}[- ]\d{{1,2}}|\d{{4}}-\d\d-\d\d(?: .*)?|4[4-7]\d{{3}}")
_ALONE = re.compile(r"\d+")
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
    """Two levels whose ranges have more than an end in common, or a number within a range; None if levels are codes.

    Examples
    --------
    >>> overlapping(["0-17", "0-4", "5-17", "18+"])
    ('0-17', '0-4')
    """
    ranges = [(found, level) for level in levels if (found := _range(level)) is not None]
    if not ranges or any(low >= high for (low, high), _ in ranges):
        return None
    ranges.sort(key=lambda own: (own[0][0], -own[0][1]))
    widest = ranges[0]
    for own in ranges[1:]:
        if own[0][0] < widest[0][1]:
            return widest[1], own[1]
        widest = own
    for number in (level for level in levels if _ALONE.fullmatch(level.strip())):
        for (low, high), level in ranges:
            if low < float(number) < high or low == float(number) < high < math.inf:  # not 10 beside "over 10"
                return level, number
    return None


def _range(level: str) -> Range | None:
    text = " ".join(level.casefold().translate(_DASHES).split())
    if both := _FROM_TO.fullmatch(text):
        return _from_to(both[1], both[2])
    if low := _FROM.fullmatch(text):
        return _number(low[1] or low[2]), math.inf
    if high := _BELOW.fullmatch(text):
        return -math.inf, _number(high[1])
    return None


def _from_to(low: str, high: str) -> Range:
    """Both ends; of ``5-10k`` the lower one is in thousands too."""
    thousands = "k" if high.endswith("k") and not low.endswith("k") and float(low) < float(high[:-1]) else ""
    return _number(low + thousands), _number(high)


def _number(text: str) -> float:
    return 1000 * float(text[:-1]) if text.endswith("k") else float(text)

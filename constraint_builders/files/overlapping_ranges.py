"""Levels that are ranges of numbers, such as ages: those that overlap count some people twice."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from constraint_builders.description.schema import Schema

_NUMBER = r"(\d+(?:\.\d+)?k?)"
_UNITS = r"(?: [^\W\d]+){0,3}"
_LED = r"(?:(?:from|between|von|de|entre|da|van) )?"
_TO = (
    r"(?:-|\.\.|to under|to less than|to|through|until|till|and|bis unter|bis|und|à moins de|à|a menos de|a|al|hasta|e|"
    r"et|y|do|t/m|tot|til)"
)
_FROM_TO = re.compile(rf"{_LED}{_NUMBER} ?{_TO} ?{_NUMBER}{_UNITS}")
_AND_MORE = (
    r"(?:and (?:over|older|above|more|up)|or (?:more|over|older|above)|plus|und (?:mehr|älter|darüber)|"
    r"oder (?:mehr|älter)|et (?:plus|au-delà)|ou plus|y más|o más|e (?:più|oltre|mais)|o più|ou mais|"
    r"en (?:ouder|meer)|of (?:ouder|meer)|og (?:over|eldre|ældre)|och (?:över|äldre)|i (?:więcej|starsi)|"
    r"и (?:старше|более|больше)|及?以上|이상)"
)
_FROM = re.compile(
    rf"{_NUMBER}{_UNITS} ?(?:\+|{_AND_MORE}){_UNITS}"
    rf"|(?:≥|>=|from|at least|min\.?|ab|mindestens|à partir de|au moins|al menos|almeno|vanaf|fra|minst) ?{_NUMBER}"
    rf"{_UNITS}"
)
_BEYOND = re.compile(
    rf"(?:>|over|older than|more than|above|über|mehr als|plus de|más de|oltre|più di|mais de|över|старше|более) ?"
    rf"{_NUMBER}{_UNITS}"
)
_BELOW = re.compile(
    rf"(?:<|≤|<=|under|u|below|less than|younger than|up to|at most|max\.?|unter|bis unter|bis|weniger als|moins de|"
    rf"menos de|menores de|hasta|meno di|sotto i|fino a|onder|tot|poniżej|до|моложе) ?{_NUMBER}{_UNITS}"
    rf"|{_NUMBER} ?(?:未満|以下|미만|이하)"
)
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

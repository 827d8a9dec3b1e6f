"""Labels of periods of time, as statistical offices write them, and the years or quarters that they are in.

``2020-Q1``, ``2020Q1``, ``2020K1``, ``1Q 2020``, ``2020-01``, ``2020M01``, ``Jan 2020``, ``2020-S1``: a year and,
unless the label is the year, one part of it. ``2020-T1`` is a third of a year for some offices and a quarter for
others: it is no period here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from constraint_builders.files.columns import plain_name
from constraint_builders.files.naming import shown

QUARTER, YEAR = "quarter", "year"
PARTS = {"H": 2, "S": 2, "Q": 4, "K": 4, "M": 12, "": 12}  # halves, quarters and months, by their sign
MONTHS = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE",
    "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
)  # fmt: skip
PARTLY = re.compile(r" \(\d+ of \d+\)$")  # of a period of which some parts are missing
_YEAR, _PART = r"(?P<year>(?:1[5-9]|20|21)\d\d)", r"(?P<part>\d{1,2})"
_SIGN, _MONTH = "(?P<sign>[HSQKM])", r"(?P<month>[A-Z]{3,9})\.?"
_FORMS = [
    re.compile(form, re.ASCII)
    for form in (
        _YEAR,
        rf"{_YEAR}[-/. ]?{_SIGN}[- ]?{_PART}",
        rf"{_SIGN}{_PART}[-/. ]?{_YEAR}",
        rf"{_PART}{_SIGN}[-/. ]?{_YEAR}",
        rf"{_YEAR}[-/.]{_PART}",
        rf"{_PART}[-/.]{_YEAR}",
        rf"{_MONTH}[- ]{_YEAR}",
        rf"{_YEAR}[- ]{_MONTH}",
    )
]


class Period(NamedTuple):
    """A year, or one of the equal parts into which it falls.

    Attributes
    ----------
    year, part, parts : int
        The year itself is part 1 of 1.
    """

    year: int
    part: int = 1
    parts: int = 1


def read_period(label: str) -> Period | None:
    """What a label says; None where it is no period."""
    text = label.strip().upper()
    found = next(filter(None, (form.fullmatch(text) for form in _FORMS)), None)
    if found is None:
        return None
    own = found.groupdict()
    parts = PARTS[own.get("sign", "")] if len(own) > 1 else 1
    if "month" in own:
        part = next((part for part, name in enumerate(MONTHS, 1) if name.startswith(own["month"])), 0)
    else:
        part = int(own.get("part", 1))
    return Period(int(own["year"]), part, parts) if 1 <= part <= parts else None


def recoded_periods(
    variable: str, labels: Sequence[str], into: Sequence[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """The shortest of the periods that labels are, which are the levels, and longer ones as recodes.

    Parameters
    ----------
    variable : str
    labels : sequence of str
        All of the column, without those that sum it out.
    into : sequence of str
        What recodes are called: ``quarter``, or anything else for years.

    Returns
    -------
    levels : list of str
    recodes : dict of str to list of str
        By what they are called the group of every level; ``2020 (3 of 4)`` where some have no level.

    Raises
    ------
    ValueError
        If a label is no period; if a period has rows of its own and not all of its parts have, or is of other parts.
    """
    periods = {label: _period(variable, label) for label in labels}
    if len(set(periods.values())) < len(periods):
        one, other = next((a, b) for a in labels for b in labels if a < b and periods[a] == periods[b])
        raise ValueError(f"column {variable!r}: {shown(one)} and {shown(other)} are one period: write one of them")
    most = max(own.parts for own in periods.values())
    levels = sorted((label for label, own in periods.items() if own.parts == most), key=lambda label: periods[label])
    called = {own: label for label, own in periods.items() if own.parts < most}
    recodes = {}
    for name in into:
        parts = 4 if plain_name(name) == QUARTER else 1
        if most % parts or most <= parts:
            raise ValueError(
                f"column {variable!r}: {shown(levels[0])} is not shorter than any {name!r}: sums= is of these"
            )
        groups = [_around(periods[level], parts) for level in levels]
        whole = {own: _name(own, groups.count(own), most // parts) for own in set(groups)}
        for own in set(groups) & set(called):
            there = f"{groups.count(own)} of the {most // parts} periods in it have"
            if groups.count(own) < most // parts and called[own] != whole[own]:
                raise ValueError(
                    f"column {variable!r}: {shown(called[own])} has rows, and {there}: give the others some, with an "
                    "empty value where there is none"
                )
        names = {own: called.pop(own, name) for own, name in whole.items()}
        recodes[name] = [names[own] for own in groups]
    if called:
        longer, rest = next((own, shown(label)) for own, label in called.items())
        if longer.parts == 4 and any(_around(periods[level], 4) == longer for level in levels):
            raise ValueError(
                f"column {variable!r}: {rest} is a quarter, of which {shown(levels[0])} is a part: say that too, "
                f"{variable}=quarter"
            )
        raise ValueError(
            f"column {variable!r}: nothing is in {rest}, which is longer than {shown(levels[0])}: leave it out"
        )
    return levels, recodes


def _period(variable: str, label: str) -> Period:
    found = read_period(PARTLY.sub("", label))
    if found is None:
        raise ValueError(
            f"column {variable!r}: {shown(label)} is no period of a year, such as 2020-Q1, 2020K1 or 2020-01"
        )
    return found


def _around(own: Period, parts: int) -> Period:
    """The period, one of so many parts of a year, in which another lies."""
    return Period(own.year, 1 + (own.part - 1) * parts // own.parts, parts)


def _name(own: Period, there: int, parts: int) -> str:
    """What a period is called of which some parts are there."""
    name = str(own.year) if own.parts == 1 else f"{own.year}-Q{own.part}"
    return name if there == parts else f"{name} ({there} of {parts})"

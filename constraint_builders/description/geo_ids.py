"""Identifiers of places as the Census Bureau's interface writes them: ``0500000US44001`` for the county ``44001``."""

from __future__ import annotations

import re

SUMMARY_LEVELS = {
    "010": 0,
    "040": 2,
    "050": 5,
    "140": 11,
    "150": 12,
    "100": 15,
    "101": 15,
    "750": 15,
}  # digits after US
# Digits of GEOIDs by the kinds of places of tabulation.
WIDTHS = {"nation": 0, "state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
KINDS = {width: kind for kind, width in WIDTHS.items()}
NATION = "US"
STATES = {f"{own:02}" for own in range(1, 57)} - {"03", "07", "14", "43", "52"} | {"60", "66", "69", "72", "74", "78"}
# States some of whose counties have even numbers:
EVEN = {"02", "04", "08", "09", "12", "29", "35", "46", "51", "55", "60", "66", "69", "72", "74", "78"}
CITIES, LAST_CITY = 510, 840  # of counties, the numbers of cities that are none, even ones too
WHOLE = "0000"  # no geographic variant, no component: all of the place
_FORM = re.compile(r"(\w{3})(\w{4})US(\w*)", re.ASCII)


def kind_of_geo_id(code: str) -> str:
    """Summary level, variant and component, which are those of all places of a kind; empty where it is none."""
    form = _FORM.fullmatch(code)
    return form[1] + form[2] if form else ""


def geoid_in(code: str) -> str | None:
    """The GEOID of a whole place whose code begins with those of what it lies in; None of other places and codes."""
    form = _FORM.fullmatch(code)
    if form is None or form[2] != WHOLE or SUMMARY_LEVELS.get(form[1]) != len(form[3]):
        return None
    return form[3] if not form[3] or (form[3].isascii() and form[3].isdecimal()) else None


def geoid_of(code: str) -> str | None:
    """The GEOID in a code, or that is one by the number of its digits, `NATION` for the nation; None of other codes."""
    own = geoid_in(code)
    if own is None and (code == NATION or (len(code) in KINDS and code.isascii() and code.isdigit())):
        own = code
    return own if own is None else own or NATION


def may_be_county(geoid: str) -> bool:
    """Whether a county may have a GEOID of five digits, which ZIP codes and districts have too.

    Counties are numbered by state from 1 on, in odd numbers but for some that were added, and for cities.
    """
    state, number = geoid[:2], int(geoid[2:])
    return state in STATES and 0 < number <= LAST_CITY and (number % 2 == 1 or number >= CITIES or state in EVEN)

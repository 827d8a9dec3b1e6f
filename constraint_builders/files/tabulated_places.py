"""The identifiers by which published tables name places (GEOIDs), read from geocodes, and which places are in part.

A block's code on the spine of 2020 ends in the 16 digits of its place in tabulation: state 2, county 3, tract 6, block
group 1, block 4, the block group being the first digit of the block's number; its GEOID leaves the group out. A state
is one geounit or two, American Indian areas (1) and the rest (0), and so is what lies in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from constraint_builders.description.geo_ids import KINDS
from constraint_builders.files.reading_report import PlacesInPart
from constraint_builders.opening import SHIPPED

TABULATION_WIDTH = 16
TOGETHER = "+"  # between the codes of geounits that are counted together
STATE, COUNTY = r"^[01]([0-9]{2})$", r"^[01][0-9]{2}10[0-9]{3}[0-9]?$"  # geocodes of the spine of 2020

# States with American Indian areas on the spine of 2020 (google-research/census-bluedown, `constants.py`).
WITH_AREAS = (  # codes of two digits
    "01 02 04 06 08 09 12 13 15 16 18 19 20 22 23 25 26 27 28 30 31 32 35 36 37 38 40 41 45 46 47 48 49 51 53 55 56"
)
OF_THE_UNITED_STATES = re.compile(r"(pl94|dhc)_us_\w+")  # settings of 2020 whose spine has these

# Blocks of water whose records were moved in tabulation, after they were measured: where they are published.
_MOVED = SHIPPED / "production" / "blocks_moved_2020.csv"
MOVED_IN_TABULATION = dict(line.split(",") for line in _MOVED.read_text(encoding="utf-8").splitlines()[1:])


def block_geoid(code: str) -> str:
    """The 15-digit GEOID at the end of a block's spine code, empty if there is none."""
    tabulation = code[-TABULATION_WIDTH:]
    return tabulation[:11] + tabulation[12:] if len(code) >= TABULATION_WIDTH else ""


def are_geoids(codes: Sequence[str]) -> bool:
    """Whether geocodes of a spine are GEOIDs themselves: each has as many digits as those of some kind."""
    plain = (code for code in codes if code and TOGETHER not in code)
    return all(len(code) in KINDS and code.isascii() and code.isdigit() for code in plain)


def geoids_of(codes: Sequence[str] | pl.Series, themselves: bool) -> pl.Series:
    """The GEOIDs of geounits by their geocodes, those of 2020 or GEOIDs `themselves`; empty where a code holds none."""
    geocodes = pl.Series(codes, dtype=pl.String).alias("code")
    if themselves:
        return geocodes
    code = pl.col("code")
    block = pl.concat_str(code.str.slice(-TABULATION_WIDTH, 11), code.str.slice(-4))
    county = pl.concat_str(code.str.slice(1, 2), code.str.slice(5, 3))
    found = (
        pl.when(~code.str.contains(r"^[0-9]+$"))
        .then(pl.lit(""))
        .when(code.str.len_chars() >= TABULATION_WIDTH)
        .then(block)
        .when(code.str.contains(STATE))
        .then(code.str.slice(1))
        .when(code.str.contains(COUNTY))
        .then(county)
        .otherwise(pl.lit(""))
    )
    return geocodes.to_frame().select(found.alias("code")).to_series()


def published(geoids: pl.Series) -> pl.Series:
    """GEOIDs of blocks that were moved in tabulation replaced by those under which they are published."""
    return geoids.replace(MOVED_IN_TABULATION)


class Outside:
    """The geounits of files that are not taken, of the states of which some are.

    Parameters
    ----------
    within : sequence of str or None
        Prefixes of the geocodes of those that are.
    """

    def __init__(self, within: Sequence[str] | None) -> None:
        self._within = within or ()
        self._every = any(len(prefix) < len("044") for prefix in self._within)
        self._states, self._starts = ({own[cut] for own in self._within} for cut in (slice(1, 3), slice(2)))
        self._found = pl.DataFrame(schema={"is_block": pl.Boolean, "code": pl.String})

    def add(self, codes: pl.Series) -> None:
        """Take note of geocodes, but for those above what is taken, which are whole if all below them is."""
        above = [pl.lit(prefix).str.starts_with(pl.col("code")) for prefix in self._within]
        found = pl.DataFrame({"is_block": codes.str.len_chars() >= TABULATION_WIDTH, "code": codes})
        found = found.filter(~pl.any_horizontal(above))
        if not self._every:
            start = ~pl.col("is_block") & pl.col("code").str.slice(0, 2).is_in(self._starts)
            found = found.filter(pl.col("code").str.slice(1, 2).is_in(self._states) | start)
        blocks = found["code"].zip_with(~found["is_block"], geoids_of(found["code"], False))
        self._found = pl.concat([self._found, found.with_columns(code=blocks)]).unique()

    def cutting(self, codes: Sequence[str], leaves: Sequence[str], settings: str) -> PlacesInPart:
        """The places that are held in part.

        Parameters
        ----------
        codes : sequence of str
            Geocodes of what is taken.
        leaves : sequence of str
            Those of them without others below.
        settings : str
            The name of the settings, of which those of 2020 say which states have two branches.
        """
        if self._found.is_empty() and not OF_THE_UNITED_STATES.fullmatch(settings):
            return PlacesInPart()
        themselves = are_geoids(codes)
        rest = self._found.filter(~pl.col("is_block"))["code"]
        geoids = published(pl.concat([self._found.filter("is_block")["code"], geoids_of(rest, themselves)]))
        inside = published(geoids_of(leaves, themselves))
        named = dict(sorted(zip(geoids_of(rest, themselves), rest, strict=True), reverse=True))
        cut = {
            geoid: "" if themselves else named.get(geoid, "")
            for width in KINDS
            for geoid in sorted(set(_prefixes(inside, width)) & set(_prefixes(geoids, width)))
            if geoid
        }
        if themselves or not OF_THE_UNITED_STATES.fullmatch(settings):
            return PlacesInPart(cut)
        branches = {code[:3] for code in (*leaves, *rest)}
        whole = {f"{area}{state}" for state in _prefixes(inside, 2) for area in ("01" if state in WITH_AREAS else "0")}
        return PlacesInPart(cut, tuple(sorted(whole - branches)))


def _prefixes(geoids: pl.Series, width: int) -> list[str]:
    return geoids.filter(geoids.str.len_chars() >= width).str.slice(0, width).unique().to_list()

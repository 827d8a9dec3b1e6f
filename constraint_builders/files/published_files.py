"""Files of published counts, and of names of places: a row for each place, lines of published tables in columns.

They are those of data.census.gov, whose second row holds labels, any table that names its lines as `published_name`
reads them, and the segments of the redistricting files of 2020 (``ri000012020.pl``), which have no header and whose
places stand in another file beside them (``rigeo2020.pl``).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from constraint_builders.description.geo_ids import KINDS, geoid_in
from constraint_builders.files.columns import plain_name
from constraint_builders.files.naming import naming, shown
from constraint_builders.files.numbers import LARGEST, NotANumberError, read_codes, read_labels, read_numbers
from constraint_builders.files.published_tables import BELOW, published_name
from constraint_builders.files.source import open_source
from constraint_builders.opening import open_file, read_whole

GEOIDS = re.compile(r"geo_?id(\d\d|fq)?|geocode|geoid_?\w*")
NAMES = re.compile(r"name|name(lsad)?\d*|geo_?name|basename|place_?name")
SEGMENT, GEOGRAPHY = re.compile(r"([a-z]{2})0000([123])2020\.pl"), "{}geo2020.pl"
OF_SEGMENTS = {"1": {"P1": 71, "P2": 73}, "2": {"P3": 71, "P4": 73, "H1": 3}, "3": {"P5": 10}}
BEFORE = 5  # columns of a segment before its counts, of which the last is the number of the record
RECORD, GEOID, NAME, WIDTH = 7, 8, 87, 97  # columns of the geography


@dataclass(frozen=True)
class PublishedFile:
    """What a file says of places.

    Attributes
    ----------
    counts : polars.DataFrame
        Columns ``geoid``, and one for each line, named such as ``"P12_003N"``.
    names : mapping of str to str
        Of places, by their GEOIDs; empty where the file has none.
    others : int
        Rows of places that are none of `KINDS`, towns for instance.
    """

    counts: pl.DataFrame
    names: dict[str, str]
    others: int = 0

    @property
    def lines(self) -> list[str]:
        """The lines that it counts."""
        return self.counts.columns[1:]


def read_published(path: str | os.PathLike[str]) -> PublishedFile:
    """Read published counts by place, or names of places.

    Parameters
    ----------
    path : path
        A table, or a segment of a redistricting file.

    Raises
    ------
    ValueError
        If no column holds GEOIDs, one is there twice, or a count is no number. The message names the file.
    OSError
        If it cannot be opened.
    """
    segment = SEGMENT.fullmatch(Path(path).name.lower())
    if segment is not None:
        return _read_segment(Path(path), segment[1], segment[2])
    frame = open_source(path).frame
    with naming(path):
        key = next((name for name in frame.columns if GEOIDS.fullmatch(plain_name(name))), None)
        if key is None:
            there = ", ".join(map(repr, frame.columns[:6])) or "none"
            raise ValueError(f"there is no column of GEOIDs such as 'GEO_ID' or 'geoid': there are {there}")
        return _read(frame, key, next((name for name in frame.columns if NAMES.fullmatch(plain_name(name))), None))


def _read(frame: pl.DataFrame, key: str, name: str | None) -> PublishedFile:
    codes = read_codes(frame[key]).fill_null("")
    geoids = pl.Series("geoid", [_geoid(code) for code in codes], dtype=pl.String)
    kept = geoids.is_not_null()
    frame, geoids = frame.filter(kept), geoids.filter(kept)
    if geoids.is_duplicated().any():
        raise ValueError(f"GEOID {geoids.filter(geoids.is_duplicated())[0]!r} is in several rows: give each place once")
    columns = {"geoid": geoids}
    for own in frame.columns:
        line = published_name(own)
        if "_" in line and BELOW not in line:
            if line in columns:
                raise ValueError(f"line {line} is in two columns, the second {own!r}: leave one out")
            columns[line] = _numbers(frame[own]).alias(line)
    names = {} if name is None else dict(zip(geoids, read_labels(frame[name]).fill_null(""), strict=True))
    return PublishedFile(pl.DataFrame(columns), names, int((~kept & codes.str.contains(r"\d")).sum()))


def _geoid(code: str) -> str | None:
    """The GEOID in a code, "US" for the nation, or None if it is no place of `KINDS`."""
    own = geoid_in(code)
    if own is None and len(code) in KINDS and code.isascii() and code.isdigit():
        own = code
    return own if own is None else own or "US"


def _numbers(column: pl.Series) -> pl.Series:
    try:
        counts = pl.Series(read_numbers(column), nan_to_null=True)
    except NotANumberError as error:
        raise ValueError(f"column {column.name!r}: {error}") from None
    wrong = column.filter(~counts.is_between(0, LARGEST).fill_null(True))
    if wrong.len():
        raise ValueError(
            f"column {column.name!r} holds {shown(wrong[0])}: a count is a number from 0 to {LARGEST:,.0f}"
        )
    return counts


def _read_segment(path: Path, state: str, number: str) -> PublishedFile:
    lines = [f"{table}_{i:03}N" for table, size in OF_SEGMENTS[number].items() for i in range(1, size + 1)]
    counts, places = _columns(path, BEFORE + len(lines)), _columns(path.with_name(GEOGRAPHY.format(state)), WIDTH)
    with naming(path):
        record = counts.columns[BEFORE - 1]
        counts = counts.rename(dict(zip(counts.columns[BEFORE:], lines, strict=True)))
        chosen = places.select(pl.nth(RECORD).alias(record), pl.nth(GEOID).alias("geoid"), pl.nth(NAME).alias("name"))
        joined = chosen.join(counts, on=record, how="inner", validate="1:1", maintain_order="left")
        if joined.height != counts.height or joined.height != places.height:
            raise ValueError(f"its records are not those of {GEOGRAPHY.format(state)}: take both from one release")
        return _read(joined.select("geoid", "name", *lines), "geoid", "name")


def _columns(path: Path, width: int) -> pl.DataFrame:
    """The columns of a file of a release, whose names are not in UTF-8."""
    with open_file(path) as file, naming(path):
        text = read_whole(file).decode("latin-1").encode()
        frame = pl.read_csv(text, separator="|", has_header=False, infer_schema=False, quote_char=None)
        if frame.width != width:
            raise ValueError(f"it has {frame.width} columns, not {width}: is it a redistricting file of 2020?")
        return frame

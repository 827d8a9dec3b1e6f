"""Files of published counts, and of names of places: a row for each place, lines of published tables in columns.

They are those of data.census.gov, whose second row holds labels, any table that names its lines as `published_name`
reads them, and the segments of the Census Bureau's own files of 2020, redistricting (``ri000012020.pl``) and
demographic (``ri000052020.dhc``), which have no header and whose places stand in another file beside them
(``rigeo2020.pl``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl

from constraint_builders.description.geo_ids import (
    NATION,
    SUMMARY_LEVELS,
    WIDTHS,
    geoid_of,
    kind_of_geo_id,
    may_be_county,
)
from constraint_builders.files.columns import plain_name
from constraint_builders.files.naming import naming
from constraint_builders.files.numbers import read_codes, read_labels
from constraint_builders.files.published_tables import BELOW, published_name, published_tables
from constraint_builders.files.schema_file import parse_document
from constraint_builders.files.source import Source, open_source
from constraint_builders.opening import SHIPPED, open_file, read_whole

GEOIDS = re.compile(r"geo_?id(fq)?(\d\d)?|geocode")
LEVELS = re.compile(r"sum(mary)?_?lev(el)?")
NAMES = re.compile(r"name|name(lsad)?\d*|geo_?name|basename|place_?name")
SEGMENT, GEOGRAPHY = re.compile(r"([a-z]{2})000(\d\d)2020\.(pl|dhc)"), "{}geo2020.{}"
SITE_LABELS, SITE_BELOW = "Geography", "!!"  # of data.census.gov: the row of labels, and between labels of a path
PRODUCTS_IN = {"pl": ("pl94_persons", "pl94_units"), "dhc": ("dhc_persons", "dhc_households", "dhc_tenvacgq")}
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
    others : tuple of str
        Codes of the rows of places that are no state, county, tract or part of one, towns for instance.
    labels : mapping of str to str
        What lines are called in the file, or in the tables that it is known to hold; empty where it does not say.
    """

    counts: pl.DataFrame
    names: dict[str, str]
    others: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[str]:
        """The lines that it counts."""
        return self.counts.columns[1:]


def read_published(path: str | os.PathLike[str]) -> PublishedFile:
    """Read published counts by place, or names of places.

    Parameters
    ----------
    path : path
        A table, or a segment of the files of 2020, of which tables that are not known are left out.

    Raises
    ------
    ValueError
        If no column holds GEOIDs, one of five digits is no county's or one is there twice, a count is no number, or a
        segment has no table that is known. The message names the file.
    OSError
        If it cannot be opened.
    """
    segment = SEGMENT.fullmatch(Path(path).name.lower())
    if segment is not None:
        return _read_segment(Path(path), *segment.groups())
    source = open_source(path)
    frame = source.frame
    with naming(path):
        keys = [name for name in frame.columns if GEOIDS.fullmatch(plain_name(name))]
        long = [name for name in keys if any(kind_of_geo_id(str(code)) for code in frame[name])]
        key = next(iter(long + keys), None)  # long forms say of what kind a place is
        if key is None:
            there = ", ".join(map(repr, frame.columns[:6])) or "none"
            raise ValueError(f"there is no column of GEOIDs such as 'GEO_ID' or 'geoid': there are {there}")
        return _read(source, key, _column(frame, NAMES))


def _column(frame: pl.DataFrame, called: re.Pattern[str]) -> str | None:
    return next((name for name in frame.columns if called.fullmatch(plain_name(name))), None)


def _read(source: Source, key: str, name: str | None) -> PublishedFile:
    frame = source.frame
    codes = read_codes(frame[key]).fill_null("")
    geoids = pl.Series("geoid", [geoid_of(code) for code in codes], dtype=pl.String)
    level = _column(frame, LEVELS)
    if level is not None:  # districts have as many digits as counties
        digits = read_labels(frame[level]).str.zfill(3).replace_strict(SUMMARY_LEVELS, default=-1)
        geoids = geoids.set((digits != geoids.replace(NATION, "").str.len_chars()).fill_null(True), None)
    else:
        short = codes.filter((codes == geoids) & (codes.str.len_chars() == WIDTHS["county"]))
        if (strange := next((own for own in short if not may_be_county(own)), None)) is not None:
            raise ValueError(
                f"column {key!r} holds {strange!r}, which is no county: five digits may be ZIP codes or districts; "
                "give a column SUMLEV, 050 for counties, or GEO_IDs such as '0500000US44007'"
            )
    others = codes.filter(geoids.is_null() & codes.str.contains(r"\d"))
    if geoids.is_null().all() and others.len():
        raise ValueError(
            f"column {key!r} holds no GEOIDs: {others[0]!r} is that of no state, county, tract, block group or block; "
            "leading zeros belong to it"
        )
    kept, heads = geoids.is_not_null(), frame.filter(codes == SITE_LABELS).head(1)
    source, geoids = source.kept(kept), geoids.filter(kept)
    frame = source.frame
    if geoids.is_duplicated().any():
        raise ValueError(f"GEOID {geoids.filter(geoids.is_duplicated())[0]!r} is in several rows: give each place once")
    named: dict[str, str] = {}
    for own in frame.columns:
        line = published_name(own)
        if "_" in line and BELOW not in line:
            if line in named:
                raise ValueError(f"line {line} is in two columns, the second {own!r}: leave one out")
            named[line] = own
    counted = dict(zip(named, source.counts([*named.values()], may_be_empty=True), strict=True))
    counts = pl.DataFrame({"geoid": geoids, **counted}).with_columns(pl.col(list(counted)).fill_nan(None))
    said = [(line, own, str(text)) for line, own in named.items() for text in heads[own]]
    labels = {line: text.rpartition(SITE_BELOW)[2].strip().removesuffix(":") for line, own, text in said}
    names = {} if name is None else dict(zip(geoids, read_labels(frame[name]).fill_null(""), strict=True))
    return PublishedFile(counts, names, tuple(others), labels)


@cache
def _segments() -> dict[str, dict[str, str]]:
    """By the ending of files, and the number of a segment, its tables, each with the number of its lines."""
    text = (SHIPPED / "published" / "segments.toml").read_text(encoding="utf-8")
    return parse_document(text, dict[str, dict[str, str]])


def _read_segment(path: Path, state: str, number: str, ending: str) -> PublishedFile:
    geography = GEOGRAPHY.format(state, ending)
    with naming(path):
        listed = _segments()[ending].get(str(int(number)))
        if listed is None:
            raise ValueError(f"there is no segment {number}: they are 01 to {len(_segments()[ending]):02}")
        tables = [table.split(":") for table in listed.split()]
        lines = [f"{table}_{i:03}N" for table, size in tables for i in range(1, int(size) + 1)]
        products = [published_tables(product).tables for product in PRODUCTS_IN[ending]]
        labels = {line.code: line.label for own in products for table in own.values() for line in table.lines}
        known = [line for line in lines if line in labels]
        if not known:
            names = ", ".join(table for table, _ in tables)
            raise ValueError(f"its tables, {names}, are not among those that can be asked for: give another segment")
    counts, places = _columns(path, BEFORE + len(lines)), _columns(path.with_name(geography), WIDTH)
    with naming(path):
        record = counts.columns[BEFORE - 1]
        counts = counts.rename(dict(zip(counts.columns[BEFORE:], lines, strict=True)))
        other = counts.filter(pl.nth(BEFORE - 2).cast(pl.Int64, strict=False).ne_missing(int(number)))
        if other.height:
            said = str(other[0, BEFORE - 2])
            raise ValueError(f"its records are those of segment {said!r}, and its name says {number}: was it renamed?")
        chosen = places.select(pl.nth(RECORD).alias(record), pl.nth(GEOID).alias("geoid"), pl.nth(NAME).alias("name"))
        joined = chosen.join(counts, on=record, how="inner", validate="1:1", maintain_order="left")
        if joined.height != counts.height or joined.height != places.height:
            raise ValueError(f"its records are not those of {geography}: take both from one release")
        found = Source(joined.select("geoid", "name", *known), np.arange(1, joined.height + 1), "|")
        own = _read(found, "geoid", "name")
        return replace(own, labels={line: labels[line] for line in known})


def _columns(path: Path, width: int) -> pl.DataFrame:
    """The columns of a file of a release, whose names may be in UTF-8 and may not."""
    with open_file(path) as file, naming(path):
        text = read_whole(file)
        try:
            text.decode()
        except UnicodeDecodeError:
            text = text.decode("latin-1").encode()
        frame = pl.read_csv(text, separator="|", has_header=False, infer_schema=False, quote_char=None)
        if frame.width != width:
            raise ValueError(f"it has {frame.width} columns, not {width}: is it a file of 2020?")
        return frame

"""Tables with a row or more for each block: true counts, as a simulation needs them, and places that blocks lie in."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.files.columns import plain_name
from constraint_builders.files.labels import refuse_alike
from constraint_builders.files.naming import listed, naming, shown
from constraint_builders.files.numbers import read_codes, read_labels
from constraint_builders.files.reading_report import Remark
from constraint_builders.files.source import Source, open_whole

GEOID_COLUMNS = ("geoid", "geocode")
COUNT_COLUMN = "count"
PLACE = "place"
CODES = ("geocode", "geoid", "geounit", "block")
SHARES = re.compile(r"shares?|weights?|fraction|proportion|afact|allocation_factor|percent(age)?|pct|.*_(share|weight)")
ONE_OF_EACH = re.compile(r"(county|state|region|province|place).*")  # a place rarely lies in two of these


def read_block_counts(path: str | os.PathLike[str], schema: Schema) -> tuple[list[str], Float]:
    """Read true counts by block from a CSV (also compressed) or Parquet file.

    The column ``geoid`` or ``geocode`` names the block. Counts come in either of two forms:

    - wide: one row a block, one column for every cell, named by the labels of its levels, in the order of the
      variables, joined by ``_``: ``adult_white``;
    - long: one column for every variable, holding a level's label, and ``count``. Rows of one cell add up, cells
      without a row are 0; a block without people may have a row with count 0 and anything in the other columns.

    Parameters
    ----------
    path : path
    schema : Schema

    Returns
    -------
    geoids : list of str
        In order of the alphabet.
    counts : ndarray, (blocks, *schema.shape)

    Raises
    ------
    ValueError
        If a column is missing, a label is unknown, a count is no number of 0 to 2^53, or a block of a wide file is
        given twice. The message names the file, the column and the row.
    OSError
        If the file cannot be opened.
    """
    source = open_whole(path)
    frame = source.frame
    with naming(path):
        key = next((name for name in GEOID_COLUMNS if name in frame.columns), None)
        if key is None:
            raise ValueError(f"there is no column {' or '.join(map(repr, GEOID_COLUMNS))} to name the blocks")
        codes = source.filled(read_codes(frame[key]), ": every row needs a block")
        if frame.is_empty():
            raise ValueError(f"column {key!r} is empty: every row needs a block")
        source = replace(source, frame=frame.with_columns(codes))
        return _long(source, key, schema) if COUNT_COLUMN in frame.columns else _wide(source, key, schema)


def _wide(source: Source, key: str, schema: Schema) -> tuple[list[str], Float]:
    frame = source.frame
    names = ["_".join(own) for own in product(*map(schema.labels_of, schema.names))]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(
            f"column {missing[0]!r} is missing: give each of the {len(names):,} cells a column, or one to each of "
            f"{', '.join(schema.names)}, and {COUNT_COLUMN!r}"
        )
    extra = [name for name in frame.columns if name not in (key, *names)]
    if extra:
        raise ValueError(f"column {extra[0]!r} is no cell of the schema")
    repeated = frame[key].is_duplicated()
    if repeated.any():
        block, row = frame[key].filter(repeated)[0], source.row_of(repeated)
        raise ValueError(f"block {block!r} is given twice, first in row {row}")
    counts = np.stack(source.counts(names), axis=1)
    order = frame[key].arg_sort()
    return frame[key].gather(order).to_list(), counts[order.to_numpy()].reshape(-1, *schema.shape)


def _long(source: Source, key: str, schema: Schema) -> tuple[list[str], Float]:
    frame = source.frame
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing: give one for each of {', '.join(schema.names)}")
    (counts,) = source.counts([COUNT_COLUMN])
    geoids = frame[key].unique().sort()
    blocks = frame[key].cast(pl.Enum(geoids)).to_physical().to_numpy()
    counted = np.flatnonzero(counts > 0)
    cells = [_levels(source, schema, name, counted) for name in schema.names]
    result = np.zeros((geoids.len(), *schema.shape))
    np.add.at(result, (blocks[counted], *cells), counts[counted])
    return geoids.to_list(), result


def _levels(source: Source, schema: Schema, name: str, rows: np.ndarray) -> np.ndarray:
    """The level in some rows, (k,), of a variable's column."""
    numbers = {label: number for number, label in enumerate(schema.labels_of(name))}
    labels = read_labels(source.frame[name]).gather(rows)
    found = labels.replace_strict(numbers, default=-1, return_dtype=pl.Int64).to_numpy()
    if found.size and found.min() < 0:
        worst = int(found.argmin())
        known = listed(numbers)
        place = f"row {source.rows[rows[worst]]}: column {name!r}"
        raise ValueError(f"{place} has no level {shown(labels[worst])}: there are {known}")
    return found


def read_places(
    path: str | os.PathLike[str], remark: Callable[[Remark], object] = lambda _: None
) -> dict[str, list[str]]:
    """Read which geounits lie in which place.

    Parameters
    ----------
    path : path
        A table with a row for each geounit of each place: columns ``place`` and ``geocode`` (or ``geoid``, ``geounit``,
        ``block``). Rows without a place, and other columns, are left out; a geounit may be in several places.
    remark : callable
        Is given what was left out, and what is doubtful.

    Returns
    -------
    dict of str to list of str
        The geocodes of every place, places in order of first appearance.

    Raises
    ------
    ValueError
        If a column is missing, a geocode is, it is twice in one place, or no row has a place; if places are named once,
        as in merged cells, or in two ways; if a column says what share of a geounit lies in a place.
    OSError
        If the file cannot be opened.
    """
    source = open_whole(path)
    with naming(path):
        columns = {plain_name(name): name for name in source.frame.columns}
        code = next((name for name in CODES if name in columns), None)
        if PLACE not in columns or code is None:
            there = listed(source.frame.columns)
            missing = repr(PLACE) if PLACE not in columns else " or ".join(map(repr, CODES))
            raise ValueError(f"column {missing} is missing: there are {there}; give a row for each block of each place")
        names, codes = (read_labels(source.frame[columns[own]]).str.strip_chars() for own in (PLACE, code))
        places: dict[str, dict[str, int]] = {}
        for name, geocode, row in zip(names, codes, source.rows.tolist(), strict=True):
            if not name:
                continue
            if not geocode:
                raise ValueError(f"column {columns[code]!r} is empty in row {row}: give the geocode")
            first = places.setdefault(name, {}).setdefault(geocode, row)
            if first != row:
                raise ValueError(f"place {name!r} has {geocode!r} twice, in rows {first} and {row}: give it once")
        if not places:
            raise ValueError("no row has a place: give a row for each block of each place")
        refuse_alike(places, f"column {columns[PLACE]!r}")
        left = (names.fill_null("") == "").to_numpy()
        if left.any() and not left[0] and max(map(len, places.values())) == 1:
            raise ValueError(
                f"row {source.rows[left][0]} has no place, and each is named once, as in merged cells: name it in "
                "every row, and leave out rows that lie in none"
            )
        if left.any():
            rows = "1 row" if left.sum() == 1 else f"{left.sum():,} rows"
            remark(Remark("left out", f"{rows} without a place, row {source.rows[left][0]} first"))
        for column in source.frame.drop(columns[PLACE], columns[code]).filter(~left):
            _refuse_shares(column)
            if ONE_OF_EACH.fullmatch(plain_name(column.name)):
                _ask_of_two(names.filter(~left), column, remark)
    return {name: list(codes) for name, codes in places.items()}


def _numbers(column: pl.Series) -> pl.Series:
    text = column.cast(pl.String, strict=False).drop_nulls().str.strip_chars().str.strip_suffix("%")
    return text.str.replace(",", ".").cast(pl.Float64, strict=False)


def says_shares(column: pl.Series) -> bool:
    """Whether a column has the name of shares, and not all say 1 or 100."""
    return bool(SHARES.fullmatch(plain_name(column.name))) and not _numbers(column).is_in([1.0, 100.0]).all()


def _refuse_shares(column: pl.Series) -> None:
    """Refuse shares by name, and numbers of 0 to 1 that are not all whole."""
    numbers = _numbers(column)
    is_share = not numbers.has_nulls() and numbers.is_between(0, 1).all() and (numbers.floor() < numbers).any()
    if is_share or says_shares(column):
        raise ValueError(
            f"column {column.name!r} says what share of a block lies in a place, and blocks are counted whole: keep "
            "rows of those that count, without the column"
        )


def _ask_of_two(names: pl.Series, column: pl.Series, remark: Callable[[Remark], object]) -> None:
    """Remark on the first place of which a column says two things."""
    said = pl.DataFrame({"place": names, "said": column}).drop_nulls().unique(maintain_order=True)
    for place, both in said.group_by("place", maintain_order=True).agg("said").rows():
        if len(both) > 1:
            what = f"place {shown(place)} has {shown(both[0])} and {shown(both[1])} in column {column.name!r}"
            remark(Remark("doubt", f"{what}: are they two places of one name?"))
            return

"""Places that need not be geounits of a spine, each given by the geounits in it, from a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import polars as pl

from constraint_builders.files.columns import plain_name
from constraint_builders.files.labels import refuse_alike
from constraint_builders.files.naming import naming, shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.remarks import Remark
from constraint_builders.files.source import open_source

PLACE = "place"
CODES = ("geocode", "geoid", "geounit", "block")
SHARES = re.compile(r"shares?|weights?|fraction|proportion|afact|allocation_factor|percent(age)?|pct|.*_(share|weight)")
ONE_OF_EACH = re.compile(r"(county|state|region|province|place).*")  # a place rarely lies in two of these


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
    source = open_source(path)
    with naming(path):
        columns = {plain_name(name): name for name in source.frame.columns}
        code = next((name for name in CODES if name in columns), None)
        if PLACE not in columns or code is None:
            there = ", ".join(map(repr, source.frame.columns)) or "none"
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


def _refuse_shares(column: pl.Series) -> None:
    """Refuse numbers of 0 to 1, not all whole, or that have the name of shares and do not all say 1 or 100."""
    text = column.cast(pl.String, strict=False).drop_nulls().str.strip_chars().str.strip_suffix("%")
    numbers = text.str.replace(",", ".").cast(pl.Float64, strict=False)
    is_share = not numbers.has_nulls() and numbers.is_between(0, 1).all() and (numbers.floor() < numbers).any()
    if is_share or (SHARES.fullmatch(plain_name(column.name)) and not numbers.is_in([1.0, 100.0]).all()):
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

"""Places that need not be geounits of a spine, each given by the geounits in it, from a file."""

from __future__ import annotations

import os

from constraint_builders.files.columns import plain_name
from constraint_builders.files.naming import naming
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import open_source

PLACE = "place"
CODES = ("geocode", "geoid", "geounit", "block")


def read_places(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read which geounits lie in which place.

    Parameters
    ----------
    path : path
        A table with a row for each geounit of each place: columns ``place`` and ``geocode`` (or ``geoid``, ``geounit``,
        ``block``). Rows without a place, and other columns, are left out; a geounit may be in several places.

    Returns
    -------
    dict of str to list of str
        The geocodes of every place, places in order of first appearance.

    Raises
    ------
    ValueError
        If a column is missing, a geocode is, it is twice in one place, or no row has a place.
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
    return {name: list(codes) for name, codes in places.items()}

"""Totals of geounits that are known exactly, from a file beside the measurements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from constraint_builders.description.spine import Spine
from constraint_builders.files.naming import naming
from constraint_builders.files.numbers import NotANumberError, decimal_mark, read_codes, read_numbers
from constraint_builders.files.source import Source, open_source

GEOCODE, TOTAL = "geocode", "total"
TOGETHER = "+"  # between the codes of geounits that are counted together


class ExactTotal(NamedTuple):
    """A total that is known exactly.

    Attributes
    ----------
    codes : tuple of str
        Of the geounit, or of geounits that are counted together.
    total : float
    place : str
        The file and the row, for messages.
    together : str
        Name of a geolevel at which geounits that are counted together become one, if they are not all children of
        theirs; by default that is refused.
    """

    codes: tuple[str, ...]
    total: float
    place: str
    together: str = ""


def read_totals(path: str | os.PathLike[str]) -> list[ExactTotal]:
    """Read totals that are known exactly, such as the population of every state.

    Parameters
    ----------
    path : path
        A ``.csv`` or ``.parquet`` file with the columns ``geocode`` and ``total``. A state that a spine cuts in two is
        named by both codes, ``044+144``.

    Raises
    ------
    ValueError
        If a column is missing, a code is given twice, or a total is no whole number of 0 or more.
    OSError
        If the file cannot be opened.
    """
    with naming(path):
        found = [
            ExactTotal(tuple(part.strip() for part in codes.split(TOGETHER)), total, f"{os.fspath(path)}, row {row}")
            for codes, total, row in read_exact(path, GEOCODE)
        ]
    first: dict[str, ExactTotal] = {}
    for own in found:
        for code in own.codes:
            if first.setdefault(code, own) is not own:
                raise ValueError(f"{own.place}: geocode {code!r} is given twice, first in {first[code].place}")
    return found


def read_exact(path: str | os.PathLike[str], name: str) -> list[tuple[str, float, int]]:
    """Codes and totals of a file, with their rows.

    Parameters
    ----------
    path : path
    name : str
        Of the column of codes.

    Raises
    ------
    ValueError
        If a column is missing, codes are no text, or a total is no whole number of 0 or more.
    OSError
        If the file cannot be opened.
    """
    source = open_source(path)
    for column in (name, TOTAL):
        if column not in source.frame.columns:
            there = ", ".join(map(repr, source.frame.columns)) or "none"
            raise ValueError(f"column {column!r} is missing: there are {there}")
    if source.frame.is_empty():
        raise ValueError(f"there are no rows: give a {name} and its total in each")
    return list(zip(read_codes(source.frame[name]).fill_null(""), _totals(source), source.rows, strict=True))


def _totals(source: Source) -> list[float]:
    column = source.frame[TOTAL]
    try:
        totals = read_numbers(column, decimal_mark([column], source.delimiter))
    except NotANumberError as error:
        raise ValueError(f"row {source.rows[error.row]}: total {error}") from None
    wrong = ~(np.isfinite(totals) & (totals >= 0) & (totals == np.rint(totals)))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"row {source.rows[row]}: total {column[row]!r} is no count: give a whole number of 0 or more")
    return totals.tolist()


def with_sums(spine: Spine, totals: Sequence[ExactTotal]) -> Spine:
    """The spine, with a geounit above those that are counted together, where they are some children of one.

    It is at the geolevel that the total names, and its code is theirs, joined by ``+``.
    """
    parent, levels = spine.parent.tolist(), [spine.levels[own] for own in spine.level_of]
    codes = list(spine.geocodes)
    for known in totals:
        if not known.together or len(known.codes) < 2:
            continue
        units = [i for i, code in enumerate(spine.geocodes) if code in known.codes]
        above = {parent[unit] for unit in units}
        if len(units) != len(known.codes) or len(above) > 1 or len(units) == spine.child_counts[min(above)]:
            continue  # for `totals_by_geounit` to find, or to refuse
        for unit in units:
            parent[unit] = len(parent)
        parent.append(min(above))
        levels.append(known.together)
        codes.append(TOGETHER.join(known.codes))
    return spine if len(codes) == spine.size else Spine(parent, levels, codes)


def totals_by_geounit(totals: Sequence[ExactTotal], spine: Spine) -> dict[int, ExactTotal]:
    """What is known of every geounit whose total is known, by its position in the spine.

    Geounits that are counted together must be all children of one, whose total it then is.

    Raises
    ------
    ValueError
        If there is no geounit of a code, or several, geounits are not all children of one, or two totals are of one.
    """
    alike: dict[str, list[int]] = {}
    for position, code in enumerate(spine.geocodes if totals else ()):
        alike.setdefault(code, []).append(position)
    found: dict[int, ExactTotal] = {}
    for known in totals:
        units = [_only(alike.get(code, []), code, known.place, spine) for code in known.codes]
        unit = units[0] if len(units) == 1 else _parent_of_all(units, known, spine)
        first = found.setdefault(unit, known)
        if first is not known:
            raise ValueError(f"{known.place}: this total is also that of {first.place}: give it once")
    return found


def _only(found: Sequence[int], code: str, place: str, spine: Spine) -> int:
    if not found:
        raise ValueError(f"{place}: no geounit has the geocode {code!r}")
    if len(found) > 1:
        levels = " and ".join(spine.levels[spine.level_of[i]] for i in found)
        raise ValueError(f"{place}: the geocode {code!r} is that of geounits at {levels}")
    return found[0]


def _parent_of_all(units: Sequence[int], known: ExactTotal, spine: Spine) -> int:
    above = {int(spine.parent[unit]) for unit in units}
    if len(above) > 1 or len(units) < spine.child_counts[next(iter(above))]:
        codes = TOGETHER.join(known.codes)
        raise ValueError(f"{known.place}: {codes} are not all children of one geounit, so no geounit has this total")
    return above.pop()

"""Totals of geounits that are known exactly, from a file beside the measurements or as published of the states.

They are compared with all that measurements and their bounds say of them. A state is one geounit, or two: its American
Indian and Alaska Native areas, and the rest. The last two characters of their geocodes are the state's code. The sum of
two branches becomes a geounit of its own, above them, at the geolevel `WHOLE_STATE`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from constraint_builders.arrays import Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.files.measurement_files import geocodes_in, level_folders
from constraint_builders.files.naming import listed, naming
from constraint_builders.files.numbers import read_codes
from constraint_builders.files.settings import Settings
from constraint_builders.files.source import open_whole
from constraint_builders.files.tabulated_places import TOGETHER
from constraint_builders.opening import SHIPPED

GEOCODE, TOTAL = "geocode", "total"
ByTable = Mapping[str, Mapping[str, Float]]
BELOW = 2  # generations below a geounit that are looked at: those further down tell little of its total
MOST_DEVIATIONS = {"gaussian": 6.0, "discrete_gaussian": 6.0}  # so far from one total its noise does not come
OF_OTHER_LAWS = 20.0
CENSUS_2020, STATE, WHOLE_STATE = "2020", "State", "Whole_State"
CODE_WIDTH = 2


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


def read_totals(path: str | os.PathLike[str], name: str = GEOCODE) -> list[ExactTotal]:
    """Read totals that are known exactly, such as the population of every state.

    Parameters
    ----------
    path : path
        A ``.csv`` or ``.parquet`` file with the columns ``geocode`` and ``total``. A state that a spine cuts in two is
        named by both codes, ``044+144``.
    name : str, optional
        Of the column of codes.

    Raises
    ------
    ValueError
        If a column is missing, codes are no text or given twice, or a total is no whole number of 0 or more.
    OSError
        If the file cannot be opened.
    """
    with naming(path):
        source = open_whole(path)
        for column in (name, TOTAL):
            if column not in source.frame.columns:
                there = listed(source.frame.columns)
                raise ValueError(f"column {column!r} is missing: there are {there}")
        if source.frame.is_empty():
            raise ValueError(f"there are no rows: give a {name} and its total in each")
        (totals,) = source.counts([TOTAL], whole=True)
        rows = zip(read_codes(source.frame[name]).fill_null(""), totals.tolist(), source.rows, strict=True)
        first: dict[str, ExactTotal] = {}
        found = []
        for codes, total, row in rows:
            parts = tuple(part.strip() for part in codes.split(TOGETHER))
            found.append(ExactTotal(parts, total, f"{os.fspath(path)}, row {row}"))
            for code in parts:
                place = first.setdefault(code, found[-1]).place
                if place != found[-1].place or parts.count(code) > 1:
                    raise ValueError(f"{found[-1].place}: {name} {code!r} is given twice, first in {place}")
        return found


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
        if len(units) != len(known.codes) or len(above) > 1 or min(above) >= spine.size:
            continue  # for `totals_by_geounit` to refuse
        if len(units) == spine.child_counts[min(above)]:
            continue  # for it to find
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


def refuse_doubtful(
    schema: Schema,
    known: ExactTotal,
    position: int,
    spine: Spine,
    variances: ByTable,
    totals: ByTable,
    implied: Mapping[str, Mapping[int, int]],
    noise: str,
) -> None:
    """Refuse a total that cannot be that of its geounit, by what was measured or is known there and below.

    Parameters
    ----------
    schema : Schema
    known : ExactTotal
    position : int
        The geounit, in the spine.
    spine : Spine
    variances, totals : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Of every cell, infinite where it was not measured; and the sum of all cells.
    implied : mapping of geolevel to mapping of int to int
        Totals that bounds imply, by number of geounit, which are not believed where what was measured contradicts them.
    noise : str
        The law.

    Raises
    ------
    ValueError
        If it is not what is known exactly or is implied, or is further from the weighted mean of all tables' sums than
        their noise comes.
    """
    precision = weighted = 0.0
    derived: set[int] = set()
    units = np.array([position])
    for _ in range(1 + BELOW):
        here = spine.level_of[units]
        ranks = {spine.levels[level]: spine.rank_in_level[units[here == level]] for level in np.unique(here).tolist()}
        for count, variance in _sums(schema, ranks, variances, totals):
            if variance > 0:
                precision, weighted = precision + 1 / variance, weighted + count / variance
            elif count != known.total:
                raise _refusal(known, f"what is known exactly adds up to {count:,.0f}")
        said = [implied.get(level, {}).get(rank) for level, own in ranks.items() for rank in own.tolist()]
        whole = [own for own in said if own is not None]
        derived |= {sum(whole)} if said and len(whole) == len(said) else set()
        units = np.flatnonzero(np.isin(spine.parent, units))
    mean, error = (weighted / precision, precision**-0.5) if precision else (known.total, np.inf)
    far = MOST_DEVIATIONS.get(noise, OF_OTHER_LAWS) * error + 0.5
    if abs(known.total - mean) > far:
        raise _refusal(known, f"it was measured as {mean:,.1f} with a standard error of {error:.1f}")
    for total in sorted(derived - {int(known.total)}):
        if abs(total - mean) <= far:
            raise _refusal(known, f"the bounds on persons of every type imply {total:,}")


def _sums(
    schema: Schema, ranks: Mapping[str, Index], variances: ByTable, totals: ByTable
) -> Iterator[tuple[float, float]]:
    """The sum over some geounits, (k,) ranks in each level, of every table that all of them have; and its variance."""
    for name in set.intersection(*(set(variances.get(level, {})) for level in ranks)) if ranks else ():
        variance = sum(float(variances[level][name][own].sum()) for level, own in ranks.items())
        if np.isfinite(variance):
            count = sum(float(totals[level][name][own].sum()) for level, own in ranks.items())
            yield count, parse_table(schema, name).size * variance


def _refusal(known: ExactTotal, found: str) -> ValueError:
    return ValueError(
        f"{known.place}: the total is {known.total:,.0f}, and {found}: no noise explains that; is the total of these "
        "measurements, and of this year, and is all in the folder that it counts?"
    )


class StateTotals(NamedTuple):
    """Totals of the states of a folder of measurements.

    Attributes
    ----------
    totals : tuple of ExactTotal
    left_out : tuple of str
        Of every state whose total is given and not used, why.
    """

    totals: tuple[ExactTotal, ...]
    left_out: tuple[str, ...]


def read_state_totals(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    settings: Settings,
    within: Sequence[str] | None = None,
) -> StateTotals:
    """The exact totals of the states that are taken of a folder of measurements, each with its geounits.

    Parameters
    ----------
    source : str or path
        ``"2020"`` for the resident populations of the Census of 2020, of the 50 states and the District of Columbia; or
        a ``.csv`` or ``.parquet`` file with the columns ``state``, codes of two characters, and ``total``.
    folder, settings, within
        As in `read_noisy_measurements`.

    Raises
    ------
    ValueError
        If the file is wrong, as `read_totals`, the folder has no geounits at the geolevel State, or none of the states
        that are taken whole has a total.
    OSError
        If a file cannot be opened.
    """
    known = _of_states(source)
    branches = _branches(folder, settings)
    found, left_out = [], []
    for state, codes in branches.items():
        taken = [code for code in codes if within is None or any(code.startswith(prefix) for prefix in within)]
        if state not in known:
            continue
        if not taken:
            cut = [prefix for prefix in within or () if any(prefix.startswith(code) for code in codes)]
            if cut:
                left_out.append(f"the total of state {state} is not used: no more than {', '.join(cut)} is taken of it")
            continue
        if len(taken) < len(codes):
            missing = ", ".join(code for code in codes if code not in taken)
            left_out.append(f"the total of state {state} is not used: {missing}, which it counts too, is not taken")
        else:
            found.append(known[state]._replace(codes=tuple(codes), together=WHOLE_STATE))
    if not found and not left_out:
        there = ", ".join(branches)
        raise ValueError(f"{os.fspath(source)}: no total of the states that are taken: the folder has {there}")
    return StateTotals(tuple(found), tuple(left_out))


def _of_states(source: str | os.PathLike[str]) -> dict[str, ExactTotal]:
    """The total of every state, by its code."""
    is_shipped = source == CENSUS_2020
    found = read_totals(SHIPPED / "production" / "state_totals_2020.csv" if is_shipped else source, "state")
    for (state, *others), _, place, _ in found:
        if len(state) != CODE_WIDTH or others:
            raise ValueError(f"{place}: state {state!r} must be its code of two characters, such as 44")
    if is_shipped:
        found = [own._replace(place=f"the state totals of 2020, {own.place.rpartition(', ')[2]}") for own in found]
    return {own.codes[0]: own for own in found}


def _branches(folder: str | os.PathLike[str], settings: Settings) -> dict[str, list[str]]:
    """The geounits of every state, by its code."""
    place = level_folders(folder, settings.geolevels).get(STATE)
    codes = [] if place is None else geocodes_in(place)
    if not codes:
        raise ValueError(f"{os.fspath(folder)}: state totals need its geolevel {STATE!r}, of which there is nothing")
    found: dict[str, list[str]] = {}
    for code in codes:
        found.setdefault(code[-CODE_WIDTH:], []).append(code)
    return dict(sorted(found.items()))

"""The spine that geocodes describe: of a folder of measurements, and of the columns of geographies of a long table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from constraint_builders.arrays import Index
from constraint_builders.description.areas import Places
from constraint_builders.description.geo_ids import geoid_in, kind_of_geo_id
from constraint_builders.description.spine import Spine
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, PARENT, Columns
from constraint_builders.files.numbers import read_codes, read_labels
from constraint_builders.files.reading_report import Remark
from constraint_builders.files.source import Source
from constraint_builders.files.tabulated_places import TOGETHER

ROOT = "Root"
MOST_NAMED = 4  # prefixes in the code of a root that is put in
ROOTS = ("Root", "Whole", "All of it", "Top")  # names for a level above several geounits, the first that is free
CROSSING = ", or give areas= if they cross"
DECIMALS = re.compile(r"\d+\.0*")
SHORTENED = re.compile(r"\d[.,]\d+E\+\d+", re.IGNORECASE)  # by a spreadsheet, of a long number


def spine_of_codes(
    geocodes: Mapping[str, pl.Series], geolevels: Sequence[str], within: Sequence[str] | None = None
) -> tuple[Spine, list[Remark]]:
    """The tree of the geocodes, under a root of its own if there are several at the top.

    The root's code is then that of all that it counts together, joined by ``+``. Where a geounit between others is not
    there, as one that was bypassed may not be, those below it are children of the one above; that is remarked.

    Parameters
    ----------
    geocodes : mapping of str to polars.Series of str
        By geolevel, from the root down; a parent's is a prefix of its children's.
    geolevels : sequence of str
        Those of the settings.
    within : sequence of str, optional
        Prefixes of what is taken.

    Raises
    ------
    ValueError
        If a code begins with none above, or a geounit above the lowest level has none below.
    """
    by_level = {name: codes.to_list() for name, codes in geocodes.items() if codes.len()}
    top = next(iter(by_level))
    several, above = len(by_level[top]) > 1, geolevels.index(top) - 1
    if several or any(not codes.str.starts_with(by_level[top][0]).all() for codes in geocodes.values()):
        by_level = {geolevels[above] if above >= 0 else ROOT: [""], **by_level}
    spine = Spine.from_geocodes(by_level)
    remarks = _left_out(spine, by_level)
    if not several:
        return spine, remarks
    levels = [spine.levels[number] for number in spine.level_of.tolist()]
    return Spine(spine.parent, levels, [_together(within or by_level[top]), *spine.geocodes[1:]]), remarks


def _together(codes: Sequence[str]) -> str:
    shown = codes if len(codes) <= MOST_NAMED else [codes[0], "...", codes[-1]]
    return TOGETHER.join(shown)


def _left_out(spine: Spine, geocodes: Mapping[str, Sequence[str]]) -> list[Remark]:
    """Remarks on geounits above others that are not there.

    Those of which only a root is left whose code is empty, and so begins all, are refused, and those without any below.

    Parameters
    ----------
    spine : Spine
    geocodes : mapping of str to sequence of str
        Of its geounits by geolevel, in its order, from the root down.
    """
    names, remarks = list(geocodes), []
    number = np.repeat(np.arange(len(names)), [len(codes) for codes in geocodes.values()])
    for own in range(2, len(names)):
        units, upper = np.flatnonzero(number == own), names[own - 1]
        parents = spine.parent[units]
        skips, lost = units[number[parents] < own - 1], units[parents == 0]
        if lost.size and not spine.geocodes[0]:
            raise _refusal(upper, geocodes[upper], names[own], units.size, [spine.geocodes[i] for i in lost.tolist()])
        if skips.size:
            first = f"{skips.size:,} of {units.size:,} codes at {names[own]}, {spine.geocodes[skips[0]]!r} first"
            text = f"geounits at {upper} above {first}: nothing was measured of them if these were bypassed"
            remarks.append(Remark("missing", text))
    for own, (upper, codes) in enumerate(list(geocodes.items())[:-1]):
        childless = np.flatnonzero((spine.child_counts == 0) & (number == own))
        if childless.size:
            found = f"{upper} {spine.geocodes[childless[0]]!r} has no geounits below it, as {childless.size:,} in all"
            raise ValueError(f"{found}: {_cause(codes)}")
    return remarks


def _cause(codes: Sequence[str]) -> str:
    """Why none begins with some codes of a level."""
    if any(code.split() != [code] for code in codes if code):
        return "codes there hold spaces, strip them"
    lengths = sorted(set(map(len, codes)))
    if len(lengths) > 1:
        return f"codes there have {' and '.join(map(str, lengths))} characters, some lost leading zeros?"
    return "a partition is missing, or within= should leave it out"


def _refusal(upper: str, above: Sequence[str], lower: str, of: int, lost: Sequence[str]) -> ValueError:
    zeros = (above, [f"0{code}" for code in lost]), ([f"0{code}" for code in above], lost)
    advice = "copy both from one product"
    if any(all(map(set(begin).intersection, map(_beginnings, codes))) for begin, codes in zeros):
        advice = "one of the two lost leading zeros, keep codes as text"
    return ValueError(
        f"{len(lost):,} of {of:,} codes at {lower}, {lost[0]!r} first, begin with none of {upper}, where they are such "
        f"as {above[0]!r}: {advice}"
    )


def _beginnings(code: str) -> list[str]:
    return [code[:width] for width in range(len(code) + 1)]


Geounit = tuple[str, str]  # level and code


@dataclass(frozen=True)
class Geography:
    """Where the rows of a table belong.

    Attributes
    ----------
    places : Spine or Areas
    geounits : ndarray of int, (rows,)
        Position of every row's geounit, or area, among all.
    said : str
        What the places were taken for.
    """

    places: Places
    geounits: Index
    said: str

    @classmethod
    def of(cls, places: Places, rows: pl.DataFrame, said: str) -> Geography:
        """Of rows with the level and the code of a geounit, or an area."""
        levels = pl.Series(GEOLEVEL, places.levels).gather(places.level_of)
        known = pl.DataFrame([levels, pl.Series(GEOCODE, places.geocodes)]).with_row_index("position")
        found = rows.join(known, on=[GEOLEVEL, GEOCODE], how="left", maintain_order="left")
        return cls(places, found["position"].to_numpy().astype(np.intp), said)


def _in_words(spine: Spine, by_parents: bool, is_rooted: bool) -> str:
    """The geolevels from the root down, what tells parents, and the first geounit that has no parent beside it."""
    counts = [f"{own.size:,} {level}" for level, own in zip(spine.levels, spine.members, strict=True)][is_rooted:]
    counts[0] += " side by side" if is_rooted else ""
    told = "by column 'parent'" if by_parents else "by codes that begin with those of their parents"
    return f"{' > '.join(counts)}{f', {told}' if len(counts) > 1 else ''}{_skips(spine)}"


def _skips(spine: Spine) -> str:
    """Which geounits lie beside others of a geolevel above theirs."""
    children = np.flatnonzero(spine.parent >= 0)
    highest = np.full(spine.size, len(spine.levels))
    np.minimum.at(highest, spine.parent[children], spine.level_of[children])
    skips = children[spine.level_of[children] > highest[spine.parent[children]]]
    if not skips.size:
        return ""
    child, parent = int(skips[0]), int(spine.parent[skips[0]])
    names = [f"{spine.levels[spine.level_of[i]]} {spine.geocodes[i]!r}" for i in (child, parent)]
    more = f" and {skips.size - 1:,} more" if skips.size > 1 else ""
    return f"; {names[0]}{more} in {names[1]} itself, beside its {spine.levels[highest[parent]]}"


def read_geography(source: Source, columns: Columns) -> Geography | None:
    """Read the spine of a long table; None if it has no geography.

    Without a column ``parent`` a parent's code begins those of its children, of any width, also within the Census
    Bureau's ``0500000US44001``; where geounits of several levels have one code, the level whose codes are shorter on
    average lies above. Several geounits of one level at the top get a root above them.

    Raises
    ------
    ValueError
        If a level or a parent is missing, a code is no text, geounits of several levels have no parent, or the geounits
        form no tree; the geounit or the row is named.
    """
    if GEOLEVEL not in columns.keys:
        return None
    levels = read_labels(source.frame[columns.keys[GEOLEVEL]]).str.strip_chars().replace("", None)
    codes = _codes(source, columns.keys[GEOCODE])
    pairs = pl.DataFrame({GEOLEVEL: source.filled(levels, ": every row needs a level"), GEOCODE: codes})
    known: list[Geounit] = pairs.unique().sort(GEOCODE, GEOLEVEL).rows()
    by_parents = PARENT in columns.keys
    if by_parents:
        spine = spine_by_parents(known, _said_parents(source, pairs, columns.keys[PARENT]))
    else:
        spine = spine_by_codes(known)
    return Geography.of(spine, pairs, _in_words(spine, by_parents, is_rooted=spine.size > len(known)))


def _codes(source: Source, name: str) -> pl.Series:
    """Codes as text, empty for the root of all."""
    codes = read_codes(source.frame[name]).fill_null("")
    shortened = next((code for code in codes.unique(maintain_order=True) if SHORTENED.fullmatch(code)), None)
    if shortened is not None:
        raise ValueError(
            f"column {name!r}: {shortened!r} is a number that a spreadsheet shortened: write the code, as text"
        )
    return codes


def spine_by_codes(units: Sequence[Geounit]) -> Spine:
    """The spine of geounits, (level, code), of which a parent's code begins those of its children."""
    nested = _nested_codes(units)
    order, widths = _levels_by_width(nested), sorted({len(code) for _, code in nested}, reverse=True)
    above, last = [-1] * len(units), dict[str, int]()  # the lowest geounit of every code so far
    for position in sorted(range(len(units)), key=lambda i: (len(nested[i][1]), order[nested[i][0]])):
        level, code = nested[position]
        above[position] = parent = next((last[code[:width]] for width in widths if code[:width] in last), -1)
        if parent >= 0 and units[parent][0] == level:
            raise ValueError(
                f"{level} {units[position][1]!r} begins as {level} {units[parent][1]!r} does: where leading zeros are "
                "lost, write them; otherwise say by a column 'parent' in what each lies"
            )
        last[code] = position
    _refuse_lost_zeros(nested, above)
    return _rooted(
        units, above, f"neither code begins with the other: say by a column 'parent' in what each lies{CROSSING}"
    )


def _nested_codes(units: Sequence[Geounit]) -> list[Geounit]:
    """Levels and codes, of the Census Bureau's long ones what begins with the code of the parent."""
    kinds: dict[str, tuple[str, str]] = {}
    for level, code in units:
        kind = kind_of_geo_id(code)
        first, other = kinds.setdefault(level, (kind, code))
        if kind and first and kind != first:
            raise ValueError(
                f"{level} has both {other!r} and {code!r}, places of two kinds: give each kind a geolevel of its own"
            )
    nested = [(level, code if (geoid := geoid_in(code)) is None else geoid) for level, code in units]
    for level, code in nested if len(kinds) > 1 else ():
        if kind_of_geo_id(code):
            raise ValueError(
                f"{level} {code!r}: codes of summary level {code[:3]} do not tell in what a place lies: say it by a "
                "column 'parent'"
            )
    return nested


def _levels_by_width(units: Sequence[Geounit]) -> dict[str, int]:
    """The number of every level in order of the mean width of its codes, of equal ones in that of the alphabet."""
    found = pl.DataFrame(units, [GEOLEVEL, GEOCODE], orient="row").group_by(GEOLEVEL)
    ordered = found.agg(pl.col(GEOCODE).str.len_chars().mean()).sort(GEOCODE, GEOLEVEL)[GEOLEVEL]
    return {level: number for number, level in enumerate(ordered)}


def codes_tell(units: Sequence[Geounit], spine: Spine) -> bool:
    """Whether a spine's parents are those that the codes of its geounits say."""
    try:
        return bool(np.array_equal(spine_by_codes(units).parent, spine.parent))
    except ValueError:
        return False


def _refuse_lost_zeros(units: Sequence[Geounit], above: Sequence[int]) -> None:
    """Numbers shorter than others of their level, or that all lie in nothing, which another code begins with a zero."""
    widest: dict[str, int] = {}
    placed = {level for (level, _), parent in zip(units, above, strict=True) if parent >= 0}
    for level, code in units:
        widest[level] = max(widest.get(level, 0), len(code))
    levels_of: dict[str, set[str]] = {}
    for level, code in units:
        levels_of.setdefault(code, set()).add(level)
    for level, code in units:
        full = code.zfill(widest[level] + (level not in placed))
        if not (code.isascii() and code.isdecimal()) or full == code or full in levels_of:
            continue
        begun = next((full[:n] for n in range(len(full) - 1, 1, -1) if levels_of.get(full[:n], {level}) != {level}), "")
        if begun and not code.startswith(begun):
            raise ValueError(
                f"{level} {code!r} would lie in {begun!r} if it were {full!r}: where a leading zero is lost, write it; "
                f"otherwise say by a column 'parent' in what it lies{CROSSING}"
            )


def _said_parents(source: Source, pairs: pl.DataFrame, name: str) -> dict[Geounit, str]:
    """The code of every geounit's parent, empty for one at the top; every row of a geounit must say the same."""
    said = pairs.with_columns(_codes(source, name).alias(PARENT), row=pl.Series(source.rows))
    parents: dict[Geounit, str] = {}
    for level, code, parent, row in said.unique([GEOLEVEL, GEOCODE, PARENT], keep="first", maintain_order=True).rows():
        if parents.setdefault((level, code), parent) != parent:
            both = f"{parents[level, code]!r} and {parent!r}"
            raise ValueError(f"row {row}: {level} {code!r} has two parents, {both}: give all its rows one")
    return parents


def spine_by_parents(units: Sequence[Geounit], parents: Mapping[Geounit, str]) -> Spine:
    """The spine of geounits, (level, code), whose parents' codes are known; empty for one at the top."""
    alike: dict[str, list[int]] = {}
    for position, (_, code) in enumerate(units):
        alike.setdefault(code, []).append(position)
    above = []
    for unit in units:
        parent = parents[unit]
        found = [i for i in alike.get(parent, ()) if parent and units[i][0] != unit[0]]
        if len(found) > 1:  # an only child that has the code of its parent lies below it
            found = [i for i in found if parents[units[i]] == parent] or found
        what = f"{unit[0]} {unit[1]!r} has the parent {parent!r}"
        if parent and not found:
            raise ValueError(f"{what}, which has no rows: give it some, of variance inf where it was not measured")
        if len(found) > 1:
            levels = " and ".join(units[i][0] for i in found)
            raise ValueError(f"{what}, a code at {levels}: give each geounit a code of its own")
        above.append(found[0] if found else -1)
    return _rooted(units, above, "neither has a parent: give it, of each, or rows of a geounit above both")


def _rooted(units: Sequence[Geounit], above: Sequence[int], remedy: str) -> Spine:
    """A spine, with a root above all if there are several geounits, of one level, at the top."""
    levels, codes = (list(part) for part in zip(*units, strict=True))
    if above.count(-1) <= 1:
        return Spine(above, levels, codes)
    tops = {level: code for (level, code), parent in sorted(zip(units, above, strict=True), reverse=True) if parent < 0}
    if len(tops) > 1:
        two = sorted(tops, key=lambda level: (levels.count(level), level))[:2]
        number = next((tops[level] for level in two if DECIMALS.fullmatch(tops[level])), None)
        text = "" if number is None else f"; {number!r} is no text but a number"
        raise ValueError(
            f"{' and '.join(f'{level} {tops[level]!r}' for level in two)} would lie side by side, and nothing would "
            f"make them agree: {remedy}{text}"
        )
    root = next(name for name in ROOTS if name not in levels)
    return Spine([-1, *(parent + 1 for parent in above)], [root, *levels], ["", *codes])

"""The identifiers by which published tables name places (GEOIDs), for spines whose geounits have codes of their own.

A block's code on the spine of 2020 ends in the 16 digits of its place in tabulation: state 2, county 3, tract 6, block
group 1, block 4, the block group being the first digit of the block's number; its GEOID leaves the group out. States,
counties, tracts and block groups of tabulation are sets of blocks, whatever geounits of the spine these lie in: the
pieces inside and outside American Indian areas come together, and the spine's own block groups are nobody's.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.geography.entities import Entities
from constraint_builders.geography.partitions import leaves

WIDTHS = {"nation": 0, "state": 2, "county": 5, "tract": 11, "block_group": 12, "block": 15}
KINDS = {width: kind for kind, width in WIDTHS.items()}
NATION = "US"
TABULATION_WIDTH = 16  # a block's spine code ends in state 2, county 3, tract 6, block group 1, block 4
_LONG = re.compile(r"(\d{3})0000US(\d*)")  # as the Census Bureau's interface writes them: 1400000US44007000101
_SUMMARY_LEVELS = {"010": 0, "040": 2, "050": 5, "140": 11, "150": 12, "100": 15, "101": 15}  # widths after US
_STATE, _COUNTY = re.compile(r"[01](\d\d)"), re.compile(r"[01](\d\d)10(\d{3})\d?")  # on the spine of 2020

# Blocks of water whose records were moved in tabulation, after they were measured: where they are published.
MOVED_IN_TABULATION = {
    "010039900000001": "010030108002009",
    "060739901000002": "060730187001280",
    "060759902000001": "060750179031031",
    "120759900000008": "120759704001101",
    "120869900000022": "120860080002011",
    "250259901010031": "250250503001006",
    "360819901000002": "360810916041000",
    "410079900000010": "410079511004030",
    "450299901000001": "450299708003004",
    "450539901000002": "450539503024009",
    "481679901000039": "481677239003135",
    "530099901000035": "530090019021025",
    "530619900020017": "530610401004007",
    "550259917020003": "550250032001000",
    "721039900130009": "721031704004006",
}


def block_geoid(code: str) -> str:
    """The 15-digit GEOID at the end of a block's spine code, empty if there is none."""
    tabulation = code[-TABULATION_WIDTH:]
    return tabulation[:11] + tabulation[12:] if len(code) >= TABULATION_WIDTH else ""


class Geoids:
    """The GEOIDs of a spine's geounits without children, and of all that published tables name above them.

    Parameters
    ----------
    spine : Spine
        Its codes are GEOIDs, or those of 2020. Where they are neither its geounits go by their own codes alone.
    """

    def __init__(self, spine: Spine) -> None:
        self.spine = spine
        self._leaves = leaves(spine)
        found = [MOVED_IN_TABULATION.get(geoid, geoid) for geoid in _geoids(spine, self._leaves)]
        self._geoids = np.array(found, dtype=str)

    def every(self, geolevel: str, inside: Sequence[str] = ()) -> Entities:
        """Every place of a level of tabulation.

        Parameters
        ----------
        geolevel : str
            One of `WIDTHS`, in any case, or a level of the spine where its geounits have no GEOIDs.
        inside : sequence of str
            GEOIDs within which they lie; by default anywhere.

        Raises
        ------
        ValueError
            If there is no such level, nothing is known at it, or a place lies in part within `inside`.
        """
        names, place = self._level(geolevel)
        whole = np.ones(place.size, dtype=bool)
        within = self.of(inside).contains.sum(axis=0) > 0 if len(inside) else whole
        rows = np.flatnonzero((place >= 0) & within)
        kept, renumbered = np.unique(place[rows], return_inverse=True)
        if not kept.size:
            raise ValueError(f"there is no {geolevel} within {', '.join(map(repr, inside))}: give what it lies in")
        cut = np.intersect1d(kept, place[~within])
        if cut.size:
            raise ValueError(
                f"{geolevel} {names[cut[0]]!r} lies only in part within {', '.join(map(repr, inside))}: give what it "
                "lies in, or a level below"
            )
        return self._entities([names[i] for i in kept.tolist()], renumbered, rows)

    def of(self, geoids: Sequence[str]) -> Entities:
        """Places by their GEOIDs, in the order given.

        Parameters
        ----------
        geoids : sequence of str
            Of 2, 5, 11, 12 or 15 digits, ``"US"``, or such as ``"1400000US44007000101"``; also codes of the spine.

        Raises
        ------
        ValueError
            If one is unknown, or given twice.
        """
        return self.of_places({geoid: [geoid] for geoid in _different(geoids)})

    def of_places(self, places: Mapping[str, Sequence[str]]) -> Entities:
        """Places that are made up of others.

        Parameters
        ----------
        places : mapping of str to sequence of str
            For every place the GEOIDs that it consists of, as for `of`; a block moved in tabulation comes with the one
            that it was moved to.

        Raises
        ------
        ValueError
            If a GEOID is unknown, or two of a place overlap.
        """
        if not places:
            raise ValueError("no place is asked for: give GEOIDs, or a level of which to take all")
        for name, codes in places.items():
            if isinstance(codes, str):
                raise ValueError(f"place {name!r} must be a list of GEOIDs: write [{codes!r}]")
        blocks = [[self._blocks(str(code)) for code in codes] for codes in places.values()]
        for (name, codes), parts in zip(places.items(), blocks, strict=True):
            taken = np.zeros(self._leaves.size, dtype=bool)
            for code, own in zip(codes, parts, strict=True):
                if taken[own].any():
                    raise ValueError(f"place {name!r} counts {code!r} twice, in part at least: give disjoint parts")
                taken[own] = True
        columns = [np.concatenate([*parts, np.zeros(0, dtype=np.intp)]) for parts in blocks]
        rows = np.repeat(np.arange(len(columns)), [own.size for own in columns])
        return self._entities(list(places), rows, np.concatenate(columns))

    def _entities(self, names: Sequence[str], rows: Index, columns: Index) -> Entities:
        shape = (len(names), self._leaves.size)
        return Entities(names, sparse.coo_array((np.ones(rows.size), (rows, columns)), shape=shape))

    def _level(self, geolevel: str) -> tuple[list[str], Index]:
        """The names of all places of a level, in order, and for every leaf the number of its own, or -1."""
        kind = geolevel.strip().lower().replace(" ", "_").replace("-", "_")
        if kind == "nation" and self._is_nation:
            return [NATION], np.zeros(self._leaves.size, dtype=np.intp)
        if WIDTHS.get(kind) and (self._widths >= WIDTHS[kind]).any():
            known = self._widths >= WIDTHS[kind]
            names, number = np.unique(self._geoids[known].astype(f"<U{WIDTHS[kind]}"), return_inverse=True)
            place = np.full(self._leaves.size, -1)
            place[known] = number
            return names.tolist(), place
        if geolevel in self.spine.levels:
            members = self.spine.members[self.spine.level_index(geolevel)]
            number_of = np.full(self.spine.size, -1)
            number_of[members] = np.arange(members.size)
            return [self.spine.geocodes[i] for i in members.tolist()], number_of[self._above(geolevel)]
        known_levels = [name for name, width in WIDTHS.items() if width and (self._widths >= width).any()]
        there = ", ".join(known_levels or self.spine.levels)
        raise ValueError(f"nothing is known of places of level {geolevel!r} here: there are {there}")

    def _above(self, geolevel: str) -> Index:
        """For every leaf its ancestor at a level of the spine, or the root where it has none."""
        index = self.spine.level_index(geolevel)
        found = self._leaves
        for _ in self.spine.levels:
            found = np.where((self.spine.level_of[found] > index), self.spine.parent[found], found)
        return found

    @property
    def _is_nation(self) -> bool:
        """Whether the root is the nation, whose code on every spine is empty."""
        return self.spine.geocodes[int(np.flatnonzero(self.spine.parent < 0)[0])] == ""

    @cached_property
    def _widths(self) -> Index:
        return np.char.str_len(self._geoids)

    @cached_property
    def _sorted(self) -> tuple[list[str], Index]:
        order = np.argsort(self._geoids, kind="stable")
        return self._geoids[order].tolist(), order

    @cached_property
    def _own_codes(self) -> dict[str, int]:
        return {code: i for i, code in enumerate(self.spine.geocodes)}

    def _blocks(self, code: str) -> Index:
        """Numbers among the leaves of those that lie in a place."""
        text = code.strip()
        if not text:
            raise ValueError("a GEOID is empty: leave it out, or write US for the nation")
        long = _LONG.fullmatch(text)
        geoid = long[2] if long else ("" if text.upper() == NATION else text)
        if long and _SUMMARY_LEVELS.get(long[1]) != len(geoid):
            raise ValueError(f"{code!r} is no place of summary level {long[1]} that is known: {_long_forms()}")
        if not geoid:
            if self._is_nation:
                return np.arange(self._leaves.size)
            raise ValueError(f"{code!r}: the nation is not in this result, only {self.spine.levels[0]} and below")
        if len(geoid) in KINDS:
            ordered, order = self._sorted
            first, last = bisect_left(ordered, geoid), bisect_left(ordered, geoid + "~")
            if last > first:
                return np.sort(order[first:last])
        if text in self._own_codes:
            return self._below(self._own_codes[text])
        raise ValueError(self._unknown(code, geoid))

    def _below(self, geounit: int) -> Index:
        """Numbers among the leaves of those below a geounit of the spine."""
        above, inside = self._leaves.copy(), np.zeros(self._leaves.size, dtype=bool)
        while (above >= 0).any():
            inside |= above == geounit
            above = np.where(above >= 0, self.spine.parent[above], -1)
        return np.flatnonzero(inside)

    def _unknown(self, code: str, geoid: str) -> str:
        moved = [(block, to) for block, to in MOVED_IN_TABULATION.items() if geoid and block.startswith(geoid)]
        if moved and moved[0][1] in self._sorted[0]:
            return (
                f"{code!r} is published as 0: what was measured in its block {moved[0][0]} is counted in {moved[0][1]}"
            )
        kind = KINDS.get(len(geoid), "")
        if not kind or not geoid.isdigit():
            widths = ", ".join(f"{name} {width}" for name, width in WIDTHS.items() if width)
            return f"{code!r} is no GEOID and no geocode of this result: GEOIDs have as many digits as: {widths}"
        if not (self._widths >= len(geoid)).any():
            lowest = KINDS.get(int(self._widths.max()), "")
            there = (
                f"GEOIDs are known down to the {lowest}" if lowest else f"codes are such as {self.spine.geocodes[-1]!r}"
            )
            return f"no {kind} {code!r} in this result: {there}"
        names = self._level(kind)[0]
        place = bisect_left(names, geoid)
        near = ", ".join(names[max(place - 2, 0) : place + 2])
        return (
            f"no {kind.replace('_', ' ')} {code!r} in this result: near it {'is' if len(names) == 1 else 'are'} {near}"
        )


def _long_forms() -> str:
    known = {width: summary for summary, width in reversed(_SUMMARY_LEVELS.items())}
    return "there are " + ", ".join(f"{KINDS[width]} {known[width]}" for width in sorted(known))


def by_tabulation(spine: Spine) -> Spine:
    """The same spine, its leaves called by their GEOIDs where each has one of its own, so that those of others match.

    Blocks that were moved in tabulation keep the GEOID under which they were measured.

    Examples
    --------
    >>> codes = {"State": ["044"], "Block": ["0441000110004400100000111000"]}
    >>> by_tabulation(Spine.from_geocodes(codes)).geocodes
    ('044', '440010000011000')
    """
    found = leaves(spine)
    geoids = _geoids(spine, found)
    if not all(geoids) or len(set(geoids)) < len(geoids):
        return spine
    codes = list(spine.geocodes)
    for leaf, geoid in zip(found.tolist(), geoids, strict=True):
        codes[leaf] = geoid
    return Spine(spine.parent, [spine.levels[level] for level in spine.level_of.tolist()], codes)


def _different(geoids: Sequence[str]) -> list[str]:
    if isinstance(geoids, str):
        raise ValueError(f"geoids must be a list: write [{geoids!r}]")
    given = [str(geoid).strip() for geoid in geoids]
    repeated = (
        next((geoid for geoid in given if given.count(geoid) > 1), None) if len(set(given)) < len(given) else None
    )
    if repeated is not None:
        raise ValueError(f"GEOID {repeated!r} is given twice: give it once")
    return given


def _geoids(spine: Spine, found: NDArray[np.intp]) -> list[str]:
    """The GEOID of every leaf, empty where it has none."""
    codes = [spine.geocodes[i] for i in found.tolist()]
    if all(len(code) in KINDS and (code.isdigit() or not code) for code in spine.geocodes):
        return codes
    return [_geoid_of_2020(code) for code in codes]


def _geoid_of_2020(code: str) -> str:
    if not code.isdigit():
        return ""
    if len(code) >= TABULATION_WIDTH:
        return block_geoid(code)
    for form in (_STATE, _COUNTY):
        match = form.fullmatch(code)
        if match is not None:
            return "".join(match.groups())
    return ""

"""The identifiers by which published tables name places (GEOIDs), for spines whose geounits have codes of their own.

A block's code on the spine of 2020 ends in the 16 digits of its place in tabulation: state 2, county 3, tract 6, block
group 1, block 4, the block group being the first digit of the block's number; its GEOID leaves the group out. States,
counties, tracts and block groups of tabulation are sets of blocks, whatever geounits of the spine these lie in: the
pieces inside and outside American Indian areas come together, and the spine's own block groups are nobody's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders.arrays import Index
from constraint_builders.description.geo_ids import KINDS, NATION, SUMMARY_LEVELS, WIDTHS, geoid_in, kind_of_geo_id
from constraint_builders.description.spine import Spine
from constraint_builders.files.reading_report import PlacesInPart
from constraint_builders.files.tabulated_places import MOVED_IN_TABULATION, TOGETHER, are_geoids, geoids_of, published
from constraint_builders.geography.entities import Entities, leaves

if TYPE_CHECKING:
    import polars as pl

IN_PART = " in part"  # after the GEOID of a place of which the result holds no more


class Geoids:
    """The GEOIDs of a spine's geounits without children, and of all that published tables name above them.

    Parameters
    ----------
    spine : Spine
        Its codes are GEOIDs, or those of 2020. Where they are neither its geounits go by their own codes alone.
    in_part : PlacesInPart, optional
        The places of which the spine does not hold all: by default none.
    """

    def __init__(self, spine: Spine, in_part: PlacesInPart | None = None) -> None:
        self.spine, self._in_part = spine, PlacesInPart() if in_part is None else in_part
        self._leaves = leaves(spine)
        self._geoids = np.array(published(_geoids(spine, self._leaves)).to_list(), dtype=str)

    def every(self, geolevel: str, inside: Sequence[str] = ()) -> Entities:
        """Every place of a level of tabulation; after the name of one that is here in part alone it says `IN_PART`.

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
        parts = (self._in_part.rest_of(names[i]) is not None for i in kept.tolist())
        called = [names[i] + IN_PART * part for i, part in zip(kept.tolist(), parts, strict=True)]
        return self._entities(called, renumbered, rows)

    def of(self, geoids: Sequence[str]) -> Entities:
        """Places by their GEOIDs, in the order given.

        Parameters
        ----------
        geoids : sequence of str
            Of 2, 5, 11, 12 or 15 digits, ``"US"``, or such as ``"1400000US44007000101"``; also codes of the spine.

        Raises
        ------
        ValueError
            If one is unknown, given twice, or here in part alone.
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
            If a GEOID is unknown, or of a place that is here in part alone, or two of a place overlap.
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
        """Entities of the leaves that they hold, pairs of an entity and a leaf by their numbers, (pairs,) each."""
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
            index = self.spine.level_index(geolevel)
            above = self.spine.ancestors_at(self._leaves, index)
            codes = [self.spine.geocodes[i] for i in self.spine.members[index].tolist()]
            return codes, np.where(above >= 0, self.spine.rank_in_level[above], -1)
        known_levels = [name for name, width in WIDTHS.items() if width and (self._widths >= width).any()]
        there = ", ".join(known_levels or self.spine.levels)
        raise ValueError(f"nothing is known of places of level {geolevel!r} here: there are {there}")

    @property
    def _root(self) -> str:
        return self.spine.geocodes[int(np.flatnonzero(self.spine.parent < 0)[0])]

    @property
    def _is_nation(self) -> bool:
        """Whether the root is the nation, whose code on every spine is empty."""
        return self._root == ""

    @property
    def _top(self) -> str:
        """What this is of, for messages."""
        return self._root if TOGETHER in self._root else self.spine.levels[0]

    def _require_whole(self, geoid: str) -> None:
        rest = self._in_part.rest_of(geoid)
        if rest is not None:
            raise ValueError(
                f"{KINDS[len(geoid)]} {geoid!r} lies only in part in this result, which is of {self._root!r}: estimate "
                f"again with the rest of it{f', {rest},' if rest else ''} too, or ask for geounits by their own codes"
            )

    @cached_property
    def _widths(self) -> Index:
        return np.char.str_len(self._geoids)

    @cached_property
    def _sorted(self) -> tuple[list[str], Index]:
        order = np.argsort(self._geoids, kind="stable")
        return self._geoids[order].tolist(), order

    @cached_property
    def _own_codes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for i, code in enumerate(self.spine.geocodes):
            found[code] = (*found.get(code, ()), i)
        return found

    def _blocks(self, code: str) -> Index:
        """Numbers among the leaves of those that lie in a place."""
        text = code.strip()
        if not text:
            raise ValueError("a GEOID is empty: leave it out, or write US for the nation")
        long = geoid_in(text)
        geoid = long if long is not None else ("" if text.upper() == NATION else text)
        if long is None and kind_of_geo_id(text) and text not in self._own_codes:
            raise ValueError(f"{code!r} is no place of summary level {text[:3]} that is known: {_long_forms()}")
        if not geoid:
            if self._is_nation:
                return np.arange(self._leaves.size)
            raise ValueError(f"{code!r}: the nation is not in this result, only {self._top} and below")
        if len(geoid) in KINDS:
            ordered, order = self._sorted
            first, last = bisect_left(ordered, geoid), bisect_left(ordered, geoid + "~")
            if last > first:
                self._require_whole(geoid)
                return np.sort(order[first:last])
        if text in self._own_codes:
            blocks, *others = map(self._below, self._own_codes[text])
            if not all(np.array_equal(blocks, other) for other in others):
                levels = " and of a ".join(self.spine.levels[self.spine.level_of[i]] for i in self._own_codes[text])
                raise ValueError(f"{code!r} is the code of a {levels}, which differ: ask for geounits of one geolevel")
            return blocks
        raise ValueError(self._unknown(code, geoid))

    def _below(self, geounit: int) -> Index:
        """Numbers among the leaves of those at or below a geounit."""
        return np.flatnonzero(self.spine.ancestors_at(self._leaves, int(self.spine.level_of[geounit])) == geounit)

    def _unknown(self, code: str, geoid: str) -> str:
        moved = [(block, to) for block, to in MOVED_IN_TABULATION.items() if geoid and block.startswith(geoid)]
        if moved and moved[0][1] in self._sorted[0]:
            return (
                f"{code!r} is published as 0: what was measured in its block {moved[0][0]} is counted in {moved[0][1]}"
            )
        kind = KINDS.get(len(geoid), "")
        if not kind or not (geoid.isascii() and geoid.isdigit()):
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
        near = f"near it {'is' if len(names) == 1 else 'are'} {', '.join(names[max(place - 2, 0) : place + 2])}"
        county = geoid[: WIDTHS["county"]]
        if kind == "block" and not are_geoids(self.spine.geocodes) and county in self._level("county")[0]:
            near += "; blocks that nobody could live in, of water for one, are not in the files of 2020 and count 0"
        return f"no {kind.replace('_', ' ')} {code!r} in this result: {near}"


def _long_forms() -> str:
    known = {width: summary for summary, width in reversed(SUMMARY_LEVELS.items())}
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
    if not all(geoids) or geoids.n_unique() < len(geoids):
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


def _geoids(spine: Spine, found: NDArray[np.intp]) -> pl.Series:
    """The GEOID of every leaf, by its position in the spine, (leaves,), empty where it has none."""
    return geoids_of([spine.geocodes[i] for i in found.tolist()], are_geoids(spine.geocodes))

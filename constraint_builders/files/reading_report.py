"""What was read of a folder of measurements, and what became of it: printed, and stored with the result.

Every row is accounted for: it was used, or was not, for a reason. What was noticed, and is no reason to refuse, is
remarked. Bounds on the persons of every type say how many facilities there are and, derived, how many persons: the
lower bound of a type is the number of its facilities, each of which has a person at least, and 0 for households. The
upper bound is `A_FACILITY` times that number, and for households times the number of housing units. At geounits whose
totals the mechanism knew, an upper bound may have been lowered to that total less one person in every facility of other
types: then the bound on households and all facilities together are the total itself. That is derived from published
code and tested against what else is known, never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Index
from constraint_builders.description.geo_ids import KINDS, WIDTHS
from constraint_builders.description.spine import Spine

NO_DOUBT = ("averaged", "in part")  # what is as it should be, or was asked for
USED = ""  # in place of a reason
A_FACILITY = 99_999
SPREAD = 5.0  # standard deviations within which a measured total agrees


class Remark(NamedTuple):
    """One line.

    Attributes
    ----------
    about, text : str
    """

    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.about:<10} {self.text}"


def doubtful(remarks: Sequence[Remark]) -> str:
    """The first of those that put what was read in doubt, and how many more there are; empty without one."""
    found = [f"{own.about} {own.text}" for own in remarks if own.about not in NO_DOUBT]
    more = f"; and {len(found) - 1:,} more that info says" if len(found) > 1 else ""
    return f"read with remarks: {found[0]}{more}" if found else ""


class Unused(NamedTuple):
    """Rows that the estimate does not use.

    Attributes
    ----------
    geolevel : str
    name : str
        The query's or constraint's name in the file; ``*`` for rows of all names.
    rows : int
    reason : str
    """

    geolevel: str
    name: str
    rows: int
    reason: str


class RowCount(NamedTuple):
    """What became of the rows of one kind at one geolevel: `read` is `used` and `unused` together.

    Attributes
    ----------
    geolevel : str
    kind : str
        ``DPQuery`` or ``Constraint``.
    read, used, unused : int
    """

    geolevel: str
    kind: str
    read: int
    used: int
    unused: int


@dataclass
class RowAccounts:
    """Counts rows that were read, used, and not used, by what they are and why."""

    _read: Counter[tuple[str, str]] = field(default_factory=Counter)
    _rows: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)  # the reason last, or `USED`

    def saw(self, geolevel: str, kind: str, rows: int) -> None:
        """Count rows that were read."""
        self._read[geolevel, kind] += rows

    def use(self, geolevel: str, kind: str, name: str, rows: int) -> None:
        """Count rows that the estimate uses."""
        self.leave(geolevel, kind, name, USED, rows)

    def leave(self, geolevel: str, kind: str, name: str, reason: str, rows: int) -> None:
        """Count rows that it does not use."""
        if rows:
            self._rows[geolevel, kind, name, reason] += rows

    def replace(self, geolevel: str, kind: str, name: str, reason: str, rows: int, before: str = USED) -> None:
        """Count rows as not used for a reason that were counted as used, or as not used for another, before."""
        self.leave(geolevel, kind, name, before, -rows)
        self.leave(geolevel, kind, name, reason, rows)

    def unused(self) -> tuple[Unused, ...]:
        """All rows that are not used, in order of first appearance."""
        return tuple(
            Unused(level, name, rows, reason)
            for (level, _, name, reason), rows in self._rows.items()
            if rows and reason != USED
        )

    def totals(self) -> tuple[RowCount, ...]:
        """By geolevel and kind, in order of reading.

        Raises
        ------
        RuntimeError
            If a row is not accounted for: a defect of the reader.
        """
        counts = {key: [0, 0] for key in self._read}
        for (level, kind, _, reason), rows in self._rows.items():
            counts[level, kind][reason != USED] += rows
        found = [RowCount(*key, self._read[key], *own) for key, own in counts.items()]
        wrong = [own for own in found if own.read != own.used + own.unused]
        if wrong:
            raise RuntimeError(f"rows are not accounted for: {wrong[0]}")
        return tuple(found)


class ImpliedTotal(NamedTuple):
    """The total of persons that bounds imply at a geounit, and what else is known of it.

    Attributes
    ----------
    geolevel, geocode : str
    implied : int
    known : float or None
        The exact total, or a measurement of it; None if there is neither.
    deviation : float
        Standard deviation of `known`; 0 if it is exact.
    """

    geolevel: str
    geocode: str
    implied: int
    known: float | None
    deviation: float

    @property
    def agrees(self) -> bool | None:
        """Whether both are the same, up to the noise; None if nothing else is known."""
        return None if self.known is None else abs(self.implied - self.known) <= SPREAD * self.deviation + 0.5

    def remarks(self) -> Iterator[Remark]:
        """That it disagrees, if it does."""
        if self.agrees is False:
            text = f"{self.geolevel} {self.geocode!r}: {self.implied:,} implied, {self.known:,.0f} known: DISAGREE"
            yield Remark("bounds", text)


@dataclass(frozen=True)
class PlacesInPart:
    """Which published places a part of the geounits of a spine does not hold whole.

    Attributes
    ----------
    cut : mapping of str to str
        GEOIDs of places with what else they consist of: a geocode, or nothing where none names it.
    absent : tuple of str
        Geocodes of branches of states that the files had in 2020 and have not here: what lies in these states may be
        in part, but for blocks.
    """

    cut: Mapping[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    def rest_of(self, geoid: str) -> str | None:
        """What else a place consists of, or may; None if it is whole."""
        if geoid in self.cut:
            return self.cut[geoid] or next((self.cut[geoid[:w]] for w in (5, 2) if self.cut.get(geoid[:w])), "")
        if len(geoid) == WIDTHS["block"]:
            return None
        return next((branch for branch in self.absent if branch[1:] == geoid[:2]), None)

    def remarks(self) -> Iterator[Remark]:
        """What is here in part, in words."""
        for branch in self.absent:
            what = f"the files of 2020 have a branch {branch}, these have not"
            yield Remark("in part", f"what lies in state {branch[1:]}, but for blocks: {what}")
        kinds = Counter(KINDS[len(geoid)].replace("_", " ") for geoid in self.cut)
        if kinds:
            first = min(self.cut, key=len)
            rest = f"; {first} is without {self.cut[first]}" if self.cut[first] else ""
            levels = ", ".join(f"{kind} {number:,}" for kind, number in kinds.items())
            yield Remark("in part", f"published places, by level: {levels}{rest}")

    def __or__(self, other: PlacesInPart) -> PlacesInPart:
        return PlacesInPart({**self.cut, **other.cut}, tuple(dict.fromkeys(self.absent + other.absent)))


@dataclass(frozen=True)
class ReadingReport:
    """What became of every row, and what bounds say.

    Attributes
    ----------
    rows : tuple of RowCount
        By geolevel and kind: used and unused together are those that were read.
    unused : tuple of Unused
        Rows that are not used, by name, with the reason.
    facilities : mapping of str to int
        Exact numbers of facilities by type, and of housing units, of all geounits of the lowest geolevel that has them.
    implied : tuple of ImpliedTotal
        Totals of persons that follow from bounds, beside what else is known of them: a test of the bounds, never used.
    summed_out : tuple of str
        Variables over which tables were summed when they were read.
    is_lossless : bool
        Whether the sums lose nothing for the tables of the others.
    in_part : PlacesInPart
        The published places that are not held whole.
    remarks : tuple of Remark
        What is missing of the files, and what in them does not agree.
    """

    rows: tuple[RowCount, ...]
    unused: tuple[Unused, ...]
    facilities: Mapping[str, int]
    implied: tuple[ImpliedTotal, ...]
    summed_out: tuple[str, ...] = ()
    is_lossless: bool = True
    in_part: PlacesInPart = field(default_factory=PlacesInPart)
    remarks: tuple[Remark, ...] = ()

    def implied_lines(self) -> Iterator[str]:
        """What the test of implied totals gave, one line a geolevel; those that disagree are remarks."""
        for level in dict.fromkeys(own.geolevel for own in self.implied):
            here = [own for own in self.implied if own.geolevel == level]
            tested = [own for own in here if own.agrees is not None]
            agreeing = sum(own.agrees is True for own in tested)
            total = sum(own.implied for own in here)
            yield (
                f"{level}: bounds imply totals of {len(here):,} geounits, {total:,} together; of {len(tested):,} whose "
                f"total is known or was measured {agreeing:,} agree"
            )

    def to_json(self) -> dict[str, Any]:
        """For a file; `of_json` reads it."""
        said: dict[str, Any] = msgspec.to_builtins(self)
        return said

    @classmethod
    def of_json(cls, said: Mapping[str, Any]) -> ReadingReport:
        """What `to_json` gave."""
        return msgspec.convert(said, cls)


@dataclass
class FacilityBounds:
    """Bounds of one geolevel as they are read.

    Attributes
    ----------
    has_totals : bool
        Whether upper bounds may be lower than so many a facility.
    """

    has_totals: bool
    _facilities: list[pl.DataFrame] = field(default_factory=list)
    _bounds: dict[bool, dict[int, NDArray]] = field(default_factory=lambda: {False: {}, True: {}})

    def add(self, is_upper: bool, geounits: Index, values: NDArray) -> None:
        """Take bounds of some geounits, by number, (G, types)."""
        values = values.astype(np.int64)  # files have integers of any width
        if self.has_totals:
            self._bounds[is_upper] |= dict(zip(geounits.tolist(), values, strict=True))
        if not is_upper:
            self._keep(geounits, values[:, 1:], first=1)
        elif not self.has_totals:
            plain = values[:, 0] % A_FACILITY == 0
            self._keep(geounits[plain], values[plain, :1] // A_FACILITY)

    def add_exact(self, geounits: Index, counts: NDArray) -> None:
        """Take exact numbers of housing units, and of facilities of every type, (G, types)."""
        self._keep(geounits, counts.astype(np.int64))

    def _keep(self, geounits: Index, counts: NDArray, first: int = 0) -> None:
        """Note numbers of facilities, (G, types), of geounits (G,), the first of these types being number `first`."""
        row, kind = np.nonzero(counts)
        found = {"geounit": geounits[row], "type": kind + first, "facilities": counts[row, kind]}
        self._facilities.append(pl.DataFrame(found))

    def facilities(self) -> pl.DataFrame:
        """Columns ``geounit``, ``type`` and ``facilities``, all numbers, where there are any; 0 is housing units."""
        empty = pl.DataFrame(schema={"geounit": pl.Int64, "type": pl.Int64, "facilities": pl.Int64})
        found = pl.concat([empty, *(own.cast(empty.schema) for own in self._facilities)])
        return found.sort("geounit", "type")

    def implied(self) -> dict[int, int]:
        """For every geounit whose bound on households is no plain multiple the total that its bounds imply."""
        lower, upper = self._bounds[False], self._bounds[True]
        both = [unit for unit in sorted(upper) if unit in lower and upper[unit][0] % A_FACILITY]
        return {unit: int(upper[unit][0]) + int(lower[unit][1:].sum()) for unit in both}


def facility_remarks(bounds: Mapping[str, FacilityBounds], types: Sequence[str], spine: Spine) -> Iterator[Remark]:
    """Where numbers of facilities are not those of the geounits below together, as they are if none is missing.

    Types of which a whole level says nothing are not compared: those of housing units where bounds were lowered.
    """
    found = {level: own.facilities() for level, own in bounds.items()}
    for upper, lower in pairwise(level for level, own in found.items() if own.height):
        number, members = spine.level_index(upper), spine.members[spine.level_index(lower)]
        above = spine.ancestors_at(members[found[lower]["geounit"].to_numpy()], number)
        inside = found[lower].with_columns(geounit=spine.rank_in_level[above]).filter(above >= 0)
        sums = inside.group_by("geounit", "type").agg(pl.col("facilities").sum())
        both = found[upper].join(sums, on=["geounit", "type"], how="full", coalesce=True, suffix="_below").fill_null(0)
        said = set(found[upper]["type"]) & set(found[lower]["type"])
        wrong = both.filter(pl.col("type").is_in(said), pl.col("facilities") != pl.col("facilities_below"))
        if wrong.height:
            geounit, kind, here, below = wrong.sort("geounit", "type").row(0)
            code, many = spine.geocodes[spine.members[number][geounit]], wrong["geounit"].n_unique()
            yield Remark(
                "facilities",
                f"of {many:,} geounits at {upper} are not those at {lower} together: {code!r} has {here:,} "
                f"{types[kind]}, for {below:,}; geounits or constraints are missing",
            )

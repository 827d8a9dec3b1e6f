"""What bounds on the persons of every type say: how many facilities there are, and, derived, how many persons.

The lower bound of a type is the number of its facilities, each of which has a person at least, and 0 for households.
The upper bound is `A_FACILITY` times that number, and for households times the number of housing units. At geounits
whose totals the mechanism knew, an upper bound may have been lowered to that total less one person in every facility
of other types: then the bound on households and all facilities together are the total itself. That is derived from
published code and tested against what else is known, never used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Index
from constraint_builders.description.spine import Spine
from constraint_builders.files.reading_report import Remark

A_FACILITY = 99_999


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
            self._keep(geounits, values, 1)
        elif not self.has_totals:
            plain = values[:, 0] % A_FACILITY == 0
            self._keep(geounits[plain], values[plain, :1] // A_FACILITY, 0)

    def add_exact(self, geounits: Index, counts: NDArray) -> None:
        """Take exact numbers of housing units, and of facilities of every type, (G, types)."""
        counts = counts.astype(np.int64)
        self._keep(geounits, counts, 1)
        self._keep(geounits, counts[:, :1], 0)

    def _keep(self, geounits: Index, counts: NDArray, first: int) -> None:
        row, kind = np.nonzero(counts[:, first:] if first else counts)
        number = counts[row, kind + first]
        self._facilities.append(pl.DataFrame({"geounit": geounits[row], "type": kind + first, "facilities": number}))

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

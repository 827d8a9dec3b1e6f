"""Numbers of facilities and of housing units of a geounit, compared with those of the geounits below it together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import polars as pl

from constraint_builders.description.spine import Spine
from constraint_builders.files.facility_bounds import FacilityBounds
from constraint_builders.files.remarks import Remark


def facility_remarks(bounds: Mapping[str, FacilityBounds], types: Sequence[str], spine: Spine) -> Iterator[Remark]:
    """Where they differ, which they cannot if no geounit and no constraint is missing.

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

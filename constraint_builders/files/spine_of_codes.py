"""The tree of the geocodes that a folder of measurements has, refused where codes do not make one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from constraint_builders.description.spine import Spine
from constraint_builders.files.exact_totals import TOGETHER
from constraint_builders.files.remarks import Remark

ROOT = "Root"
MOST_NAMED = 4  # prefixes in the code of a root that is put in


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
    names = list(by_level)
    remarks = _nested({name: geocodes[name] for name in names})
    top = by_level[names[0]]
    if len(top) > 1:
        above = geolevels.index(names[0]) - 1
        by_level = {geolevels[above] if above >= 0 else ROOT: [""], **by_level}
    spine = Spine.from_geocodes(by_level)
    if len(top) == 1:
        return spine, remarks
    levels = [spine.levels[number] for number in spine.level_of.tolist()]
    return Spine(spine.parent, levels, [_together(within or top), *spine.geocodes[1:]]), remarks


def _together(codes: Sequence[str]) -> str:
    shown = codes if len(codes) <= MOST_NAMED else [codes[0], "...", codes[-1]]
    return TOGETHER.join(shown)


def _nested(geocodes: Mapping[str, pl.Series]) -> list[Remark]:
    """Refuse codes that begin with none above, and those with which none below begins; remark on levels left out."""
    names = list(geocodes)
    used = {name: pl.Series([], dtype=pl.String) for name in names}
    remarks = []
    for number, lower in enumerate(names[1:], 1):
        below = orphans = geocodes[lower]
        for upper in reversed(names[:number]):
            above = geocodes[upper]
            parents = _parents(above if upper == names[number - 1] else above.filter(above != ""), orphans)
            used[upper] = pl.concat([used[upper], parents.drop_nulls()]).unique()
            orphans = orphans.filter(parents.is_null())
            if upper == names[number - 1] and orphans.len():
                first = f"{orphans.len():,} of {below.len():,} codes at {lower}, {orphans[0]!r} first"
                text = f"geounits at {upper} above {first}: nothing was measured of them if these were bypassed"
                remarks.append(Remark("missing", text))
        if orphans.len():
            raise _refusal(names[number - 1], geocodes[names[number - 1]], lower, below, orphans)
    for upper in names[:-1]:
        childless = geocodes[upper].filter(~geocodes[upper].is_in(used[upper].implode()))
        if childless.len():
            found = f"{upper} {childless[0]!r} has no geounits below it, as {childless.len():,} in all"
            raise ValueError(f"{found}: {_cause(geocodes[upper])}")
    return remarks


def _cause(codes: pl.Series) -> str:
    """Why none begins with some codes of a level."""
    if codes.str.contains(r"\s").any():
        return "codes there hold spaces, strip them"
    lengths = codes.str.len_chars().unique().sort().to_list()
    if len(lengths) > 1:
        return f"codes there have {' and '.join(map(str, lengths))} characters, some lost leading zeros?"
    return "a partition is missing, or within= should leave it out"


def _refusal(upper: str, above: pl.Series, lower: str, below: pl.Series, orphans: pl.Series) -> ValueError:
    zeros = _parents(above, "0" + orphans), _parents("0" + above, orphans)
    lost = any(parents.is_not_null().all() for parents in zeros)
    advice = "one of the two lost leading zeros, keep codes as text" if lost else "copy both from one product"
    return ValueError(
        f"{orphans.len():,} of {below.len():,} codes at {lower}, {orphans[0]!r} first, begin with none of {upper}, "
        f"where they are such as {above[0]!r}: {advice}"
    )


def _parents(above: pl.Series, below: pl.Series) -> pl.Series:
    """For every code the longest of those above that it begins with, or null."""
    found = pl.Series([None] * below.len(), dtype=pl.String)
    for width in np.unique(above.str.len_chars().to_numpy()).tolist():
        prefix = below.str.slice(0, width)
        found = prefix.zip_with(prefix.is_in(above.implode()) & (below.str.len_chars() >= width), found)
    return found

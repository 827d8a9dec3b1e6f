"""Noticing that geounits, partitions or whole geolevels are missing from measurements of a spine."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.files.measurement_files import (
    CONSTRAINTS,
    LEVEL_SUFFIX,
    MEASUREMENTS,
    files_of,
    level_folders,
    read_keys,
)
from constraint_builders.files.settings import Settings

MOST_NAMED = 100  # geocodes in a message
MOST_DEVIATIONS = 20.0  # so far from zero no noise comes, Laplace's tails over 10^9 counts included
ADVICE = "one is missing, counted twice or in other units, or within= should leave the level out"

ByTable = Mapping[str, Mapping[str, Float]]


def require_levels(folder: str | os.PathLike[str], found: Sequence[str], settings: Settings) -> None:
    """Refuse a folder without files of a geolevel that the settings measure, below others of which it has files.

    Parameters
    ----------
    folder : path
    found : sequence of str
        The geolevels that it has geounits of, from the root down.
    settings : Settings
    """
    for name in settings.geolevels[settings.geolevels.index(found[0]) :]:
        tables = settings.budget.losses.get(name, {})
        if tables and name not in found:
            what = f"{', '.join(tables)!r:.60} at {name!r}, and there is nothing in {name}{LEVEL_SUFFIX}"
            raise ValueError(
                f"{os.fspath(folder)}: the settings measure {what}: copy that folder, or give settings without {name!r}"
            )


def require_measurements(
    folder: str | os.PathLike[str], spine: Spine, measured: Collection[str], settings: Settings
) -> None:
    """Refuse a folder without measurements of a geolevel that the settings measure, where not all are only children.

    Only children are bypassed, and in constraints alone.

    Parameters
    ----------
    folder : path
    spine : Spine
    measured : collection of str
        The geolevels of which there are rows of measurements.
    settings : Settings
    """
    for name, members in zip(spine.levels, spine.members, strict=True):
        above = spine.parent[members]
        has_siblings = (above >= 0) & (spine.child_counts[above] > 1)
        if name not in measured and settings.budget.losses.get(name) and has_siblings.any():
            raise ValueError(
                f"{os.fspath(folder)}: there are no measurements at {name!r}, only constraints: copy "
                f"{name}{LEVEL_SUFFIX}/{MEASUREMENTS} too, or give settings that measure nothing there"
            )


def require_prefixes(
    folder: str | os.PathLike[str], settings: Settings, found: Iterable[Sequence[str]], within: Sequence[str]
) -> None:
    """Refuse a prefix with which no geocode begins, naming what there is.

    Parameters
    ----------
    folder : path
    settings : Settings
    found : iterable of sequence of str
        Geocodes that were taken, by geolevel.
    within : sequence of str
    """
    for prefix in within:
        if not any(code.startswith(prefix) for codes in found for code in codes):
            raise ValueError(
                f"{os.fspath(folder)}: nothing was measured within {prefix}: no geocode begins so, leave it out; "
                f"{_what_there_is(folder, settings, prefix)}"
            )


def _what_there_is(folder: str | os.PathLike[str], settings: Settings, prefix: str) -> str:
    """The geocodes of the uppermost geolevel that has any as long as a prefix, or those most like it."""
    codes: list[str] = []
    level = ""
    for name, place in level_folders(folder, settings.geolevels).items():
        level = name
        files = [path for kind in (MEASUREMENTS, CONSTRAINTS) for path in files_of(place, kind)]
        codes = sorted({code for path in files for code in read_keys(path, None)[0] if code})
        if codes and max(map(len, codes)) >= len(prefix):
            break
    if not codes:
        return "there are no other geounits than the root"
    if len(codes) > MOST_NAMED:
        alike = [_in_common(code, prefix) for code in codes]
        codes = [code for code, own in zip(codes, alike, strict=True) if own == max(alike)]
    more = f" and {len(codes) - MOST_NAMED:,} more" if len(codes) > MOST_NAMED else ""
    return f"at {level} there are {', '.join(codes[:MOST_NAMED])}{more}"


def _in_common(code: str, prefix: str) -> int:
    """Number of leading characters that two texts share."""
    return next((i for i, (a, b) in enumerate(zip(code, prefix, strict=False)) if a != b), min(len(code), len(prefix)))


def refuse_missing_children(
    schema: Schema, spine: Spine, variances: ByTable, totals: ByTable, advice: str = ADVICE
) -> None:
    """Refuse measurements in which a geounit's count is not that of its children together, by far more than noise.

    Then children are missing: a partition was not copied, say. For every table measured at a geounit and at all its
    children the sums of all cells are compared.

    Parameters
    ----------
    schema : Schema
    spine : Spine
    variances : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Of every cell of the table; infinite where it was not measured.
    totals : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Sum of the measurements of all cells; 0 where there is none.
    advice : str
        What the message ends in.

    Raises
    ------
    ValueError
        If one differs by more than `MOST_DEVIATIONS` standard deviations; it is named.
    """
    for name in dict.fromkeys(table for tables in variances.values() for table in tables):
        counts, spread = np.zeros(spine.size), np.full(spine.size, np.inf)
        for level, tables in variances.items():
            if name in tables:
                members = spine.members[spine.level_index(level)]
                counts[members] = totals[level][name]
                spread[members] = tables[name] * parse_table(schema, name).size
        _compare(spine, name, counts, spread, advice)


def _compare(spine: Spine, name: str, counts: Float, variances: Float, advice: str) -> None:
    """Compare sums of all cells of a table in every geounit, (N,), with those of its children."""
    children = np.flatnonzero(spine.parent >= 0)
    of_children, variance_of_children = (
        np.bincount(spine.parent[children], weights=column[children], minlength=spine.size)
        for column in (counts, variances)
    )
    variance = variances + variance_of_children
    compared = (spine.child_counts > 0) & np.isfinite(variance)
    excess = np.where(compared, counts - of_children, 0.0)
    worst = int(np.argmax(abs(excess) - MOST_DEVIATIONS * np.sqrt(np.where(compared, variance, np.inf))))
    if compared[worst] and abs(excess[worst]) > MOST_DEVIATIONS * np.sqrt(variance[worst]) + 0.5:
        level, code = spine.levels[spine.level_of[worst]], spine.geocodes[worst]
        raise ValueError(
            f"{level} {code!r} counts {counts[worst]:,.0f} in table {name!r}, its {spine.child_counts[worst]} "
            f"children {of_children[worst]:,.0f}: no noise explains that; {advice}"
        )

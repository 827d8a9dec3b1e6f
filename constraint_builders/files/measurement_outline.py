"""What a folder of noisy measurements says, read file by file; the measured values are handed on as they come.

Files are read twice: first the geocodes, which make the spine, then everything, some rows at a time where memory is
limited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from constraint_builders.arrays import Flags, Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.files.exact_totals import ExactTotal, refuse_doubtful, totals_by_geounit, with_sums
from constraint_builders.files.expected_rows import AveragedTables, only_children_below
from constraint_builders.files.facility_bounds import ImpliedTotal, facility_remarks
from constraint_builders.files.kept_variables import KeptVariables
from constraint_builders.files.measured_level import Keep, Ledger, MeasuredLevel
from constraint_builders.files.measurement_files import (
    CONSTRAINTS,
    EVERY_NAME,
    MEASUREMENTS,
    files_of,
    leave_outside,
    level_folders,
    read_keys,
    require_free_names,
)
from constraint_builders.files.measurement_queries import CONSTRAINT_SUFFIX, MEASUREMENT_SUFFIX
from constraint_builders.files.missing_partitions import (
    refuse_missing_children,
    require_levels,
    require_measurements,
    require_prefixes,
)
from constraint_builders.files.naming import naming
from constraint_builders.files.reading_report import ReadingReport
from constraint_builders.files.row_accounts import RowAccounts
from constraint_builders.files.spine_of_codes import spine_of_codes
from constraint_builders.files.tabulated_places import Outside

Progress: TypeAlias = Callable[[str, int, int], None]
Begin: TypeAlias = Callable[[Spine], None]
Arrays: TypeAlias = dict[str, dict[str, Float]]  # by geolevel and table
TOTAL = "total"
BYTES_A_GEOUNIT = 1_000  # of a spine while it is made: codes, parents, and the tables that find them


@dataclass(frozen=True)
class Outline:
    """All that a folder of noisy measurements says, but for the measured values.

    Attributes
    ----------
    spine : Spine
    observed : dict of geolevel to dict of table to ndarray (geounits of the level,)
        Variances of what was measured, under canonical names; 0 exact, infinite where not measured.
    zeros : dict of (geolevel, table) to ndarray of bool
        Cells that are zero whatever was measured, (geounits, *table's shape).
    read : ReadingReport
        What became of every row, and what bounds say.
    facilities : polars.DataFrame
        Columns ``geolevel``, ``geocode``, ``type`` and ``facilities``: numbers of facilities and of housing units that
        are known exactly, where there are any.
    bytes : float
        What it took of the memory.
    """

    spine: Spine
    observed: dict[str, dict[str, Float]]
    zeros: dict[tuple[str, str], Flags]
    read: ReadingReport
    facilities: pl.DataFrame
    bytes: float


def read_outline(
    folder: str | os.PathLike[str],
    kept: KeptVariables,
    keep: Keep,
    *,
    begin: Begin | None = None,
    within: Sequence[str] | None = None,
    totals: Sequence[ExactTotal] = (),
    memory: float | None = None,
    progress: Progress | None = None,
) -> Outline:
    """Read a folder of noisy measurements, and hand on the values.

    Parameters
    ----------
    folder, within, totals, progress
        As in `read_noisy_measurements`.
    kept : KeptVariables
    keep : callable
        Called with a geolevel, the canonical name of a table, numbers of geounits within their level (G,), their
        values (G, cells), and the share (G,) that these are to have beside what was kept before, None if they are all
        there is; for some rows of a file after others. Where there is a share it returns the squares of what values
        and those before differ by, summed over cells, (G,).
    begin : callable, optional
        Called before, with the spine.
    memory : float, optional
        Bytes that reading may take; by default there is no limit, and files are read whole.

    Returns
    -------
    Outline

    Raises
    ------
    ValueError, OSError
        As `read_noisy_measurements`.
    MemoryError
        If the spine, the variances and the zeros alone need more than `memory`.
    """
    settings = kept.source
    require_free_names(settings.schema)
    if within is not None and not all(within):
        raise ValueError("within '' names no geounits: give the first characters of their geocodes, or leave it out")
    accounts, outside, averaged = RowAccounts(), Outside(within), AveragedTables()
    ledger = Ledger(memory)
    levels = _read_levels(folder, kept, within, outside, accounts, ledger, averaged)
    require_prefixes(folder, settings, [level.geocodes.to_list() for level in levels.values()], within or ())
    if not any(level.geocodes.len() for level in levels.values()):
        raise _nothing_measured(folder, accounts, within)
    require_levels(folder, [name for name, level in levels.items() if level.geocodes.len()], settings)
    ledger.claim(BYTES_A_GEOUNIT * sum(level.geocodes.len() for level in levels.values()))
    with naming(folder):
        codes = {name: level.geocodes for name, level in levels.items()}
        spine, remarks = spine_of_codes(codes, settings.geolevels, within)
        in_part = outside.cutting(spine.geocodes, _leaves(spine), settings.name)
        spine = with_sums(spine, totals)
    require_measurements(folder, spine, [name for name, level in levels.items() if level.has_measurements], settings)
    if begin is not None:
        begin(spine)
    only_children = only_children_below(spine)
    remarks += in_part.remarks()
    for number, (name, level) in enumerate(levels.items()):
        if progress is not None:
            progress(name, number, len(levels))
        remarks += level.read(keep, spine, only_children) if level.geocodes.len() else ()
    if not any(level.is_measured for level in levels.values()):
        raise _nothing_measured(folder, accounts, within)
    observed = {name: level.variances for name, level in levels.items() if level.variances}
    sums = {name: level.totals for name, level in levels.items() if level.variances}
    with naming(folder):
        refuse_missing_children(kept.target.schema, spine, observed, sums)
    implied = {name: level.bounds.implied() for name, level in levels.items()}
    stated = totals_by_geounit(totals, spine)
    for position in sorted(stated, key=lambda own: -spine.level_of[own]):  # those above are compared with those below
        known = stated[position]
        refuse_doubtful(kept.target.schema, known, position, spine, observed, sums, implied, kept.target.noise)
        _add_total(known, position, spine, observed, sums, keep, levels)
    if stated:
        places = ", ".join(dict.fromkeys(known.place.rpartition(",")[0] for known in stated.values()))
        with naming(folder):
            advice = f"are the totals of {places} of these measurements, and of this year?"
            refuse_missing_children(kept.target.schema, spine, observed, sums, advice)
    zeros = {(name, table): cells for name, level in levels.items() for table, cells in level.zeros.items()}
    facilities = _facilities(levels)
    lowest = facilities.filter(pl.col("geolevel") == facilities["geolevel"][-1]) if facilities.height else facilities
    counts = lowest.group_by("type", maintain_order=True).agg(pl.col("facilities").sum())
    coupled = {settings.schema.names[recode.axis] for recode in settings.schema.recodes}
    coupled |= {variable for level in levels.values() for variable in level.spoken_of}
    types = max((level.types for level in levels.values()), key=len)
    remarks += facility_remarks({name: level.bounds for name, level in levels.items()}, types, spine)
    remarks += averaged.remarks()
    totals_of_bounds = _implied(levels, observed, sums)
    remarks += (remark for own in totals_of_bounds for remark in own.remarks())
    read = ReadingReport(
        rows=accounts.totals(),
        unused=accounts.unused(),
        facilities=dict(counts.rows()),
        implied=totals_of_bounds,
        summed_out=kept.summed_out,
        is_lossless=not coupled.intersection(kept.summed_out),
        in_part=in_part,
        remarks=tuple(remarks),
    )
    return Outline(spine, _in_order(kept.target.schema, observed), zeros, read, facilities, ledger.claimed)


def _in_order(schema: Schema, observed: Arrays) -> Arrays:
    """The tables of every geolevel in order, whatever that of the rows is."""
    return {
        level: {name: tables[name] for name in sorted(tables, key=lambda name: parse_table(schema, name).sort_key)}
        for level, tables in observed.items()
    }


def _leaves(spine: Spine) -> list[str]:
    return [spine.geocodes[i] for i in np.flatnonzero(spine.child_counts == 0).tolist()]


def _facilities(levels: Mapping[str, MeasuredLevel]) -> pl.DataFrame:
    """Numbers of facilities by geolevel, geocode and type."""
    empty = pl.DataFrame(
        schema={"geolevel": pl.String, "geocode": pl.String, "type": pl.String, "facilities": pl.Int64}
    )
    found = [level.facilities() for level in levels.values()]
    return pl.concat([empty, *(own.select(empty.columns) for own in found)])


def _implied(levels: Mapping[str, MeasuredLevel], observed: Arrays, sums: Arrays) -> tuple[ImpliedTotal, ...]:
    """The totals of persons that bounds imply, beside what is known of them."""
    found = []
    for name, level in levels.items():
        unknown = np.full(level.geocodes.len(), np.inf)
        variances, totals = (own.get(name, {}).get(TOTAL, unknown) for own in (observed, sums))
        for unit, total in level.bounds.implied().items():
            known = float(totals[unit]) if np.isfinite(variances[unit]) else None
            deviation = 0.0 if known is None else float(np.sqrt(variances[unit]))
            found.append(ImpliedTotal(name, level.geocodes[unit], total, known, deviation))
    return tuple(found)


def _add_total(
    known: ExactTotal,
    position: int,
    spine: Spine,
    observed: Arrays,
    sums: Arrays,
    keep: Keep,
    levels: Mapping[str, MeasuredLevel],
) -> None:
    """Put an exact total in place of what was measured of it."""
    number = int(spine.level_of[position])
    level, rank, count = spine.levels[number], spine.rank_in_level[position], spine.members[number].size
    variances = observed.setdefault(level, {}).setdefault(TOTAL, np.full(count, np.inf))
    totals = sums.setdefault(level, {}).setdefault(TOTAL, np.zeros(count))
    if 0 < variances[rank] < np.inf:
        levels[level].leave_measured(np.array([rank]), TOTAL, known.place.rpartition(",")[0])
    variances[rank], totals[rank] = 0, known.total
    keep(level, TOTAL, np.array([rank]), np.array([[known.total]]), None)


def _read_levels(
    folder: str | os.PathLike[str],
    kept: KeptVariables,
    within: Sequence[str] | None,
    outside: Outside,
    accounts: RowAccounts,
    ledger: Ledger,
    averaged: AveragedTables,
) -> dict[str, MeasuredLevel]:
    """All geolevels, with their geocodes only."""
    levels = {}
    for name, place in level_folders(folder, kept.source.geolevels).items():
        files, geocodes = [], pl.Series("geocode", [], dtype=pl.String)
        for kind in (MEASUREMENTS, CONSTRAINTS):
            for path in files_of(place, kind):
                own, names, height = read_keys(path, within, outside)
                _require_kind(path, kind, names)
                geocodes = pl.concat([geocodes, own]).unique()
                if own.len():
                    files.append((kind, path))
                else:
                    accounts.saw(name, kind, height)
                    leave_outside(name, kind, height, within, accounts)
        levels[name] = MeasuredLevel(name, files, geocodes.sort(), kept, within, accounts, ledger, averaged)
    return levels


def _require_kind(path: Path, kind: str, names: pl.Series) -> None:
    """Refuse constraints among measurements, and measurements among constraints."""
    other = CONSTRAINT_SUFFIX if kind == MEASUREMENTS else MEASUREMENT_SUFFIX
    strange = names.filter(names.str.ends_with(other)).sort()
    if strange.len():
        raise ValueError(f"{path}: it holds {strange[0]!r}, which does not belong in {kind}: copy the folder anew")


def _nothing_measured(
    folder: str | os.PathLike[str], accounts: RowAccounts, within: Sequence[str] | None
) -> ValueError:
    return ValueError(f"{os.fspath(folder)}: nothing was measured{_explained(accounts, within)}")


def _explained(accounts: RowAccounts, within: Sequence[str] | None) -> str:
    for geolevel, name, _, reason in accounts.unused():
        if name != EVERY_NAME:
            return f" that can be used; {name!r} at {geolevel}: {reason}"
    return f" within {', '.join(within)}" if within else ""

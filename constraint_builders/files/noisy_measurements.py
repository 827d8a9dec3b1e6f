"""Noisy measurement files: the layout in which the Census Bureau publishes what its mechanism measured.

::

    <folder>/<Geolevel>.parquet/DPQuery/.../*.parquet       one row: one table in one geounit
    <folder>/<Geolevel>.parquet/Constraint/.../*.parquet    one row: one constraint on one geounit

==============  ==================================================================================================
column          holds
==============  ==================================================================================================
``geocode``     the geounit's; a parent's is a prefix of its children's, of any width; empty for the US
``query_name``  factors joined by ``*``, ``total`` or ``detailed``, then ``_dpq``; or a name and ``_con``
``value``       list of numbers, the table's cells in C order; empty where not measured
``variance``    of the noise of every cell of the row (DPQuery)
``sign``        ``=``, ``<=`` or ``>=`` (Constraint only)
one for each    for every variable ``*`` where summed out, ``detailed``, or a recode's name; needed for constraints,
variable        optional for measurements
==============  ==================================================================================================

Files may differ in the order of columns and the width of numbers, and may lie in any partitions, whose names are not
read. Other columns are ignored, but for ``query_shape``, which must be the table's. A geounit in which nothing was
measured may be in Constraint only.

Files are read twice: first the geocodes, which make the spine, then everything, some rows at a time where memory is
limited. Measured values are put in their places in one vector as files are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Flags, Float, Index, as_slice
from constraint_builders.description.layout import Layout
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import parse_table
from constraint_builders.files.exact_totals import ExactTotal, refuse_doubtful, totals_by_geounit, with_sums
from constraint_builders.files.expected_rows import (
    AveragedTables,
    only_children_below,
    refuse_missing_children,
    require_levels,
    require_measurements,
    require_prefixes,
)
from constraint_builders.files.kept_variables import KeptVariables, keep_variables
from constraint_builders.files.measured_level import TOTAL, Keep, Ledger, MeasuredLevel, blended
from constraint_builders.files.measurement_files import (
    CONSTRAINTS,
    EVERY_NAME,
    MEASUREMENTS,
    files_of,
    level_folders,
    read_keys,
    require_free_names,
    require_kind,
)
from constraint_builders.files.measurement_rows import RowReader
from constraint_builders.files.naming import naming
from constraint_builders.files.reading_report import ReadingReport, RowAccounts, Unused, facility_remarks
from constraint_builders.files.settings import Settings
from constraint_builders.files.spine_of_codes import spine_of_codes
from constraint_builders.files.tabulated_places import Outside
from constraint_builders.problem import Problem

Progress: TypeAlias = Callable[[str, int, int], None]
Arrays: TypeAlias = dict[str, dict[str, Float]]  # by geolevel and table
BYTES_A_GEOUNIT = 1_000  # of a spine while it is made: codes, parents, and the tables that find them
FACILITIES = {"geolevel": pl.String, "geocode": pl.String, "type": pl.String, "facilities": pl.Int64}


class MeasuredVector:
    """Blocks of tables as they are met, put in order at the end."""

    def __init__(self) -> None:
        self._geounits: dict[str, int] = {}
        self._blocks: dict[tuple[str, str], Float] = {}

    def begin(self, spine: Spine) -> None:
        """Take note of how many geounits every geolevel has."""
        self._geounits = {name: members.size for name, members in zip(spine.levels, spine.members, strict=True)}

    def keep(self, level: str, table: str, geounits: Index, values: NDArray, share: Float | None) -> Float | None:
        """Put in the values, (G, cells), of some geounits; as `read_outline` hands them on, and wants to know."""
        if (level, table) not in self._blocks:
            self._blocks[level, table] = np.zeros((self._geounits[level], values.shape[1]))
        block, rows, apart = self._blocks[level, table], as_slice(geounits), None
        if share is not None:
            values, apart = blended(values, block[rows], share)
        block[rows] = values
        return apart

    def vector(self, layout: Layout) -> Float:
        """All of them over a layout, 0 where nothing was kept; nothing can be kept after it."""
        y = np.zeros(layout.size)
        for key in list(self._blocks):
            y[layout.slice(key)] = self._blocks.pop(key).ravel()
        return y


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
        As of `Release`.
    bytes : float
        What it took of the memory.
    """

    spine: Spine
    observed: dict[str, dict[str, Float]]
    zeros: dict[tuple[str, str], Flags]
    read: ReadingReport
    facilities: pl.DataFrame
    bytes: float


@dataclass(frozen=True)
class Release:
    """What a folder of noisy measurements says.

    Attributes
    ----------
    problem : Problem
        Observing, at every geolevel, the measured tables and those known exactly, under their canonical names, with
        the structural zeros.
    y : ndarray, (n,)
        The measurements over its observed layout, NaN where there is none.
    zeros : mapping of (geolevel, table) to ndarray of bool
        Cells that are zero whatever was measured, (geounits, *table's shape).
    read : ReadingReport
        What became of every row, and what bounds say.
    facilities : polars.DataFrame
        Columns ``geolevel``, ``geocode``, ``type`` and ``facilities``: how many facilities of every type, and housing
        units, there are, where bounds say so and there are any.
    settings : Settings
        Those of the variables that were kept.
    """

    problem: Problem
    y: Float
    zeros: Mapping[tuple[str, str], NDArray[np.bool_]]
    read: ReadingReport
    facilities: pl.DataFrame
    settings: Settings

    @property
    def unused(self) -> tuple[Unused, ...]:
        """Rows that are not used, by name, with the reason."""
        return self.read.unused


def read_noisy_measurements(
    folder: str | os.PathLike[str],
    settings: Settings,
    *,
    desired: Mapping[str, Sequence[str] | str] | Sequence[str] | str | None = None,
    within: Sequence[str] | None = None,
    totals: Sequence[ExactTotal] = (),
    variables: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Release:
    """Read a folder of noisy measurements.

    Parameters
    ----------
    folder : path
        See the layout above.
    settings : Settings
        Of which the schema, the order of the geolevels, the law of the noise and the names in constraints are used;
        variances are the files' own.
    desired
        As in `Problem`.
    within : sequence of str, optional
        Read only geounits whose geocodes begin with one of these: ``["041", "141"]`` for both branches of Oregon.
        Geounits above are left out, since their counts include others.
    totals : sequence of ExactTotal, optional
        Totals that are known exactly, as `read_totals` reads them.
    variables : sequence of str, optional
        Those of the schema to keep: every table is summed over the others as it is read; see
        `constraint_builders.files.kept_variables`. By default all.
    progress : callable, optional
        Called with each geolevel, its number from 0, and how many there are, before it is read.

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        If a file cannot be understood (it is named, with the column and the row), nothing was measured, or nothing
        within one of the prefixes, or nothing at a geolevel that the settings measure below others, a geounit is given
        twice for one table, a geounit above the lowest level has none below, or one below has none at the level above,
        counts of a geounit and of its children differ by more than noise, or a total from what is known of it.
    OSError
        If the folder cannot be opened.
    """
    kept, found = keep_variables(settings, variables), MeasuredVector()
    outline = read_outline(folder, kept, found.keep, begin=found.begin, within=within, totals=totals, progress=progress)
    zeros = outline.zeros
    law, schema = kept.target.noise, kept.target.schema
    problem = Problem(schema, outline.observed, desired, spine=outline.spine, zeros=zeros or None, noise=law)
    y = found.vector(problem.observed)
    for level, tables in outline.observed.items():
        for table, variances in tables.items():
            y[problem.observed.slice((level, table))].reshape(variances.size, -1)[np.isinf(variances)] = np.nan
    problem.check_vector(y)
    return Release(problem, y, zeros, outline.read, outline.facilities, kept.target)


def read_outline(
    folder: str | os.PathLike[str],
    kept: KeptVariables,
    keep: Keep,
    *,
    begin: Callable[[Spine], None] | None = None,
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
    settings, target = kept.source, kept.target
    require_free_names(settings.schema)
    if within is not None and not all(within):
        raise ValueError("within '' names no geounits: give the first characters of their geocodes, or leave it out")
    accounts, outside, averaged, ledger = RowAccounts(), Outside(within), AveragedTables(), Ledger(memory)
    levels = _read_levels(folder, kept, within, outside, accounts, ledger, averaged)
    codes = {name: level.geocodes for name, level in levels.items()}
    there = [name for name, own in codes.items() if own.len()]
    with naming(folder):
        require_prefixes(folder, settings, [own.to_list() for own in codes.values()], within or ())
        if not there:
            raise _nothing_measured(accounts, within)
        require_levels(there, settings)
        ledger.claim(BYTES_A_GEOUNIT * sum(own.len() for own in codes.values()))
        spine, remarks = spine_of_codes(codes, settings.geolevels, within)
        leaves = [spine.geocodes[i] for i in np.flatnonzero(spine.child_counts == 0).tolist()]
        in_part = outside.cutting(spine.geocodes, leaves, settings.name)
        spine = with_sums(spine, totals)
        require_measurements(spine, [name for name, level in levels.items() if level.has_measurements], settings)
    if begin is not None:
        begin(spine)
    only_children = only_children_below(spine)
    remarks += in_part.remarks()
    for number, (name, level) in enumerate(levels.items()):
        if progress is not None:
            progress(name, number, len(levels))
        remarks += level.read(keep, spine, only_children) if level.geocodes.len() else ()
    observed = {name: level.variances for name, level in levels.items()}
    sums = {name: level.totals for name, level in levels.items()}
    with naming(folder):
        if not any(level.is_measured for level in levels.values()):
            raise _nothing_measured(accounts, within)
        refuse_missing_children(target.schema, spine, observed, sums)
    implied = {name: level.bounds.implied() for name, level in levels.items()}
    stated = totals_by_geounit(totals, spine)
    for position in sorted(stated, key=lambda own: -spine.level_of[own]):  # those above are compared with those below
        known = stated[position]
        refuse_doubtful(target.schema, known, position, spine, observed, sums, implied, target.noise)
        _add_total(known, position, spine, observed, sums, keep, levels)
    if stated:
        places = ", ".join(dict.fromkeys(known.place.rpartition(",")[0] for known in stated.values()))
        with naming(folder):
            advice = f"are the totals of {places} of these measurements, and of this year?"
            refuse_missing_children(target.schema, spine, observed, sums, advice)
    zeros = {(name, table): cells for name, level in levels.items() for table, cells in level.zeros.items()}
    facilities = pl.concat([pl.DataFrame(schema=FACILITIES), *(level.facilities() for level in levels.values())])
    lowest = facilities.filter(pl.col("geolevel") == facilities["geolevel"][-1]) if facilities.height else facilities
    counts = lowest.group_by("type", maintain_order=True).agg(pl.col("facilities").sum())
    coupled = {settings.schema.names[recode.axis] for recode in settings.schema.recodes}
    coupled |= {variable for level in levels.values() for variable in level.told_apart}
    types = max((level.types for level in levels.values()), key=len)
    remarks += facility_remarks({name: level.bounds for name, level in levels.items()}, types, spine)
    remarks += averaged.remarks()
    totals_of_bounds = tuple(own for level in levels.values() for own in level.implied())
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
    in_order = {  # whatever that of the rows is
        level: dict(sorted(tables.items(), key=lambda item: parse_table(target.schema, item[0]).sort_key))
        for level, tables in observed.items()
        if tables
    }
    return Outline(spine, in_order, zeros, read, facilities, ledger.claimed)


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
        reader = RowReader(name, kept.source, within, accounts, ledger.at_once(), kept.units)
        files: dict[str, list[Path]] = {MEASUREMENTS: [], CONSTRAINTS: []}
        geocodes = pl.Series("geocode", [], dtype=pl.String)
        for kind, taken in files.items():
            for path in files_of(place, kind):
                own, names, height = read_keys(path, within, outside)
                require_kind(path, kind, names)
                geocodes = pl.concat([geocodes, own]).unique()
                if own.len():
                    taken.append(path)
                else:
                    accounts.saw(name, kind, height)
                    reader.leave_outside(kind, height)
        levels[name] = MeasuredLevel(files, geocodes.sort(), kept, reader, ledger, averaged)
    return levels


def _nothing_measured(accounts: RowAccounts, within: Sequence[str] | None) -> ValueError:
    reasons = (
        f" that can be used; {name!r} at {geolevel}: {reason}"
        for geolevel, name, _, reason in accounts.unused()
        if name != EVERY_NAME
    )
    explained = next(reasons, f" within {', '.join(within)}" if within else "")
    return ValueError(f"nothing was measured{explained}")

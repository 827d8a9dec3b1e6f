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
``sign``        ``=``, ``<=`` or ``>=`` (Constraint)
one for each    for every variable ``*`` where summed out, ``detailed``, or a recode's name; needed for constraints,
variable        optional for measurements
==============  ==================================================================================================

Files may differ in the order of columns and the width of numbers, and may lie in any partitions, whose names are not
read. Other columns are ignored, but for ``query_shape``, which must be the table's. A geounit in which nothing was
measured may be in Constraint only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.files.measurement_constraints import ExactCounts, Zeros, read_constraints
from constraint_builders.files.measurement_files import (
    CONSTRAINTS,
    MEASUREMENTS,
    Leftovers,
    Measurements,
    Unused,
    files_of,
    level_folders,
    read_measurements,
)
from constraint_builders.files.missing_partitions import refuse_missing_children
from constraint_builders.files.naming import naming
from constraint_builders.files.settings import Settings
from constraint_builders.layout import Float
from constraint_builders.problem import Problem
from constraint_builders.spine import Spine
from constraint_builders.table import Table

Progress: TypeAlias = Callable[[str, int, int], None]
ROOT = "Root"


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
    unused : tuple of Unused
        Rows that are not used, by name, with the reason.
    """

    problem: Problem
    y: Float
    zeros: Mapping[tuple[str, str], NDArray[np.bool_]]
    unused: tuple[Unused, ...]


@dataclass(frozen=True)
class _Level:
    """All rows of one geolevel."""

    name: str
    geocodes: list[str]
    measurements: list[Measurements]
    zeros: list[Zeros]
    exact: list[ExactCounts]


def read_noisy_measurements(
    folder: str | os.PathLike[str],
    settings: Settings,
    *,
    desired: Mapping[str, Sequence[str] | str] | Sequence[str] | str | None = None,
    within: Sequence[str] | None = None,
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
        Read only geounits whose geocodes begin with one of these: ``["044", "144"]`` for both branches of Rhode
        Island. Geounits above are left out, since their counts include others.
    progress : callable, optional
        Called with each geolevel, its number from 0, and how many there are, before it is read.

    Returns
    -------
    Release

    Raises
    ------
    ValueError
        If a file cannot be understood (it is named, with the column and the row), nothing was measured, a geounit is
        given twice for one table, a geounit above the lowest level has none below, or one below has none above, or
        counts of a geounit and of its children differ by more than noise.
    OSError
        If the folder cannot be opened.
    """
    leftovers = Leftovers()
    folders = level_folders(folder, settings.geolevels)
    levels = []
    for number, (name, place) in enumerate(folders.items()):
        if progress is not None:
            progress(name, number, len(folders))
        level = _read_level(name, place, settings, within, leftovers)
        if level.geocodes:
            levels.append(level)
    if not any(level.measurements for level in levels):
        raise ValueError(f"{os.fspath(folder)}: nothing was measured{_explained(leftovers, within)}")
    spine = _spine(levels, settings.geolevels)
    collected = {level.name: _Collected(level, leftovers) for level in levels}
    zeros = {(name, table): cells for name, tables in collected.items() for table, cells in tables.zeros().items()}
    problem = Problem(
        settings.schema,
        {name: tables.variances for name, tables in collected.items() if tables.variances},
        desired,
        spine=spine,
        zeros=zeros or None,
        noise=settings.noise,
    )
    y = np.full(problem.observed.size, np.nan)
    for name, tables in collected.items():
        tables.fill(name, problem, y)
    problem.check_vector(y)
    with naming(folder):
        refuse_missing_children(problem, y)
    return Release(problem, y, zeros, leftovers.listed())


def _read_level(
    name: str, place: Path, settings: Settings, within: Sequence[str] | None, leftovers: Leftovers
) -> _Level:
    geocodes: list[pl.Series] = []
    measurements: list[Measurements] = []
    zeros: list[Zeros] = []
    exact: list[ExactCounts] = []
    for path in files_of(place, MEASUREMENTS):
        codes, measured = read_measurements(path, name, settings.schema, within, leftovers)
        geocodes.append(codes.unique())
        measurements += measured
    for path in files_of(place, CONSTRAINTS):
        codes, implied, known = read_constraints(path, name, settings, within, leftovers)
        geocodes.append(codes.unique())
        zeros += implied
        exact += known
    different = pl.concat(geocodes).unique().sort().to_list() if geocodes else []
    return _Level(name, different, measurements, zeros, exact)


def _explained(leftovers: Leftovers, within: Sequence[str] | None) -> str:
    if leftovers.counts:
        geolevel, name, reason = next(iter(leftovers.counts))
        return f" that can be used; {name!r} at {geolevel}: {reason}"
    return f" within {', '.join(within)}" if within else ""


def _spine(levels: Sequence[_Level], geolevels: Sequence[str]) -> Spine:
    """The tree of the geocodes, under a root of its own if there are several at the top."""
    by_level = {level.name: level.geocodes for level in levels}
    top = levels[0]
    if len(top.geocodes) > 1:
        above = geolevels.index(top.name) - 1
        by_level = {geolevels[above] if above >= 0 else ROOT: [""], **by_level}
    spine = Spine.from_geocodes(by_level)
    lowest = spine.level_index(levels[-1].name)
    childless = np.flatnonzero((spine.child_counts == 0) & (spine.level_of < lowest))
    if childless.size:
        level, code = spine.levels[spine.level_of[childless[0]]], spine.geocodes[childless[0]]
        raise ValueError(
            f"{level} {code!r} has no geounits below it, as {childless.size:,} in all: a partition is missing, or "
            "within= should leave it out"
        )
    return spine


class _Collected:
    """Measurements and exact counts of one geolevel, by table and geounit.

    Attributes
    ----------
    variances : dict of str to ndarray, (geounits,)
        By table; infinite where it was not measured.
    """

    def __init__(self, level: _Level, leftovers: Leftovers) -> None:
        self._level = level
        self._leftovers = leftovers
        self._number = {code: i for i, code in enumerate(level.geocodes)}
        self.variances: dict[str, Float] = {}
        self._parts: list[tuple[str, NDArray[np.int64], NDArray]] = []
        for rows in level.measurements:
            self._add_measurements(rows)
        for counts in level.exact:
            self._add_exact(counts)

    def _positions(self, geocodes: pl.Series) -> NDArray[np.int64]:
        return geocodes.replace_strict(self._number, return_dtype=pl.Int64).to_numpy()

    def _of(self, table: Table) -> Float:
        return self.variances.setdefault(table.name, np.full(len(self._number), np.inf))

    def _add_measurements(self, rows: Measurements) -> None:
        geounits, variances = self._positions(rows.geocodes), self._of(rows.table)
        repeated = np.bincount(geounits, minlength=variances.size)[geounits] + np.isfinite(variances[geounits]) > 1
        if repeated.any():
            code = rows.geocodes[int(repeated.argmax())]
            raise ValueError(
                f"{rows.path}: table {rows.table.name!r} of {self._level.name} {code!r} is given twice: once is enough"
            )
        variances[geounits] = rows.variances
        self._parts.append((rows.table.name, geounits, rows.values))

    def _add_exact(self, counts: ExactCounts) -> None:
        """Exact counts of what was not measured; a constraint never replaces a measurement of the same name."""
        geounits = self._positions(counts.geocodes)
        variances = self.variances.get(counts.table.name)
        free = np.full(geounits.size, True) if variances is None else np.isinf(variances[geounits])
        reason = f"table {counts.table.name!r} is already given there"
        self._leftovers.add(self._level.name, counts.name, reason, int((~free).sum()))
        if free.any():
            self._of(counts.table)[geounits[free]] = 0
            self._parts.append((counts.table.name, geounits[free], counts.values[free]))

    def fill(self, name: str, problem: Problem, y: Float) -> None:
        """Lay the values in `y`, over the problem's observed layout."""
        for table, geounits, values in self._parts:
            block = y[problem.observed.slice((name, table))].reshape(len(self._number), -1)
            block[geounits] = values

    def zeros(self) -> dict[str, NDArray[np.bool_]]:
        """Structural zeros by table, (geounits, *shape)."""
        return _merged(self._level.zeros, self._positions, len(self._number))


def _merged(
    zeros: Iterable[Zeros], positions: Callable[[pl.Series], NDArray[np.int64]], geounits: int
) -> dict[str, NDArray[np.bool_]]:
    """Zeros of one table from several constraints, together."""
    found: dict[str, NDArray[np.bool_]] = {}
    for rows in zeros:
        cells = found.setdefault(rows.table.name, np.zeros((geounits, *rows.table.shape), dtype=bool))
        flat = cells.reshape(geounits, -1)
        np.logical_or.at(flat, positions(rows.geocodes), rows.cells)
    return found

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

Measured values are put in their places in one vector as files are read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.description.layout import Layout
from constraint_builders.description.spine import Spine
from constraint_builders.files.exact_totals import ExactTotal
from constraint_builders.files.kept_variables import blended, keep_variables
from constraint_builders.files.measurement_outline import Progress, read_outline
from constraint_builders.files.reading_report import ReadingReport
from constraint_builders.files.row_accounts import Unused
from constraint_builders.files.settings import Settings
from constraint_builders.problem import Problem


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

"""Estimates on a spine, stored in a folder from which questions about any geounits are answered (`results`).

::

    <folder>/settings.toml               schema, geolevels and law of the noise
    <folder>/spine.parquet               geolevel, geocode, parent (row of this file, -1 for the root)
    <folder>/variances.parquet           geolevel, table, geounit (number within the level), variance
    <folder>/zeros.parquet               geounit (row of spine.parquet), empty (list over the cells of the variables
                                         that result.json names); if there are structural zeros
    <folder>/estimates/<Geolevel>.parquet table, geocode, estimate and std_error (lists, cells in C order); a file, or a
                                         folder of the files of parts
    <folder>/result.json                 how the estimates were made; written last
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from blue_solvers.operator import BlueOperator
from blue_solvers.solver import Float, Info
from constraint_builders import Problem, Spine
from constraint_builders.files.new_folder import new_folder
from constraint_builders.files.parquet import write_parquet
from constraint_builders.files.replacing import replacing
from constraint_builders.files.settings import Settings
from constraint_builders.table import Table
from constraint_builders.zeros import StructuralZeros

FORMAT = 1
OUTLINE, SETTINGS = "result.json", "settings.toml"
SPINE, VARIANCES, ZEROS = "spine.parquet", "variances.parquet", "zeros.parquet"
ROW_GROUP = 1_024  # rows of estimates read together: a question about few geounits reads few such groups

Progress = Callable[[str, int, int], None]


def write_result(
    folder: str | os.PathLike[str],
    P: BlueOperator,
    estimate: Float,
    std_error: Float,
    settings: Settings,
    progress: Progress | None = None,
) -> None:
    """Store estimates, whole or not at all.

    Parameters
    ----------
    folder : path
        Made anew.
    P : BlueOperator
        Of a problem on a spine, with one variance for each table of a geounit.
    estimate, std_error : ndarray, (m,)
        Over the desired layout.
    settings : Settings
        With the problem's schema.
    progress : callable, optional
        Called with each geolevel, its number from 0, and how many there are, before it is written.

    Raises
    ------
    ValueError
        If the problem has no spine, equalities, or unequal variances within a table of a geounit.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    problem = P.problem
    if problem.spine is None or problem.geounit_variances is None:
        raise ValueError("results are stored for a spine with one variance for each table of a geounit")
    if problem.equalities is not None:
        raise ValueError("results are not stored for problems with equalities: give exact counts the variance 0")
    spine = problem.spine
    with new_folder(folder) as temporary:
        write_measured(temporary, settings, spine, _observed(problem), problem.zeros)
        (temporary / "estimates").mkdir()
        for number, level in enumerate(spine.levels):
            if progress is not None:
                progress(level, number, len(spine.levels))
            tables = list(_estimates_at(problem, estimate, std_error, number))
            if tables:
                geocodes = [spine.geocodes[i] for i in spine.members[number].tolist()]
                write_estimates(estimates_of(temporary, level), geocodes, tables)
        write_description(temporary, settings, P.info, () if problem.zeros is None else problem.zeros.axes)


def estimates_of(folder: Path, geolevel: str) -> Path:
    """Where the estimates of a geolevel are."""
    return folder / "estimates" / f"{geolevel}.parquet"


def write_measured(
    folder: Path,
    settings: Settings,
    spine: Spine,
    observed: Mapping[str, Mapping[str, Float]],
    zeros: StructuralZeros | None,
) -> None:
    """Write what variances follow from.

    Parameters
    ----------
    folder : Path
    settings : Settings
    spine : Spine
    observed : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Variances; infinite where not measured.
    zeros : StructuralZeros or None
    """
    (folder / SETTINGS).write_text(settings.text, encoding="utf-8", newline="\n")
    levels = np.array(spine.levels)[spine.level_of]
    rows = {"geolevel": levels.tolist(), "geocode": list(spine.geocodes), "parent": spine.parent}
    write_parquet(pl.DataFrame(rows), folder / SPINE)
    write_parquet(_variance_rows(observed), folder / VARIANCES)
    if zeros is not None:
        write_parquet(_zero_rows(zeros), folder / ZEROS)


def write_description(folder: Path, settings: Settings, info: Info, zero_axes: Sequence[int]) -> None:
    """Say how the estimates were made, and which variables tell zeros apart; after that the result is whole."""
    said = {
        "format": FORMAT,
        "settings": settings.name,
        "noise": settings.noise,
        "solver": info.solver,
        "exact": info.exact,
        "reason": info.reason,
        "zeros": [settings.schema.names[axis] for axis in zero_axes],
    }
    with replacing(folder / OUTLINE) as temporary:
        temporary.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def write_estimates(
    path: Path, geocodes: Sequence[str], tables: Sequence[tuple[Table, Float, Float | None]], **options: Any
) -> None:
    """Write tables of some geounits of one geolevel.

    Parameters
    ----------
    path : Path
    geocodes : sequence of str, (G,)
    tables : sequence of (Table, ndarray (G, cells), ndarray (G, cells) or None)
        Estimates and standard errors.
    **options
        As `polars.DataFrame.write_parquet` takes them.
    """
    codes = pl.Series("geocode", geocodes, dtype=pl.String)
    frames = [_rows(table, codes, estimate, std_error) for table, estimate, std_error in tables]
    write_parquet(pl.concat(frames), path, row_group_size=ROW_GROUP, **options)


def _rows(table: Table, geocodes: pl.Series, estimate: Float, std_error: Float | None) -> pl.DataFrame:
    columns = {"estimate": estimate} if std_error is None else {"estimate": estimate, "std_error": std_error}
    shape = (geocodes.len(), table.size)
    lists = (pl.Series(name, cells.ravel()).reshape(shape).arr.to_list() for name, cells in columns.items())
    return pl.DataFrame([pl.repeat(table.name, geocodes.len(), eager=True).alias("table"), geocodes, *lists])


def _observed(problem: Problem) -> dict[str, dict[str, Float]]:
    assert problem.spine is not None
    assert problem.geounit_variances is not None
    observed: dict[str, dict[str, Float]] = {}
    for table, level, variances in zip(
        problem.observed_tables, problem.observed_levels, problem.geounit_variances, strict=True
    ):
        observed.setdefault(problem.spine.levels[level], {})[table.name] = variances
    return observed


def _estimates_at(
    problem: Problem, estimate: Float, std_error: Float, level: int
) -> Iterator[tuple[Table, Float, Float]]:
    for index, table in enumerate(problem.desired_tables):
        if problem.desired_levels[index] == level:
            place = problem.desired.block(index)
            yield table, estimate[place].reshape(-1, table.size), std_error[place].reshape(-1, table.size)


def _variance_rows(observed: Mapping[str, Mapping[str, Float]]) -> pl.DataFrame:
    parts = []
    for level, tables in observed.items():
        for table, variances in tables.items():
            measured = np.flatnonzero(np.isfinite(variances))
            rows = pl.DataFrame({"geounit": measured, "variance": variances[measured]})
            parts.append(rows.with_columns(geolevel=pl.lit(level), table=pl.lit(table)))
    return pl.concat(parts)


def _zero_rows(zeros: StructuralZeros) -> pl.DataFrame:
    cells: NDArray[np.bool_] = zeros.empty.reshape(len(zeros.empty), -1)
    geounits = np.flatnonzero(cells.any(axis=1))
    lists = pl.Series("empty", cells[geounits].ravel()).reshape((geounits.size, cells.shape[1])).arr.to_list()
    return pl.DataFrame([pl.Series("geounit", geounits), lists])

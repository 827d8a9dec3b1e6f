"""Writing measurements in the layout of noisy measurement files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import by_table
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.arrow_files import write_parquet
from constraint_builders.files.measurement_files import (
    CONSTRAINT_SUFFIX,
    CONSTRAINTS,
    LEVEL_SUFFIX,
    MEASUREMENT_SUFFIX,
    MEASUREMENTS,
    require_free_names,
)
from constraint_builders.files.measurement_rows import DETAILED, SUMMED_OUT
from constraint_builders.files.new_files import new_folder, path_component
from constraint_builders.files.numbers import LARGEST
from constraint_builders.problem import Problem
from constraint_builders.schema_order import in_schema_order

GROUP_CELLS = 1 << 21  # of a row group at most, so that files can be read in little memory
NO_BOUND = 99999  # what the Census Bureau writes as an upper bound where there is none


def write_noisy_measurements(
    folder: str | os.PathLike[str],
    problem: Problem,
    y: ArrayLike,
    *,
    zeros: Mapping[tuple[str, str], NDArray[np.bool_]] | None = None,
    partition: str = "State",
    notes: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Write measurements in the layout of noisy measurement files, whole or not at all.

    The inverse of `read_noisy_measurements`: noisy rows become DPQuery, exact ones Constraint rows with ``=``, zeros
    Constraint rows with ``<=``. Geounits in which a table was not measured have a row without a value. Cells are
    written in the schema's order of the variables.

    Parameters
    ----------
    folder : path
        Made anew.
    problem : Problem
        On a spine, with uncorrelated noise of equal variance within each table of a geounit.
    y : array_like, (n,)
        Whole numbers over its observed layout, NaN where not measured.
    zeros : mapping of (geolevel, table) to ndarray of bool, optional
        Structural zeros, (geounits, *table's shape), in the order of the table's name.
    partition : str
        Geolevel whose geounits have a partition each, in the levels from there down.
    notes : mapping of str to str, optional
        Texts to be written beside the geolevels, by file name.
    progress : callable, optional
        Called with each geolevel, its number from 0, and how many there are, before it is written.

    Raises
    ------
    ValueError
        If the problem has no spine or unequal variances within a table of a geounit, a value is not whole, or a
        geolevel or a geocode of `partition` cannot name a folder.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    values = problem.observed.flat(y, "y")
    problem.check_vector(values)
    variances = _checked_variances(problem, values)
    order = in_schema_order(problem)
    problem, values = order.problem, values[order.observed]
    spine = problem.domain.spine
    empty = _by_position(problem, zeros or {})
    with new_folder(folder) as temporary:
        for name, text in (notes or {}).items():
            (temporary / path_component(name, "note")).write_text(text, encoding="utf-8", newline="\n")
        for number, name in enumerate(spine.levels):
            if progress is not None:
                progress(name, number, len(spine.levels))
            level = _WrittenLevel(problem, values, variances, number)
            own = {table: cells for (geolevel, table), cells in empty.items() if geolevel == name}
            place = temporary / f"{path_component(name, 'geolevel')}{LEVEL_SUFFIX}"
            partitions = _partitions(spine, number, partition)
            _write(level.measurements(), place / MEASUREMENTS, partitions)
            _write(level.exact() + level.zeros(own), place / CONSTRAINTS, partitions)


def _by_position(problem: Problem, zeros: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Structural zeros in the order of the geounits, and of the names of their tables."""
    named = by_table(zeros)
    layout = problem.names.tables(named).layout
    return {name: np.asarray(layout.by_position(own, name, f"zeros of {name!r}")) for name, own in named.items()}


def _checked_variances(problem: Problem, values: Float) -> list[Float]:
    """The one variance of every table in a geounit, (G,), where measurement files can hold the values, (n,), too."""
    if problem.spine is None:
        raise ValueError("measurement files hold geounits: this problem has no spine")
    if problem.geounit_variances is None:
        raise ValueError("measurement files hold one variance for each table of a geounit: this problem's differ")
    require_free_names(problem.domain.schema)
    broken = np.isfinite(values) & (values != np.round(values))
    problem.observed.refuse(broken, "{} is {}: measurement files hold whole numbers; draw discrete noise", values)
    large = "{} is {:.3g}: whole numbers are exact to {:,.0f}"
    problem.observed.refuse(abs(values) > LARGEST, large, values, LARGEST)
    return problem.geounit_variances


def _partitions(spine: Spine, level: int, partition: str) -> pl.Series:
    """For every geounit of a level the path of its partition, or empty for those above the partitioning level."""
    if partition not in spine.levels[: level + 1]:
        return pl.Series([""] * spine.members[level].size)
    above = spine.ancestors_at(spine.members[level], spine.level_index(partition))
    names = {i: _partition(partition, spine.geocodes[i]) if i >= 0 else "" for i in np.unique(above).tolist()}
    return pl.Series([names[i] for i in above.tolist()])


def _partition(geolevel: str, code: str) -> str:
    # The root of a country has the code "".
    return f"{path_component(geolevel, 'geolevel')}={code and path_component(code, 'geocode')}"


def _write(rows: list[pl.DataFrame], place: Path, partitions: pl.Series) -> None:
    """Write rows, whose column ``geounit`` numbers the geounits of the level, a file for each partition."""
    rows = [frame for frame in rows if frame.height]
    if not rows:
        return
    frame = pl.concat(rows, how="vertical_relaxed")
    widest = int(frame["value"].list.len().fill_null(1).max())  # type: ignore[arg-type]
    of_row = partitions.gather(frame["geounit"])
    for name in of_row.unique(maintain_order=True):
        folder = place / name
        folder.mkdir(parents=True, exist_ok=True)
        here = of_row == name
        part = frame if here.all() else frame.filter(here)
        rows_at_once = max(1, GROUP_CELLS // widest)
        write_parquet(part.drop("geounit"), folder / "part-0.parquet", row_group_size=rows_at_once)


class _WrittenLevel:
    """The rows of one geolevel; their column ``geounit`` numbers its geounits."""

    def __init__(self, problem: Problem, values: Float, variances: list[Float], level: int) -> None:
        self._schema, spine = problem.domain.schema, problem.domain.spine
        self._geocodes = pl.Series([spine.geocodes[i] for i in spine.members[level]])
        self._blocks = [
            (table, values[problem.observed.block(i)].reshape(-1, table.size), variances[i])
            for i, table in enumerate(problem.observed_tables)
            if problem.observed_levels[i] == level
        ]

    def measurements(self) -> list[pl.DataFrame]:
        """One row for every table and geounit where it is not exact; the value is null where it was not measured."""
        found = []
        for table, values, variances in self._blocks:
            noisy = np.flatnonzero(variances > 0)
            sizes = dict(zip(table.axes, table.shape, strict=True))
            shape = pl.lit([sizes.get(axis, 1) for axis in range(len(self._schema.names))])
            rows = self._rows(table, MEASUREMENT_SUFFIX, noisy, values).with_columns(
                pl.when(pl.Series(np.isfinite(variances[noisy]))).then(pl.col("value")),
                pl.Series("variance", variances[noisy]),
                shape.alias("query_shape"),
            )
            found.append(rows)
        return found

    def exact(self) -> list[pl.DataFrame]:
        """One row for every table and geounit where it is known exactly."""
        return [
            self._rows(table, CONSTRAINT_SUFFIX, np.flatnonzero(variances == 0), values, "=")
            for table, values, variances in self._blocks
        ]

    def zeros(self, zeros: Mapping[str, NDArray[np.bool_]]) -> list[pl.DataFrame]:
        """One row for every table and geounit with a structural zero, of flags (G, *cells)."""
        found = []
        for name, cells in zeros.items():
            named = parse_table(self._schema, name)
            table = named.in_schema_order()
            empty = cells.reshape(-1, table.size)[:, table.places_in(named)]
            geounits = np.flatnonzero(empty.any(axis=1))
            found.append(self._rows(table, f"_ub{CONSTRAINT_SUFFIX}", geounits, np.where(empty, 0, NO_BOUND), "<="))
        return found

    def _rows(self, table: Table, ending: str, geounits: Index, values: NDArray, sign: str = "") -> pl.DataFrame:
        """Rows of geounits (k,) of values (G, cells), with a sign if any; the query is named by table and ending."""
        factors = dict(zip(table.axes, table.factors, strict=True))
        said = {
            variable: DETAILED if factors.get(axis) == variable else factors.get(axis, SUMMED_OUT)
            for axis, variable in enumerate(self._schema.names)
        }
        texts = {"query_name": f"{table.name}{ending}", **said}
        rows = pl.DataFrame({"geounit": geounits, "geocode": self._geocodes.gather(geounits)})
        rows = rows.with_columns(
            *(pl.lit(text).alias(column) for column, text in texts.items()),
            pl.Series("value", _lists(values[geounits])),
        )
        return rows.with_columns(pl.lit(sign).alias("sign")) if sign else rows


def _lists(values: NDArray) -> pl.Series:
    """The rows of an array, (rows, cells), as lists of whole numbers, 0 for NaN, in 32 bits where they suffice."""
    whole = np.nan_to_num(values)
    width = np.int32 if abs(whole).max(initial=0) <= np.iinfo(np.int32).max else np.int64
    return pl.Series(whole.astype(width).ravel()).reshape(values.shape).arr.to_list()

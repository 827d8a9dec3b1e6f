"""What was measured, as a result keeps it (`store`): settings, spine, variances and structural zeros of one product."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.results.checksums import DamagedError
from constraint_builders import Problem, Spine
from constraint_builders.arrays import Float
from constraint_builders.description.domain import StructuralZeros
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import make_table
from constraint_builders.files.arrow_files import read_parquet, write_parquet
from constraint_builders.files.naming import naming
from constraint_builders.files.settings import Settings, parse_settings
from constraint_builders.opening import read_text
from constraint_builders.schema_order import in_schema_order

SETTINGS = "settings.toml"
SPINE, VARIANCES, ZEROS, FACILITIES = "spine.parquet", "variances.parquet", "zeros.parquet", "facilities.parquet"


class StoredMeasurements:
    """What was measured of one product.

    Parameters
    ----------
    intact : callable of str to Path
        Gives a file of the result by its name, once it is compared with its checksum.
    name : str
        Of the settings.
    zeros : sequence of str or None
        The variables that tell structural zeros apart, of which there are none where whole geounits are empty; None
        without structural zeros.
    within : str
        What the names of its files begin with.
    """

    def __init__(self, intact: Callable[[str], Path], name: str, zeros: Sequence[str] | None, within: str = "") -> None:
        self._intact, self._within, self._zeros = intact, within, zeros
        path = intact(within + SETTINGS)
        with naming(path):
            self.settings = parse_settings(read_text(path), name)

    @property
    def schema(self) -> Schema:
        """The variables and recodes."""
        return self.settings.schema

    @cached_property
    def spine(self) -> Spine:
        """The geounits."""
        frame, _ = self._frame(SPINE)
        return Spine(frame["parent"].to_numpy(), frame["geolevel"].to_list(), frame["geocode"].to_list())

    @cached_property
    def variances(self) -> dict[str, dict[str, Float]]:
        """Variance of every observed table, (geounits,), by geolevel and table; infinite where not measured."""
        observed: dict[str, dict[str, Float]] = {}
        frame, path = self._frame(VARIANCES)
        for (level, table), rows in frame.group_by("geolevel", "table", maintain_order=True):
            members = self.spine.members[self.spine.level_index(str(level))]
            variances = np.full(members.size, np.inf)
            geounits, measured = rows["geounit"].to_numpy(), rows["variance"].to_numpy()
            if np.unique(geounits).size < geounits.size or not np.isin(geounits, np.arange(members.size)).all():
                raise DamagedError(f"{path}: geounits of {level} are repeated or unknown")
            if not (np.isfinite(measured) & (measured >= 0)).all():
                raise DamagedError(f"{path}: a variance of {table!r} at {level} is not one")
            variances[geounits] = measured
            observed.setdefault(str(level), {})[str(table)] = variances
        return observed

    @cached_property
    def zeros(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Structural zeros, (geounits, *shape), by geolevel and table."""
        if self._zeros is None:
            return {}
        frame, _ = self._frame(ZEROS)
        table = make_table(self.schema, tuple(self._zeros))
        empty = np.zeros((self.spine.size, table.size), dtype=bool)
        empty[frame["geounit"].to_numpy()] = frame["empty"].explode().to_numpy().reshape(-1, table.size)
        name = " * ".join(table.factors) or table.name
        return {
            (level, name): empty[members].reshape(members.size, *table.shape)
            for level, members in zip(self.spine.levels, self.spine.members, strict=True)
        }

    def _frame(self, name: str) -> tuple[pl.DataFrame, Path]:
        path = self._intact(self._within + name)
        return read_parquet(path), path


def write_product(
    folder: Path, settings: Settings, problem: Problem, facilities: pl.DataFrame | None
) -> tuple[int, ...]:
    """Write what was measured of one product; gives the variables that tell its structural zeros apart."""
    own = StructuredProblem.of(in_schema_order(problem).problem)
    observed: dict[str, dict[str, Float]] = {}
    for table, level, variances in zip(own.observed_tables, own.observed_levels, own.geounit_variances, strict=True):
        observed.setdefault(own.spine.levels[level], {})[table.name] = variances
    write_measured(folder, settings, problem.domain.spine, observed, problem.zeros, facilities)
    return () if problem.zeros is None else problem.zeros.axes


def write_measured(
    folder: Path,
    settings: Settings,
    spine: Spine,
    observed: Mapping[str, Mapping[str, Float]],
    zeros: StructuralZeros | None,
    facilities: pl.DataFrame | None = None,
) -> None:
    """Write what variances follow from, and numbers of facilities.

    Parameters
    ----------
    folder : Path
    settings : Settings
    spine : Spine
    observed : mapping of geolevel to mapping of table to ndarray (geounits of the level,)
        Variances; infinite where not measured.
    zeros : StructuralZeros or None
    facilities : polars.DataFrame, optional
        As `Release` has them.
    """
    (folder / SETTINGS).write_text(settings.text, encoding="utf-8", newline="\n")
    levels = np.array(spine.levels)[spine.level_of]
    rows = {"geolevel": levels.tolist(), "geocode": list(spine.geocodes), "parent": spine.parent}
    write_parquet(pl.DataFrame(rows), folder / SPINE)
    write_parquet(_variance_rows(observed), folder / VARIANCES)
    if zeros is not None:
        write_parquet(_zero_rows(zeros), folder / ZEROS)
    if facilities is not None and facilities.height:
        write_parquet(facilities, folder / FACILITIES)


def _variance_rows(observed: Mapping[str, Mapping[str, Float]]) -> pl.DataFrame:
    """Rows of the variances, (geounits,) of each table at each level, that are finite."""
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

"""Estimates on a spine, stored in a folder from which questions about any geounits are answered.

::

    <folder>/settings.toml               schema, geolevels and law of the noise
    <folder>/result.json                 how the estimates were made
    <folder>/spine.parquet               geolevel, geocode, parent (row of this file, -1 for the root)
    <folder>/variances.parquet           geolevel, table, geounit (number within the level), variance
    <folder>/zeros.parquet               geounit (row of spine.parquet), empty (list over the cells of the variables
                                         that result.json names); if there are structural zeros
    <folder>/estimates/<Geolevel>.parquet table, geocode, estimate and std_error (lists, cells in C order)

Estimates are read from there; their variances and covariances follow from the variances of the measurements alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from blue_solvers.operator import BlueOperator, blue
from blue_solvers.solver import Float
from blue_solvers.uncertainty.functionals import Functionals, functional_covariance
from constraint_builders import Problem, Spine
from constraint_builders.files.naming import naming
from constraint_builders.files.new_folder import new_folder
from constraint_builders.files.settings import Settings, parse_settings
from constraint_builders.schema import Schema
from constraint_builders.summing_out import sum_out
from constraint_builders.table import Table, make_table, parse_table
from constraint_builders.zeros import StructuralZeros

FORMAT = 1
TABULATION_WIDTH = 16  # a block's spine code ends in state 2, county 3, tract 6, block group 1, block 4

Progress = Callable[[str, int, int], None]
Count = Mapping[str, Sequence[str]]
Levels = Mapping[str, NDArray[np.bool_]]


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
        (temporary / "settings.toml").write_text(settings.text, encoding="utf-8", newline="\n")
        (temporary / "result.json").write_text(json.dumps(_description(P, settings), indent=2) + "\n", encoding="utf-8")
        levels = np.array(spine.levels)[spine.level_of]
        pl.DataFrame(
            {"geolevel": levels.tolist(), "geocode": list(spine.geocodes), "parent": spine.parent}
        ).write_parquet(temporary / "spine.parquet")
        _variance_rows(problem).write_parquet(temporary / "variances.parquet")
        if problem.zeros is not None:
            _zero_rows(problem.zeros).write_parquet(temporary / "zeros.parquet")
        (temporary / "estimates").mkdir()
        for number, level in enumerate(spine.levels):
            if progress is not None:
                progress(level, number, len(spine.levels))
            rows = _estimate_rows(problem, estimate, std_error, number)
            if rows:
                path = temporary / "estimates" / f"{level}.parquet"
                pl.concat(rows).write_parquet(path, row_group_size=rows[0].height)  # a table each, found by itself


def _description(P: BlueOperator, settings: Settings) -> dict[str, Any]:
    info = P.info
    return {
        "format": FORMAT,
        "settings": settings.name,
        "noise": P.problem.noise,
        "solver": info.solver,
        "exact": info.exact,
        "reason": info.reason,
        "violation": info.violation,
        "zeros": _variables_of_zeros(P.problem),
    }


def _variables_of_zeros(problem: Problem) -> list[str]:
    if problem.zeros is None or problem.schema is None:
        return []
    return [problem.schema.names[axis] for axis in problem.zeros.axes]


def _zero_rows(zeros: StructuralZeros) -> pl.DataFrame:
    cells = zeros.empty.reshape(len(zeros.empty), -1)
    geounits = np.flatnonzero(cells.any(axis=1))
    lists = pl.Series("empty", cells[geounits].ravel()).reshape((geounits.size, cells.shape[1])).arr.to_list()
    return pl.DataFrame([pl.Series("geounit", geounits), lists])


def _variance_rows(problem: Problem) -> pl.DataFrame:
    assert problem.geounit_variances is not None
    assert problem.spine is not None
    parts = []
    for table, level, variances in zip(
        problem.observed_tables, problem.observed_levels, problem.geounit_variances, strict=True
    ):
        measured = np.flatnonzero(np.isfinite(variances))
        names = {"geolevel": problem.spine.levels[level], "table": table.name}
        rows = pl.DataFrame({"geounit": measured, "variance": variances[measured]})
        parts.append(rows.with_columns(pl.lit(text).alias(column) for column, text in names.items()))
    return pl.concat(parts)


def _estimate_rows(problem: Problem, estimate: Float, std_error: Float, level: int) -> list[pl.DataFrame]:
    assert problem.spine is not None
    geocodes = pl.Series("geocode", [problem.spine.geocodes[i] for i in problem.spine.members[level]])
    parts = []
    for index, table in enumerate(problem.desired_tables):
        if problem.desired_levels[index] == level:
            place, shape = problem.desired.block(index), (geocodes.len(), table.size)
            lists = (
                pl.Series(name, cells[place]).reshape(shape).arr.to_list()
                for name, cells in (("estimate", estimate), ("std_error", std_error))
            )
            parts.append(pl.DataFrame([pl.repeat(table.name, shape[0], eager=True).alias("table"), geocodes, *lists]))
    return parts


def _block_geoid(code: str) -> str:
    """The 15-digit GEOID in a block's spine code, empty if there is none."""
    tabulation = code[-TABULATION_WIDTH:]
    return tabulation[:11] + tabulation[12:] if len(code) >= TABULATION_WIDTH else ""


class Result:
    """Stored estimates.

    Parameters
    ----------
    folder : path
        Written by `write_result`.

    Raises
    ------
    ValueError
        If a file of it cannot be understood.
    OSError
        If one is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        path = self.folder / "result.json"
        with naming(path):
            self.description = json.loads(path.read_text(encoding="utf-8"))
            if self.description.get("format") != FORMAT:
                raise ValueError(f"format {self.description.get('format')!r} is another than {FORMAT}: estimate again")
        path = self.folder / "settings.toml"
        with naming(path):
            self.settings = parse_settings(path.read_text(encoding="utf-8"), self.description["settings"])

    @property
    def schema(self) -> Schema:
        """The variables and recodes."""
        return self.settings.schema

    @cached_property
    def spine(self) -> Spine:
        """The geounits."""
        frame = self._frame("spine.parquet")
        return Spine(frame["parent"].to_numpy(), frame["geolevel"].to_list(), frame["geocode"].to_list())

    def _frame(self, name: str) -> pl.DataFrame:
        path = self.folder / name
        with path.open("rb") as file, naming(path):
            return pl.read_parquet(file)

    def tables(self, geolevel: str) -> list[Table]:
        """The tables that were estimated at a geolevel, in order of size."""
        self.spine.level_index(geolevel)
        path = self.folder / "estimates" / f"{geolevel}.parquet"
        if not path.exists():
            return []
        with naming(path):
            names = pl.scan_parquet(path).select(pl.col("table").unique()).collect()["table"]
            tables = [parse_table(self.schema, name) for name in names]
            return sorted(tables, key=lambda table: (table.size, table.name))

    def problem(self, desired: Mapping[str, Sequence[str]]) -> Problem:
        """The estimation problem again, for other desired tables."""
        return self._problem(self.schema, self._variances, desired)

    def _problem(self, schema: Schema, observed: Mapping[str, Any], desired: Mapping[str, Sequence[str]]) -> Problem:
        noise = self.description["noise"]
        return Problem(schema, observed, desired, spine=self.spine, zeros=self._zeros or None, noise=noise)

    @cached_property
    def _variances(self) -> dict[str, dict[str, Float]]:
        """Variance of every observed table, (geounits,), by geolevel and table; infinite where not measured."""
        observed: dict[str, dict[str, Float]] = {}
        for (level, table), rows in self._frame("variances.parquet").group_by("geolevel", "table", maintain_order=True):
            members = self.spine.members[self.spine.level_index(str(level))]
            variances = np.full(members.size, np.inf)
            variances[rows["geounit"].to_numpy()] = rows["variance"].to_numpy()
            observed.setdefault(str(level), {})[str(table)] = variances
        return observed

    @cached_property
    def _zeros(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Structural zeros, (geounits, *shape), by geolevel and table."""
        if not self.description["zeros"]:
            return {}
        frame = self._frame("zeros.parquet")
        table = make_table(self.schema, tuple(self.description["zeros"]))
        empty = np.zeros((self.spine.size, table.size), dtype=bool)
        empty[frame["geounit"].to_numpy()] = frame["empty"].explode().to_numpy().reshape(-1, table.size)
        return {
            (level, " * ".join(table.factors)): empty[members].reshape(members.size, *table.shape)
            for level, members in zip(self.spine.levels, self.spine.members, strict=True)
        }

    def geounits(self, geolevel: str, codes: Sequence[str]) -> NDArray[np.int64]:
        """Numbers within their level of the geounits of these codes.

        A block may also be named by its 15-digit GEOID, which the last 16 digits of its spine code hold.

        Raises
        ------
        ValueError
            If one is unknown or given twice.
        """
        members = self.spine.members[self.spine.level_index(geolevel)]
        own = [self.spine.geocodes[i] for i in members]
        number = {geoid: i for i, code in enumerate(own) if (geoid := _block_geoid(code))}
        number |= {code: i for i, code in enumerate(own)}
        unknown = [code for code in codes if code not in number]
        if unknown:
            raise ValueError(f"no geounit {unknown[0]!r} at geolevel {geolevel!r}, nor {len(unknown) - 1:,} others")
        found = np.array([number[code] for code in codes], dtype=np.int64)
        if np.unique(found).size < found.size:
            repeated = next(code for code in codes if list(found).count(number[code]) > 1)
            raise ValueError(f"geounit {repeated!r} is given twice: it would be counted twice")
        return found

    def ask(self, geolevel: str, geounits: NDArray[np.int64], counts: Sequence[Count]) -> Functionals:
        """Estimate counts over geounits together, such as the adults of some blocks.

        Parameters
        ----------
        geolevel : str
        geounits : ndarray of int, (g,)
            Numbers within the level; see `geounits`.
        counts : sequence of mapping of str to sequence of str, (K,)
                For each count the labels that it takes of some variables or recodes; all of those not named.

        Returns
        -------
        Functionals

        Raises
        ------
        ValueError
            If a variable or level is unknown, or no table was estimated from which a count can be summed.
        """
        stored = self.tables(geolevel)
        counted = [self._levels_counted(count) for count in counts]
        estimate = np.empty(len(counts))
        for number, (count, levels) in enumerate(zip(counts, counted, strict=True)):
            cells = ((table, _cells_counted(self.schema, table, levels)) for table in stored)
            table, taken = next(((table, taken) for table, taken in cells if taken is not None), (None, None))
            if table is None or taken is None:
                raise ValueError(_not_stored(count, geolevel, stored))
            estimate[number] = (self._estimates(geolevel, table, geounits) @ taken).sum()
        return Functionals(estimate, self._covariance(geolevel, geounits, counted))

    def _covariance(self, geolevel: str, geounits: NDArray[np.int64], counted: Sequence[Levels]) -> Float:
        """Covariance of counts over the same geounits, from the smallest problem that has them."""
        needed = {variable for levels in counted for variable in levels}
        schema, observed = sum_out(self.schema, self._variances, needed.union(self.description["zeros"]))
        table = make_table(schema, tuple(name for name in schema.names if name in needed))
        problem = self._problem(schema, observed, {geolevel: [table.name]})
        weights = np.zeros((*problem.desired.shape((geolevel, table.name)), len(counted)))
        for number, levels in enumerate(counted):
            cells = _cells_counted(schema, table, levels)
            assert cells is not None
            weights[geounits, ..., number] = cells.reshape(table.shape)
        return functional_covariance(blue(problem), weights.reshape(-1, len(counted)))

    def _levels_counted(self, count: Count) -> Levels:
        """For each variable that a count restricts which of its levels are counted."""
        levels: dict[str, NDArray[np.bool_]] = {}
        for factor, labels in count.items():
            variable, known = self.schema.names[self.schema.axis_of(factor)], self.schema.labels_of(factor)
            unknown = [label for label in labels if label not in known]
            if unknown or not labels:
                shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
                raise ValueError(f"{factor!r} has no level {', '.join(unknown)!r}: there are {shown}")
            counted = np.isin(known, labels)[list(self.schema.groups_of(factor))]
            levels[variable] = levels.get(variable, True) & counted
        return levels

    def _estimates(self, geolevel: str, table: Table, geounits: NDArray[np.int64]) -> Float:
        """Stored estimates of some geounits in any order, (g, cells)."""
        members = self.spine.members[self.spine.level_index(geolevel)]
        codes = [self.spine.geocodes[i] for i in members[geounits]]
        path = self.folder / "estimates" / f"{geolevel}.parquet"
        with naming(path):
            rows = pl.scan_parquet(path).filter((pl.col("table") == table.name) & pl.col("geocode").is_in(codes))
            values = rows.select(pl.col("estimate").explode()).collect()["estimate"]
            return values.to_numpy().reshape(len(codes), table.size)


def _cells_counted(schema: Schema, table: Table, levels: Levels) -> Float | None:
    """1 for the cells of a table that are counted, 0 for the others, or None if some cell is counted in part."""
    if not levels.keys() <= {schema.names[axis] for axis in table.axes}:
        return None
    cells = np.ones(1)
    for axis, factor in zip(table.axes, table.factors, strict=True):
        share = _share_counted(schema, factor, levels.get(schema.names[axis]))
        if not np.isin(share, (0, 1)).all():
            return None
        cells = np.multiply.outer(cells, share).ravel()
    return cells


def _share_counted(schema: Schema, factor: str, levels: NDArray[np.bool_] | None) -> Float:
    """Which share of each group of a factor is counted."""
    groups = np.array(schema.groups_of(factor))
    counted = np.ones(groups.size) if levels is None else levels
    return np.bincount(groups, weights=counted) / np.bincount(groups)


def _not_stored(count: Count, geolevel: str, stored: Sequence[Table]) -> str:
    asked = " and ".join(f"{name}={'|'.join(labels)}" for name, labels in count.items()) or "the total"
    names = ", ".join(repr(table.name) for table in stored) or "none"
    return f"no table stored at {geolevel!r} counts {asked}: there are {names}; estimate again with --desired"

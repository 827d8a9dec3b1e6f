"""Estimates on a spine, stored in a folder from which questions about any geounits are answered.

::

    <folder>/settings.toml               schema, geolevels and law of the noise
    <folder>/result.json                 how the estimates were made
    <folder>/spine.parquet               geolevel, geocode, parent (row of this file, -1 for the root)
    <folder>/variances.parquet           geolevel, table, geounit (number within the level), variance
    <folder>/estimates/<Geolevel>.parquet   table, geocode, estimate and std_error (lists, cells in C order)

Estimates are read from there; their variances and covariances follow from the variances of the measurements alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
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
from constraint_builders.table import Table, parse_table

FORMAT = 1
TABULATION_WIDTH = 16  # a block's spine code ends in state 2, county 3, tract 6, block group 1, block 4

Progress = Callable[[str, int, int], None]
Count = Mapping[str, Sequence[str]]


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
        If the problem has no spine, or unequal variances within a table of a geounit.
    OSError
        If there is something at `folder`, or it cannot be written.
    """
    problem = P.problem
    if problem.spine is None or problem.geounit_variances is None:
        raise ValueError("results are stored for a spine with one variance for each table of a geounit")
    spine = problem.spine
    with new_folder(folder) as temporary:
        (temporary / "settings.toml").write_text(settings.text, encoding="utf-8", newline="\n")
        (temporary / "result.json").write_text(json.dumps(_description(P, settings), indent=2) + "\n", encoding="utf-8")
        levels = np.array(spine.levels)[spine.level_of]
        pl.DataFrame(
            {"geolevel": levels.tolist(), "geocode": list(spine.geocodes), "parent": spine.parent}
        ).write_parquet(temporary / "spine.parquet")
        _variance_rows(problem).write_parquet(temporary / "variances.parquet")
        (temporary / "estimates").mkdir()
        for number, level in enumerate(spine.levels):
            if progress is not None:
                progress(level, number, len(spine.levels))
            rows = _estimate_rows(problem, estimate, std_error, number)
            if rows:
                pl.concat(rows).write_parquet(temporary / "estimates" / f"{level}.parquet")


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
    }


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
        observed: dict[str, dict[str, Float]] = {}
        frame = self._frame("variances.parquet")
        for (level, table), rows in frame.group_by("geolevel", "table", maintain_order=True):
            members = self.spine.members[self.spine.level_index(str(level))]
            variances = np.full(members.size, np.inf)
            variances[rows["geounit"].to_numpy()] = rows["variance"].to_numpy()
            observed.setdefault(str(level), {})[str(table)] = variances
        return Problem(self.schema, observed, desired, spine=self.spine, noise=self.description["noise"])

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
        chosen = [self._cells(count, stored, geolevel) for count in counts]
        problem = self.problem({geolevel: list(dict.fromkeys(table.name for table, _ in chosen))})
        weights = np.zeros((len(chosen), problem.desired.size))
        estimate = np.empty(len(chosen))
        for number, (table, cells) in enumerate(chosen):
            place = problem.desired.slice((geolevel, table.name))
            weights[number, place].reshape(-1, table.size)[geounits] = cells
            estimate[number] = (self._estimates(geolevel, table, geounits) @ cells).sum()
        return Functionals(estimate, functional_covariance(blue(problem), weights.T))

    def _cells(self, count: Count, stored: Sequence[Table], geolevel: str) -> tuple[Table, Float]:
        """The smallest stored table that tells what is counted from the rest, and 1 for its cells that are counted."""
        levels = self._levels_counted(count)
        for table in stored:
            factors = zip(table.axes, table.factors, strict=True)
            along = [self._groups_counted(factor, levels.get(axis)) for axis, factor in factors]
            whole = [groups for groups in along if groups is not None]
            if levels.keys() <= set(table.axes) and len(whole) == len(along):
                return table, reduce(_outer, whole, np.ones(1))
        asked = " and ".join(f"{name}={'|'.join(labels)}" for name, labels in count.items()) or "the total"
        raise ValueError(
            f"no table stored at {geolevel!r} counts {asked}: there are "
            f"{', '.join(repr(table.name) for table in stored) or 'none'}; estimate again with --desired"
        )

    def _levels_counted(self, count: Count) -> dict[int, NDArray[np.bool_]]:
        """For each variable that a count restricts which of its levels are counted."""
        levels: dict[int, NDArray[np.bool_]] = {}
        for factor, labels in count.items():
            axis, known = self.schema.axis_of(factor), self.schema.labels_of(factor)
            unknown = [label for label in labels if label not in known]
            if unknown or not labels:
                shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
                raise ValueError(f"{factor!r} has no level {', '.join(unknown)!r}: there are {shown}")
            counted = np.isin(known, labels)[list(self.schema.groups_of(factor))]
            levels[axis] = levels.get(axis, True) & counted
        return levels

    def _groups_counted(self, factor: str, levels: NDArray[np.bool_] | None) -> Float | None:
        """1 for the groups of a factor that are counted, or None if one is counted in part."""
        size = self.schema.size_of(factor)
        if levels is None:
            return np.ones(size)
        groups = np.array(self.schema.groups_of(factor))
        share = np.bincount(groups, weights=levels, minlength=size) / np.bincount(groups, minlength=size)
        return share if np.isin(share, (0, 1)).all() else None

    def _estimates(self, geolevel: str, table: Table, geounits: NDArray[np.int64]) -> Float:
        """Stored estimates of some geounits in any order, (g, cells)."""
        members = self.spine.members[self.spine.level_index(geolevel)]
        codes = [self.spine.geocodes[i] for i in members[geounits]]
        path = self.folder / "estimates" / f"{geolevel}.parquet"
        with naming(path):
            rows = pl.scan_parquet(path).filter((pl.col("table") == table.name) & pl.col("geocode").is_in(codes))
            values = rows.select(pl.col("estimate").explode()).collect()["estimate"]
            return values.to_numpy().reshape(len(codes), table.size)


def _outer(cells: Float, groups: Float) -> Float:
    """Cells of a table with one more axis."""
    return np.multiply.outer(cells, groups).ravel()

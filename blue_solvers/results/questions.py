"""Questions about any geounits, answered from stored estimates (`result_files`).

Estimates are read from there; their variances and covariances follow from the variances of the measurements alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.components.grouping import groupings_of
from blue_solvers.components.tree.coefficients import solve_components
from blue_solvers.components.tree.functional_sweep import Weights, functional_covariance
from blue_solvers.components.tree.tree_plan import TreePlan
from blue_solvers.operator import BlueOperator, blue
from blue_solvers.results.checksums import DamagedError, require_intact, untouched
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import SETTINGS, SPINE, VARIANCES, ZEROS, Progress, estimates_of, read_description
from blue_solvers.solvers import TwoPass
from blue_solvers.uncertainty.functionals import Functionals
from constraint_builders import Problem, Spine
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table, parse_table
from constraint_builders.description.zeros import StructuralZeros
from constraint_builders.files.naming import naming
from constraint_builders.files.parquet import read_parquet, scan_files
from constraint_builders.files.settings import parse_settings
from constraint_builders.geography import Entities, NotComposableError, compositions
from constraint_builders.relations.spine_tables import spine_layout
from constraint_builders.relations.summing_out import Variances, sum_out

FILE = "file*"  # column of ours: no column of a file has such a name
TABULATION_WIDTH = 16  # a block's spine code ends in state 2, county 3, tract 6, block group 1, block 4

Count = Mapping[str, Sequence[str]]
Levels = Mapping[str, NDArray[np.bool_]]
Source = tuple[Table, Float]  # a table, and 1 for its cells that are counted, 0 for the others


def _block_geoid(code: str) -> str:
    """The 15-digit GEOID in a block's spine code, empty if there is none."""
    tabulation = code[-TABULATION_WIDTH:]
    return tabulation[:11] + tabulation[12:] if len(code) >= TABULATION_WIDTH else ""


class Result:
    """Stored estimates. Every file is compared with its checksum before anything in it is believed.

    Parameters
    ----------
    folder : path
        Written by `write_result`.

    Raises
    ------
    DamagedError
        If a file is missing or is not what was written, here or as soon as it is needed; it is named.
    ValueError
        If the result has another format.
    OSError
        If there is no result.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.description = read_description(self.folder)
        self._checked: dict[str, os.stat_result] = {}
        path = self._intact(SETTINGS)
        with naming(path):
            self.settings = parse_settings(path.read_text(encoding="utf-8"), self.description["settings"])

    def _intact(self, name: str) -> Path:
        """A file of the result, which is what was written."""
        path = self.folder / name
        if name not in self.description["files"]:
            raise DamagedError(f"{path} is no file of this result: estimate again")
        now = path.stat() if path.is_file() else None
        if now is None or not untouched(now, self._checked.get(name)):
            require_intact(path, self.description["files"][name])
            self._checked[name] = path.stat() if now is None else now
        return path

    @cached_property
    def proof(self) -> StoredProof:
        """What is proved of the estimates; it is of these files, or the result would not have been read."""
        return StoredProof.from_json(self.description.get("proof", {}))

    def require_intact(self) -> None:
        """Raise `DamagedError` unless every file is what was written."""
        for name in self.description["files"]:
            self._intact(name)

    @property
    def schema(self) -> Schema:
        """The variables and recodes."""
        return self.settings.schema

    @cached_property
    def spine(self) -> Spine:
        """The geounits."""
        frame = self._frame(SPINE)
        return Spine(frame["parent"].to_numpy(), frame["geolevel"].to_list(), frame["geocode"].to_list())

    def _frame(self, name: str) -> pl.DataFrame:
        path = self._intact(name)
        with naming(path):
            return read_parquet(path)

    def tables(self, geolevel: str) -> list[Table]:
        """The tables that were estimated at a geolevel, in order of size."""
        self.spine.level_index(geolevel)
        tables = [parse_table(self.schema, name) for name in self.description["tables"].get(geolevel, ())]
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
        for (level, table), rows in self._frame(VARIANCES).group_by("geolevel", "table", maintain_order=True):
            members = self.spine.members[self.spine.level_index(str(level))]
            variances = np.full(members.size, np.inf)
            geounits, measured = rows["geounit"].to_numpy(), rows["variance"].to_numpy()
            if np.unique(geounits).size < geounits.size or not np.isin(geounits, np.arange(members.size)).all():
                raise DamagedError(f"{self.folder / VARIANCES}: geounits of {level} are repeated or unknown")
            if not (np.isfinite(measured) & (measured >= 0)).all():
                raise DamagedError(f"{self.folder / VARIANCES}: a variance of {table!r} at {level} is not one")
            variances[geounits] = measured
            observed.setdefault(str(level), {})[str(table)] = variances
        return observed

    @cached_property
    def _zeros(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Structural zeros, (geounits, *shape), by geolevel and table."""
        if not self.description["zeros"]:
            return {}
        frame = self._frame(ZEROS)
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
        members = self._members(geolevel)
        own = [self.spine.geocodes[i] for i in members]
        number = {geoid: i for i, code in enumerate(own) if (geoid := _block_geoid(code))}
        number |= {code: i for i, code in enumerate(own)}
        unknown = [code for code in codes if code not in number]
        if unknown:
            others = f", nor {len(unknown) - 1:,} more of those asked for" if len(unknown) > 1 else ""
            raise ValueError(f"no geounit {unknown[0]!r} at geolevel {geolevel!r}{others}")
        found = np.array([number[code] for code in codes], dtype=np.int64)
        if np.unique(found).size < found.size:
            repeated = next(code for code in codes if list(found).count(number[code]) > 1)
            raise ValueError(f"geounit {repeated!r} is given twice: it would be counted twice")
        return found

    def ask(self, geolevel: str, geounits: NDArray[np.int64], counts: Sequence[Count]) -> Functionals:
        """Estimate counts over geounits together, such as the adults of some blocks.

        They are composed of the fewest geounits, added and subtracted, of any geolevels with a table for every count.

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
        return self.ask_places({"asked": self._members(geolevel)[geounits]}, counts)["asked"]

    def ask_places(
        self, places: Mapping[str, NDArray[np.int64]], counts: Sequence[Count], progress: Progress | None = None
    ) -> dict[str, Functionals]:
        """Estimate counts over each of many places, from one description of the problem.

        Parameters
        ----------
        places : mapping of str to ndarray of int
            Positions in the spine of the geounits of every place.
        counts : sequence of mapping of str to sequence of str, (K,)
            As for `ask`.
        progress : callable, optional
            Called with each place, its number from 0, and how many there are, before its variances are computed.

        Returns
        -------
        dict of Functionals
            The counts of every place.

        Raises
        ------
        ValueError
            As `ask`.
        """
        counted = [self._levels_counted(count) for count in counts]
        sources = {level: self._sources(level, counted) for level in self.spine.levels}
        usable = np.array([None not in sources[level] for level in self.spine.levels])
        asked = Entities.from_geounits(self.spine, places)
        try:
            signs = compositions(self.spine, asked, usable[self.spine.level_of])
        except NotComposableError:
            own = {level for positions in places.values() for level in self.spine.level_of[positions].tolist()}
            geolevel = self.spine.levels[next(level for level in sorted(own) if not usable[level])]
            lacking = counts[sources[geolevel].index(None)]
            raise ValueError(_not_stored(lacking, geolevel, self.tables(geolevel))) from None
        estimates = np.sum([self._estimate(level, signs, sources[level]) for level in self.spine.levels], axis=0)
        covariance = self._covariances(counted)
        found = {}
        for number, (name, estimate) in enumerate(zip(places, estimates, strict=True)):
            if progress is not None:
                progress(name, number, len(places))
            found[name] = Functionals(estimate, covariance(signs[[number]].toarray()[0]))
        return found

    def _members(self, geolevel: str) -> NDArray[np.intp]:
        """Positions in the spine of the geounits of a geolevel."""
        return self.spine.members[self.spine.level_index(geolevel)]

    def _sources(self, geolevel: str, counted: Sequence[Levels]) -> list[Source | None]:
        """For every count the smallest table stored at a geolevel that it can be summed from."""
        stored = self.tables(geolevel)
        found: list[Source | None] = []
        for levels in counted:
            cells = ((table, _cells_counted(self.schema, table, levels)) for table in stored)
            found.append(next(((table, taken) for table, taken in cells if taken is not None), None))
        return found

    def _estimate(self, geolevel: str, signs: sparse.csr_array, sources: Sequence[Source | None]) -> Float:
        """Stored estimates of counts, (places, K), over the geounits of a level that are added or subtracted."""
        own = sparse.csc_array(signs)[:, self._members(geolevel)]
        geounits = np.flatnonzero(np.diff(own.indptr))
        if not geounits.size:
            return np.zeros((signs.shape[0], len(sources)))
        tables = {table.name: table for table, _ in filter(None, sources)}
        totals = {name: own[:, geounits] @ self._estimates(geolevel, table, geounits) for name, table in tables.items()}
        return np.stack([totals[table.name] @ taken for table, taken in filter(None, sources)], axis=1)

    def _covariances(self, counted: Sequence[Levels]) -> Callable[[NDArray[np.intp]], Float]:
        """The covariance of counts, (K, K), over geounits with signs, (N,), from the smallest problem that has them."""
        needed = {variable for levels in counted for variable in levels}
        schema, observed = sum_out(self.schema, self._variances, needed.union(self.description["zeros"]))
        table = make_table(schema, tuple(name for name in schema.names if name in needed))
        cells = [_cells_counted(schema, table, levels) for levels in counted]
        taken = sparse.csr_array(np.stack([own for own in cells if own is not None], axis=1))
        if self.description["solver"] == TwoPass.name:
            plan = self._plan(schema, observed, table)
            coefficients = solve_components(plan)

            def by_passes(signs: NDArray[np.intp]) -> Float:
                geounits = np.flatnonzero(signs)
                weights = sparse.kron(sparse.csr_array(signs[geounits, None]), taken, format="csr")
                return functional_covariance(plan, coefficients, [Weights(geounits, table, weights)], len(counted))

            return by_passes
        operators: dict[tuple[str, ...], BlueOperator] = {}

        def by_operator(signs: NDArray[np.intp]) -> Float:
            levels = tuple(level for level in self.spine.levels if signs[self._members(level)].any())
            if levels not in operators:
                operators[levels] = blue(self._problem(schema, observed, {level: [table.name] for level in levels}))
            parts = [sparse.kron(sparse.csr_array(signs[self._members(level), None]), taken) for level in levels]
            return operators[levels].functional_covariance(sparse.csc_array(sparse.vstack(parts)))

        return by_operator

    def _plan(self, schema: Schema, observed: Variances, table: Table) -> TreePlan:
        """The plan of the two passes for a table, which needs no vector of all cells."""
        measured = [
            (self.spine.level_index(level), parse_table(schema, name), variances)
            for level, row in observed.items()
            for name, variances in row.items()
        ]
        levels, tables, variances = (list(part) for part in zip(*measured, strict=True))
        layout = spine_layout(schema, self.spine, list(self._zeros))
        zeros = StructuralZeros(schema, self.spine, layout, self._zeros) if self._zeros else None
        groupings = groupings_of(schema, [*tables, table], () if zeros is None else zeros.axes)
        return TreePlan(schema, self.spine, groupings, tables, tuple(levels), variances, zeros)

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

    def stored(self, geolevel: str, table: Table, geounits: NDArray[np.intp]) -> tuple[Float, Float]:
        """Stored estimates and their standard errors of a table, (g, cells), in geounits by their numbers in the level.

        Raises
        ------
        DamagedError
            If one is not there, or is not finite.
        """
        estimate, std_error = self._stored(geolevel, table, geounits, ("estimate", "std_error"))
        return estimate, std_error

    def _estimates(self, geolevel: str, table: Table, geounits: NDArray[np.intp]) -> Float:
        """Stored estimates of some geounits, (g, cells)."""
        return self._stored(geolevel, table, geounits, ("estimate",))[0]

    def _stored(self, geolevel: str, table: Table, geounits: NDArray[np.intp], columns: Sequence[str]) -> list[Float]:
        """Stored columns of some geounits, (g, cells) each."""
        codes = [self.spine.geocodes[i] for i in self._members(geolevel)[geounits]]
        found = self._rows(geolevel, table, codes, columns)
        number = {code: i for i, code in enumerate(found["geocode"])}
        arrays = []
        for name in columns:
            values = found[name].explode().to_numpy()
            if sorted(found["geocode"]) != sorted(codes) or values.size != len(codes) * table.size:
                raise DamagedError(f"{self.folder}: there is not one {name} of {table.name!r} for each {geolevel}")
            if not np.isfinite(values).all():
                raise DamagedError(f"{self.folder}: an {name} of {table.name!r} at {geolevel} is not finite")
            arrays.append(values.reshape(len(codes), table.size)[[number[code] for code in codes]])
        return arrays

    def _rows(self, geolevel: str, table: Table, codes: Sequence[str], columns: Sequence[str]) -> pl.DataFrame:
        """The stored estimates of a table in some geounits; files that have none of them need not be intact."""
        whole = estimates_of(geolevel)
        names = [name for name in self.description["files"] if name == whole or name.startswith(f"{whole}/")]
        missing = [name for name in names if not (self.folder / name).is_file()]
        if missing or not names:
            raise DamagedError(f"{self.folder / (missing or [whole])[0]} is missing")
        with naming(self.folder / whole):
            rows = scan_files([self.folder / name for name in names], FILE)
            wanted = (pl.col("table") == table.name) & pl.col("geocode").is_in(codes)
            found = rows.filter(wanted).select("geocode", *columns, FILE).collect()
        for number in found[FILE].unique():
            self._intact(names[number])
        return found


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

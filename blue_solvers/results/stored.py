"""A stored result as it lies on disk (`store`): its problem, tables and estimates, each checked before use.

What it was estimated from is one problem: of one product on its spine, or of several over areas.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from blue_solvers.goodness import doubt_of
from blue_solvers.results.checksums import DamagedError, require_intact, untouched
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import OUTLINE, estimates_of, joined_folder, read_description
from blue_solvers.results.stored_measurements import SPINE, ZEROS, StoredMeasurements
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.common_leaves import CommonLeaves, LeavesByGroup, by_layer
from constraint_builders.description.common_schema import CountedParts
from constraint_builders.description.schema import Schema
from constraint_builders.description.source_values import Understood
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.arrow_files import read_parquet, scan_files
from constraint_builders.files.naming import naming
from constraint_builders.files.reading_report import PlacesInPart, doubtful
from constraint_builders.files.settings import Settings
from constraint_builders.geography import by_tabulation
from constraint_builders.tied_together import TiedTogether, said_of_cells

FILE = "file*"  # column of ours: no column of a file has such a name


class StoredResult:
    """What a result holds, of which `Result` asks questions; parameters and errors are those that it states."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.description = read_description(self.folder)
        self._checked: dict[str, os.stat_result] = {}
        self._measured = self._product(self.description.settings, self.description.zeros)

    def _product(self, settings: str, zeros: Sequence[str], within: str = "") -> StoredMeasurements:
        """What was measured of a product."""
        has_zeros = within + ZEROS in self.description.files
        return StoredMeasurements(self._intact, settings, zeros if has_zeros else None, within)

    def _intact(self, name: str) -> Path:
        """A file of the result, which is what was written."""
        path = self.folder / name
        if name not in self.description.files:
            raise DamagedError(f"{path} is no file of this result: estimate again")
        now = path.stat() if path.is_file() else None
        if now is None or not untouched(now, self._checked.get(name)):
            require_intact(path, self.description.files[name])
            self._checked[name] = path.stat() if now is None else now
        return path

    @cached_property
    def proof(self) -> StoredProof:
        """What is proved of the estimates; it is of these files, or the result would not have been read."""
        with naming(self.folder / OUTLINE):
            return StoredProof.from_json(self.description.proof)

    @cached_property
    def tied(self) -> TiedTogether:
        """What ties the numbers together; equations as many as the fit has degrees of freedom."""
        sources = () if self.description.joined is None else tuple(self.description.joined.order)
        levels = read_parquet(self._intact(SPINE), ["geolevel"])["geolevel"].value_counts(sort=False).rows()
        counts = dict(levels)
        order = [level for level in self.description.tables if level in counts]
        places = f"spine {' > '.join(f'{counts[level]:,} {level}' for level in order)}"
        fit, understood = self.proof.fit, Understood(sources)
        if fit is None:
            tables = sum(len(own) for own in self.measured.observed.values())
            return TiedTogether(None, tables, places=places, understood=understood)
        loose = fit.unchecked.items()
        unchecked = tuple(said_of_cells(own, of, f"table {table!r} at {level}") for (level, table), (own, of) in loose)
        return TiedTogether(fit.degrees_of_freedom, len(fit.tables), 0, places, unchecked, understood)

    @cached_property
    def noticed(self) -> str:
        """What puts the files that were read in doubt, in a few words; or ""."""
        return doubtful(self.description.remarks)

    @property
    def doubt(self) -> str:
        """What is doubtful about what was measured; or ""."""
        return doubt_of(self.proof.fit, self.noticed)

    def require_intact(self) -> None:
        """Raise `DamagedError` unless every file is what was written."""
        for name in self.description.files:
            self._intact(name)

    @property
    def settings(self) -> Settings:
        """Of the mechanism that measured; in a joint result those of the product whose geolevels it has."""
        return self._measured.settings

    @property
    def schema(self) -> Schema:
        """The variables and recodes."""
        return self._measured.schema

    @property
    def fit_schema(self) -> Schema:
        """The schema in whose terms the fit names tables."""
        return self.schema if self.description.joined is None else self.measured.solved_schema

    @property
    def in_part(self) -> PlacesInPart:
        """The published places of which it does not hold all."""
        return self.description.in_part

    @property
    def spine(self) -> Spine:
        """The geounits."""
        return self._measured.spine

    @cached_property
    def measured(self) -> MeasuredTogether:
        """All that was measured."""
        said = self.description.joined
        if said is None:
            return MeasuredTogether.alone(self._measured)
        products = {said.name: self._measured}
        for number, own in enumerate(said.others):
            products[own.name] = self._product(own.settings, own.zeros, joined_folder(number))
        ordered = {name: products[name] for name in said.order}
        return MeasuredTogether.jointly(ordered, said.name, said.recodes, said.parts)

    def stored_tables(self, geolevel: str) -> list[Table]:
        """The tables that were estimated at a geolevel, in order of size."""
        self.spine.level_index(geolevel)
        tables = [parse_table(self.schema, name) for name in self.description.tables.get(geolevel, ())]
        return sorted(tables, key=lambda table: (table.size, table.name))

    def problem(self, desired: Mapping[str, Sequence[str]]) -> Problem:
        """The estimation problem again, for other desired tables."""
        return self.problem_of(self.measured.schema, self.measured.observed, desired)

    def problem_of(self, schema: Schema, observed: Mapping[str, Any], desired: Mapping[str, Sequence[str]]) -> Problem:
        """The estimation problem of measurements summed over some variables (`sum_out`)."""
        return self.measured.problem(schema, observed, desired, self.description.noise)

    def members(self, geolevel: str) -> NDArray[np.intp]:
        """Positions in the spine of the geounits of a geolevel."""
        return self.spine.members[self.spine.level_index(geolevel)]

    def stored(self, geolevel: str, table: Table, geounits: NDArray[np.intp]) -> tuple[Float, Float]:
        """Stored estimates and their standard errors of a table, (g, cells), in geounits by their numbers in the level.

        Raises
        ------
        DamagedError
            If one is not there, or is not finite.
        """
        estimate, std_error = self._columns(geolevel, table, geounits, ("estimate", "std_error"))
        return estimate, std_error

    def stored_estimates(self, geolevel: str, table: Table, geounits: NDArray[np.intp]) -> Float:
        """Stored estimates of some geounits, (g, cells), by their numbers in the level; raises as `stored`."""
        return self._columns(geolevel, table, geounits, ("estimate",))[0]

    def _columns(self, geolevel: str, table: Table, geounits: NDArray[np.intp], columns: Sequence[str]) -> list[Float]:
        """Stored columns of some geounits, (g, cells) each."""
        codes = [self.spine.geocodes[i] for i in self.members(geolevel)[geounits]]
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
        names = self.description.files_of(whole)
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


Observed = Mapping[str, Mapping[str, Float]]
Levels = Mapping[str, Flags]  # for each variable that a count restricts which of its levels are counted


def of_variables(schema: Schema, levels: Levels) -> Levels:
    """What is counted of variables, by what is counted of factors, (cells,) each, of which some are recodes."""
    return {schema.names[schema.axis_of(own)]: flags[list(schema.groups_of(own))] for own, flags in levels.items()}


@dataclass(frozen=True)
class MeasuredTogether:
    """All measurements of a result.

    Attributes
    ----------
    schema : Schema
    observed : mapping of geolevel or layer to mapping of table to ndarray (geounits,)
        Variances.
    zeros : mapping of (geolevel or layer, table) to ndarray of bool
    places : Spine or Areas
    layers : mapping of geolevel to geolevel or layer
        What the geolevels at which estimates are stored are called here.
    factors : mapping of str to str
        What the variables and recodes of stored tables are called in the schema, where they have another name.
    leaves : CommonLeaves or None
        Of several products.
    parts : CountedParts
        Which of these count some people alone.
    """

    schema: Schema
    observed: Observed
    zeros: Mapping[tuple[str, str], Flags]
    places: Spine | Areas
    layers: Mapping[str, str]
    factors: Mapping[str, str] = field(default_factory=dict)
    leaves: CommonLeaves | None = None
    parts: CountedParts = field(default_factory=CountedParts)

    @classmethod
    def alone(cls, own: StoredMeasurements) -> MeasuredTogether:
        """Of one product."""
        return cls(own.schema, own.variances, own.zeros, own.spine, {level: level for level in own.spine.levels})

    @classmethod
    def jointly(
        cls, products: Mapping[str, StoredMeasurements], stored: str, recodes: Mapping[str, str], parts: CountedParts
    ) -> MeasuredTogether:
        """Of several products by name, one of which says the geolevels of what is stored; see `joint`."""
        common = parts.common({name: own.schema for name, own in products.items()}, recodes)
        leaves = CommonLeaves({name: by_tabulation(own.spine) for name, own in products.items()}, [])
        observed: dict[str, dict[str, Float]] = {}
        zeros: dict[tuple[str, str], Flags] = {}
        for name, own in products.items():
            for level, tables in own.variances.items():
                here = observed.setdefault(leaves.layer(name, level), {})
                for table, variances in tables.items():
                    here[common.table(name, parse_table(own.schema, table))] = variances
            for (level, table), flags in own.zeros.items():
                if flags.any():
                    zeros[leaves.layer(name, level), common.table(name, parse_table(own.schema, table))] = flags
        layers = {level: leaves.layer(stored, level) for level in products[stored].spine.levels}
        return cls(common.schema, observed, zeros, leaves.areas, layers, common.factors[stored], leaves, parts)

    @property
    def kept_variables(self) -> set[str]:
        """The variables that tell structural zeros apart, or what products count."""
        tables = {table for _, table in self.zeros}
        told = {self.schema.names[axis] for table in tables for axis in parse_table(self.schema, table).axes}
        return told.union(self.parts.variables(self.schema))

    @property
    def solved_schema(self) -> Schema:
        """The schema of the joint problem, in whose terms its fit names tables."""
        apart = self._apart(self.schema)
        return self.schema if apart is None else apart.schema

    def _apart(self, schema: Schema) -> LeavesByGroup | None:
        """Leaves that tell apart what products count; None where each counts everybody."""
        return None if self.leaves is None else self.parts.apart(schema, self.leaves)

    def counted(self, schema: Schema, levels: Levels) -> Levels:
        """What is counted of variables of stored tables, in terms of this schema's variables."""
        return of_variables(schema, {self.factors.get(name, name): flags for name, flags in levels.items()})

    def table(self, schema: Schema, variables: Collection[str]) -> Table:
        """The table of a smaller schema that tells levels of variables of stored tables apart."""
        own = self.parts.variables(self.schema)
        factors = [self.factors.get(name, name) for name in variables]
        ordered = sorted(
            factors, key=lambda factor: (schema.names[schema.axis_of(factor)] not in own, schema.axis_of(factor))
        )
        return parse_table(schema, " * ".join(ordered) or "total")

    def problem(self, schema: Schema, observed: Observed, desired: Mapping[str, Sequence[str]], noise: str) -> Problem:
        """The estimation problem of measurements summed over some variables (`sum_out`), at stored geolevels."""
        apart = self._apart(schema)
        if apart is None:
            asked = by_layer(self.asked(schema, desired))
            places: dict[str, Any] = {"areas" if isinstance(self.places, Areas) else "spine": self.places}
            return Problem(schema, observed, asked, zeros=self.zeros or None, noise=noise, **places)
        measured: dict[str, dict[str, Float]] = {}
        for place in ((layer, *own) for layer, row in observed.items() for own in row.items()):
            layer, table, variances = apart.measured(*place)
            measured.setdefault(layer, {})[table] = variances
        wanted = by_layer(self._placed(apart, desired))
        zeros = apart.empty(self.zeros)
        return Problem(apart.schema, measured, wanted, areas=apart.areas(), zeros=zeros or None, noise=noise)

    def asked(self, schema: Schema, desired: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        """The layer and name that every table, desired at a stored geolevel, has in that problem."""
        return self._placed(self._apart(schema), desired)

    def _placed(self, apart: LeavesByGroup | None, desired: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
        asked = [(self.layers[level], own) for level, tables in desired.items() for own in tables]
        return asked if apart is None else [apart.place(layer, own)[:2] for layer, own in asked]

"""What a stored result was estimated from, as one problem: of one product on its spine, or of several over areas."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blue_solvers.results.stored_measurements import StoredMeasurements
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.common_leaves import CommonLeaves, LeavesByGroup
from constraint_builders.description.common_schema import CountedParts
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.geography import by_tabulation

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
        asked = {self.layers[level]: tables for level, tables in desired.items()}
        apart = self._apart(schema)
        if apart is None:
            places: dict[str, Any] = {"areas" if isinstance(self.places, Areas) else "spine": self.places}
            return Problem(schema, observed, asked, zeros=self.zeros or None, noise=noise, **places)
        measured: dict[str, dict[str, Float]] = {}
        for place in ((layer, *own) for layer, row in observed.items() for own in row.items()):
            layer, table, variances = apart.measured(*place)
            measured.setdefault(layer, {})[table] = variances
        wanted: dict[str, list[str]] = {}
        for layer, table, _ in (apart.place(layer, own) for layer, tables in asked.items() for own in tables):
            wanted.setdefault(layer, []).append(table)
        zeros = apart.empty(self.zeros)
        return Problem(apart.schema, measured, wanted, areas=apart.areas(), zeros=zeros or None, noise=noise)

"""What a stored result was estimated from, as one problem: of one product on its spine, or of several over areas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from blue_solvers.results.stored_measurements import StoredMeasurements
from constraint_builders import Areas, Problem, Spine
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.common_leaves import CommonLeaves
from constraint_builders.description.common_schema import common_schema
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.geography import by_tabulation

Observed = Mapping[str, Mapping[str, Float]]


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
    """

    schema: Schema
    observed: Observed
    zeros: Mapping[tuple[str, str], NDArray]
    places: Spine | Areas
    layers: Mapping[str, str]

    @classmethod
    def alone(cls, own: StoredMeasurements) -> MeasuredTogether:
        """Of one product."""
        return cls(own.schema, own.variances, own.zeros, own.spine, {level: level for level in own.spine.levels})

    @classmethod
    def jointly(
        cls, products: Mapping[str, StoredMeasurements], stored: str, recodes: Mapping[str, str]
    ) -> MeasuredTogether:
        """Of several products by name, one of which says the geolevels of what is stored; see `joint`."""
        common = common_schema({name: own.schema for name, own in products.items()}, products[stored].schema, recodes)
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
        return cls(common.schema, observed, zeros, leaves.areas, layers)

    @property
    def zero_variables(self) -> set[str]:
        """The variables that tell structural zeros apart."""
        tables = {table for _, table in self.zeros}
        return {self.schema.names[axis] for table in tables for axis in parse_table(self.schema, table).axes}

    def problem(self, schema: Schema, observed: Observed, desired: Mapping[str, Sequence[str]], noise: str) -> Problem:
        """The estimation problem of measurements summed over some variables (`sum_out`), at stored geolevels."""
        asked = {self.layers[level]: tables for level, tables in desired.items()}
        places: dict[str, Any] = {"areas" if isinstance(self.places, Areas) else "spine": self.places}
        return Problem(schema, observed, asked, zeros=self.zeros or None, noise=noise, **places)

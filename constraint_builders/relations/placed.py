"""What holds between tables at places, by the kind of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from constraint_builders.arrays import Float
from constraint_builders.description.areas import Areas
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine_or_areas import Places
from constraint_builders.description.table import Table
from constraint_builders.relations.area_constraints import AreaConsistency
from constraint_builders.relations.constraints import SelfConsistency
from constraint_builders.relations.spine_constraints import SpineConsistency


def consistency_of(
    schema: Schema,
    places: Places,
    levels: Sequence[int],
    tables: Sequence[Table],
    variances: Sequence[Float],
    other_factors: Iterable[str] = (),
) -> SelfConsistency:
    """The equations between tables of all geounits, or of all areas; see `SelfConsistency`."""
    kind = AreaConsistency if isinstance(places, Areas) else SpineConsistency
    return kind(schema, places, levels, tables, variances, other_factors)

"""How many cells the rows of measurement files may have, by what their columns say."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
import polars as pl

from constraint_builders.arrays import Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.files.measurement_queries import CONSTRAINT_SUFFIX, MEASUREMENT_SUFFIX, says_nothing

NAMES_AT_ONCE = 1 << 16  # rows whose names are held at once
CELLS = "cells*"  # no variable's name has a *


def most_cells_of(said: pl.LazyFrame, rows: range, schema: Schema) -> Index:
    """The most cells that some rows may have, (rows,), by what their columns say."""
    found = np.empty(len(rows), dtype=np.intp)
    for start in rows[::NAMES_AT_ONCE]:
        own = said.slice(start, min(NAMES_AT_ONCE, rows.stop - start)).select(pl.all().cast(pl.String)).collect()
        kinds = own.unique(maintain_order=True)
        sizes = pl.Series(CELLS, [_most_cells(schema, row) for row in kinds.iter_rows(named=True)], dtype=pl.Int64)
        joined = own.join(kinds.with_columns(sizes), own.columns, how="left", nulls_equal=True, maintain_order="left")
        found[start - rows.start :][: own.height] = joined[CELLS].to_numpy()
    return found


def _most_cells(schema: Schema, said: Mapping[str, str | None]) -> int:
    """The most cells of a row that says this of its table."""
    if any(name not in said for name in schema.names):
        try:
            name = str(said["query_name"])
            return parse_table(schema, name.removesuffix(MEASUREMENT_SUFFIX).removesuffix(CONSTRAINT_SUFFIX)).size
        except ValueError:
            return prod(schema.shape)
    told_apart = [i for i, name in enumerate(schema.names) if not says_nothing(said[name])]
    return prod(schema.shape[i] for i in told_apart)

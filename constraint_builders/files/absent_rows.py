"""Rows of cells that were not published: where the law of the noise says how precise all are, they may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations

import numpy as np
import polars as pl

from constraint_builders.description.areas import Areas
from constraint_builders.description.schema import Schema
from constraint_builders.files.columns import GEOCODE, GEOLEVEL, PARENT, SOURCE, SUMMED_OUT, TABLE, find_columns
from constraint_builders.files.naming import shown
from constraint_builders.files.numbers import read_labels
from constraint_builders.files.source import Source

MOST_CELLS = 1e7  # of a table that lacks some: it is held whole
LEAST_ALIKE = 3  # labels of two columns, each of which goes with one of the other, that say the same


def with_absent_rows(table: Source, schema: Schema | None, areas: Areas | None = None) -> Source:
    """The same with a row, without a value, for every cell of a table of which it has none.

    Cells are those of all levels that some row has, in every geounit of a geolevel of which the table has some row, or
    every area, and of every source that has it there.

    Parameters
    ----------
    table : Source
        Whose rows say how precise they are, and the names of tables.
    schema : Schema or None
        Whose levels there are; by default those that some row has.
    areas : Areas, optional
        In which the rows are.

    Raises
    ------
    ValueError
        If two columns say the same, or a table would be too large; it is named.
    """
    columns = find_columns(table.frame, schema)
    variables, frame = list(columns.variables.values()), table.frame
    labels = frame.with_columns(read_labels(frame[name]).alias(name) for name in variables)
    places = [columns.keys[key] for key in (GEOLEVEL, GEOCODE, PARENT) if key in columns.keys]
    grouped = [columns.keys[key] for key in (TABLE, SOURCE) if key in columns.keys] + places[:1]
    found = [frame]
    for rows in labels.partition_by(grouped, maintain_order=True):
        axes = [rows.select(grouped).unique()]
        if places and areas is not None:
            axes.append(pl.DataFrame({places[1]: areas.names(rows[places[0]][0])}))
        elif places:
            axes.append(labels.filter(labels[places[0]] == rows[places[0]][0]).select(places[1:]).unique())
        for variable, name in columns.variables.items():
            own = rows[name].drop_nulls().unique(maintain_order=True)
            if schema:
                own = _all_labels(schema, variable, own)
            elif (own != SUMMED_OUT).all():
                own = labels[name].filter(labels[name] != SUMMED_OUT).drop_nulls().unique(maintain_order=True)
            axes.append(own.to_frame())
        size = float(np.prod([float(axis.height) for axis in axes]))
        if size <= rows.height:
            continue
        _refuse_alike(rows, [*places[1:2], *variables])
        if size > MOST_CELLS:
            name = rows[columns.keys[TABLE]][0]
            raise ValueError(
                f"table {name!r} has {rows.height:,} rows of {size:,.0f} cells, which would all be held: leave out a "
                "variable, or sum others to groups"
            )
        keys = [*grouped, *places[1:], *variables]
        absent = reduce(lambda one, other: one.join(other, how="cross"), axes).join(rows, on=keys, how="anti")
        found.append(absent.select(pl.col(keys).cast(pl.String)).cast({name: frame.schema[name] for name in keys}))
    frame, spread = pl.concat(found, how="diagonal"), columns.spread.column
    unknown = frame[columns.value].is_null()
    frame = frame.with_columns(pl.when(unknown).then(np.inf).otherwise(pl.col(spread)).alias(spread))
    return replace(table, frame=frame, rows=np.concatenate([table.rows, np.zeros(frame.height - table.rows.size, int)]))


def _refuse_alike(rows: pl.DataFrame, names: Sequence[str]) -> None:
    """Refuse two columns that say the same of all rows of a table, as a code and a name do."""
    for one, other in combinations(names, 2):
        pairs = rows.select(one, other).unique()
        if LEAST_ALIKE <= pairs.height == pairs[one].n_unique() == pairs[other].n_unique():
            raise ValueError(
                f"columns {one!r} and {other!r} say the same, {shown(pairs[one][0])} is {shown(pairs[other][0])}: keep "
                "one, and call the other 'note'"
            )


def _all_labels(schema: Schema, variable: str, labels: pl.Series) -> pl.Series:
    """All of the variable, or of its recode, of which some are given; these where none has them."""
    for factor in schema.factors_of(variable):
        own = list(schema.labels_of(factor))
        if labels.is_in(own).all():
            return pl.Series(labels.name, own, dtype=pl.String)
    return labels

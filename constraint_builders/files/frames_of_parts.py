"""Estimates over leaves by group as a long table with a column for the variable that tells the leaves apart."""

from __future__ import annotations

import numpy as np
import polars as pl

from constraint_builders.description.leaves_by_group import LeavesByGroup
from constraint_builders.files.cell_keys import SUMMED_OUT
from constraint_builders.problem import Problem

TABLE, GEOLEVEL, GEOCODE = "table", "geolevel", "geocode"


def with_groups(frame: pl.DataFrame, problem: Problem, apart: LeavesByGroup) -> pl.DataFrame:
    """A frame of estimates, a row for each desired cell, in terms of the schema and the layers that were joined.

    Parameters
    ----------
    frame : polars.DataFrame
        Of a joint problem with products that count some people alone, as `estimates_frame` makes it.
    problem : Problem
    apart : LeavesByGroup
    """
    schema, told = apart.whole, apart.told_apart
    tables, geolevels, geocodes = (frame[name].to_list() for name in (TABLE, GEOLEVEL, GEOCODE))
    labels = {name: [SUMMED_OUT] * frame.height for name in told}
    for index, level in enumerate(problem.desired_levels):
        own, first = apart.part(problem.domain.places.levels[level])
        rows = np.arange(frame.height)[problem.desired.block(index)].tolist()
        known = schema.labels_of(first) if first else ("",)
        cells = problem.desired_tables[index].size
        for number, row in enumerate(rows):
            geolevels[row] = own
            if first:
                label = known[number // cells % len(known)]
                labels[schema.names[schema.axis_of(first)]][row] = label
                geocodes[row] = geocodes[row].removesuffix(f", {label}")
                tables[row] = first if tables[row] == "total" else f"{first} * {tables[row]}"
    rest = [
        name for name in frame.columns if name not in (TABLE, GEOLEVEL, GEOCODE, *schema.names, *apart.schema.names)
    ]
    keys = {name: labels.get(name, frame[name] if name in frame.columns else None) for name in schema.names}
    places = {GEOLEVEL: geolevels, GEOCODE: geocodes}
    return pl.DataFrame({TABLE: tables, **keys, **places}).with_columns(frame.select(rest))

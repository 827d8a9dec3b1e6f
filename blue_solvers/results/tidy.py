"""Answers from a stored result as tables: a row for every count or cell of every place, with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
import polars as pl

from blue_solvers.quantiles import takes_confidence_level
from blue_solvers.results.published_answers import NUMBERS, with_bounds
from blue_solvers.results.questions import Count, Result
from blue_solvers.results.store import Progress
from constraint_builders.arrays import Float, Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.columns import SUMMED_OUT

CELLS_AT_ONCE = 64  # the covariance between counts that are asked together grows as their square

Places: TypeAlias = Mapping[str, Index]


@takes_confidence_level
def counts_frame(
    result: Result,
    places: Places,
    counts: Mapping[str, Count],
    confidence_level: float = 0.95,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Counts over places.

    Parameters
    ----------
    result : Result
    places : mapping of str to ndarray of int
        Positions in the spine of the geounits of every place.
    counts : mapping of str to Count
        As `Result.ask` takes them, by the names that they get.
    confidence_level : float
        Of the intervals.
    progress : callable, optional
        As `Result.ask_places` takes it.

    Returns
    -------
    polars.DataFrame
        Columns ``place``, ``count``, ``estimate``, ``std_error``, ``lower`` and ``upper``; places one after another.

    Raises
    ------
    ValueError
        As `Result.ask`.
    """
    estimate, std_error = _asked(result, places, list(counts.values()), progress)
    keys = {"place": [place for place in places for _ in counts], "count": list(counts) * len(places)}
    return _with_results(
        pl.DataFrame(keys, schema=dict.fromkeys(keys, pl.String)), estimate, std_error, confidence_level
    )


@takes_confidence_level
def tables_frame(
    result: Result,
    places: Places,
    tables: Sequence[str],
    confidence_level: float = 0.95,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """All cells of whole tables over places.

    Parameters
    ----------
    result, places, confidence_level, progress
        As for `counts_frame`.
    tables : sequence of str
        Names of tables that can be summed from those that were estimated.

    Returns
    -------
    polars.DataFrame
        Columns ``place``, ``table``, one for each variable (a label, ``*`` where it is summed out), ``estimate``,
        ``std_error``, ``lower`` and ``upper``.

    Raises
    ------
    ValueError
        As `Result.ask`; or if a name is no table's.
    """
    found = []
    for name in tables:
        table = parse_table(result.schema, name)
        keys = cell_frame(result.schema, name, table)
        estimate, std_error = _asked(result, places, list(_cells(result, table)), progress)
        frame = cells_frame(keys, list(places), estimate, std_error, confidence_level)
        found.append(frame.select("place", pl.exclude("place")))
    return pl.concat(found)


@takes_confidence_level
def geounits_frame(
    result: Result,
    geolevel: str,
    tables: Sequence[str],
    confidence_level: float = 0.95,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """All cells of whole tables in every geounit of a level.

    Tables that were estimated there are read as they are stored; others are summed as `tables_frame` does.

    Parameters
    ----------
    result, confidence_level, progress
        As for `counts_frame`.
    geolevel : str
    tables : sequence of str

    Returns
    -------
    polars.DataFrame
        A long table: ``table``, one column for each variable, ``geolevel``, ``geocode``, ``estimate``, ``std_error``,
        ``lower`` and ``upper``.

    Raises
    ------
    ValueError
        As `tables_frame`.
    """
    members = result.spine.members[result.spine.level_index(geolevel)]
    codes = [result.spine.geocodes[i] for i in members]
    stored = {table.name: table for table in result.tables(geolevel)}
    found = []
    for name in tables:
        table = parse_table(result.schema, name)
        if table.name in stored and not table.is_turned:
            estimate, std_error = map(np.ravel, result.stored(geolevel, table, np.arange(members.size)))
            keys = cell_frame(result.schema, name, table)
            frame = cells_frame(keys, codes, estimate, std_error, confidence_level)
        else:
            frame = tables_frame(
                result, {code: members[[i]] for i, code in enumerate(codes)}, [name], confidence_level, progress
            )
        found.append(at_geounits(frame, geolevel))
    return pl.concat(found)


def cells_frame(
    keys: pl.DataFrame, places: Sequence[str], estimate: Float, std_error: Float, confidence: float
) -> pl.DataFrame:
    """All cells of a table, by their keys, in every place; numbers are (places * cells,), cells of a place together."""
    place = pl.Series("place", places, dtype=pl.String).gather(np.repeat(np.arange(len(places)), keys.height))
    repeated = pl.concat([keys] * len(places)).with_columns(place)
    return _with_results(repeated, estimate, std_error, confidence)


def at_geounits(frame: pl.DataFrame, geolevel: str) -> pl.DataFrame:
    """Answers whose places are the geounits of a level, under the columns of a long table."""
    keys = [name for name in frame.columns if name not in ("place", *NUMBERS)]
    return frame.select(*keys, pl.lit(geolevel).alias("geolevel"), pl.col("place").alias("geocode"), *NUMBERS)


def _asked(result: Result, places: Places, counts: Sequence[Count], progress: Progress | None) -> tuple[Float, Float]:
    """Estimates and standard errors, (places * counts,), counts of a place together."""
    estimates, errors = [], []
    for start in range(0, len(counts), CELLS_AT_ONCE):
        sums = result.place_sums(places, counts[start : start + CELLS_AT_ONCE])
        estimates.append(sums.estimates)
        errors.append(sums.std_errors(progress))
    return np.concatenate(estimates, axis=1).ravel(), np.concatenate(errors, axis=1).ravel()


def _cells(result: Result, table: Table) -> Iterator[Count]:
    """Every cell of a table, in C order, as a count."""
    for labels in product(*(result.schema.labels_of(factor) for factor in table.factors)):
        yield {factor: [label] for factor, label in zip(table.factors, labels, strict=True)}


def cell_frame(schema: Schema, name: str, table: Table) -> pl.DataFrame:
    """The keys of a table's cells, in C order."""
    cells = list(product(*(schema.labels_of(factor) for factor in table.factors)))
    columns = {"table": [name] * len(cells)} | {variable: [SUMMED_OUT] * len(cells) for variable in schema.names}
    for position, axis in enumerate(table.axes):
        columns[schema.names[axis]] = [labels[position] for labels in cells]
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def _with_results(keys: pl.DataFrame, estimate: Float, std_error: Float, confidence_level: float) -> pl.DataFrame:
    """The keys with estimates, standard errors, (rows,) each, and the bounds of intervals."""
    columns = with_bounds(estimate, std_error, confidence_level)
    return keys.with_columns(pl.Series(name, values) for name, values in columns.items())

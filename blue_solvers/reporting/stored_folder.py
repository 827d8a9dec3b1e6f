"""The page of a folder that `estimate` made of measurement files, read by its manifest and in little memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from blue_solvers.reporting.for_readers import NO_NAMES, listed_sections, told_apart
from blue_solvers.reporting.page_parts import BY_ERROR, MOST_ROWS, STD_ERROR, Page, tied_tile
from blue_solvers.reporting.precision import GEOLEVEL, LARGEST, MEASURED, TABLE, with_saved
from blue_solvers.reporting.stored_judgement import certificate_said, stored_fit
from blue_solvers.reporting.streamed_median import median_and_largest
from blue_solvers.reporting.unjudged import unjudged_page
from blue_solvers.results.checksums import DamagedError
from blue_solvers.results.store import estimates_of
from blue_solvers.results.stored import StoredResult
from blue_solvers.results.stored_measurements import VARIANCES
from blue_solvers.results.tidy import at_geounits, cell_frame, cells_frame
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table
from constraint_builders.files.arrow_files import frame_of, open_parquet, read_parquet
from constraint_builders.files.naming import naming

TOGETHER = 1 << 19  # numbers of a column that are read at once


class StoredEstimates(StoredResult):
    """The estimates of a result, table by table; every file is compared with its checksum first.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    DamagedError
        If a file is missing or is not what was written; it is named.
    OSError
        If there is no result.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.require_intact()
        self._places: dict[tuple[str, str], dict[str, tuple[int, int]]] = {}

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Geolevels and tables, from the highest level down and the smallest table up."""
        for geolevel in self.description.tables:
            if self._files(geolevel):
                yield from ((geolevel, table) for table in self.stored_tables(geolevel))

    def _files(self, geolevel: str) -> list[str]:
        return self.description.files_of(estimates_of(geolevel))

    def rows(self, geolevel: str, table: Table, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The rows of a table, some at a time, as they lie in the files."""
        for name in self._files(geolevel):
            path, (start, stop) = self.folder / name, self._rows_of(geolevel, name).get(table.name, (0, 0))
            if start == stop:
                continue
            with naming(path), open_parquet(path) as file:
                heights = np.array([file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)])
                stops = np.cumsum(heights)
                groups = np.flatnonzero((stops > start) & (stops - heights < stop)).tolist()
                before = int((stops - heights)[groups[0]])
                for batch in file.iter_batches(max(1, TOGETHER // table.size), groups, columns):
                    rows = frame_of(batch).select(columns)[max(start - before, 0) : max(stop - before, 0)]
                    before += batch.num_rows
                    if rows.height:
                        yield rows

    def _rows_of(self, geolevel: str, name: str) -> dict[str, tuple[int, int]]:
        """Where the rows of every table begin and end in a file: they lie together."""
        key = geolevel, name
        if key not in self._places:
            with naming(self.folder / name):
                runs = read_parquet(self.folder / name, ["table"])["table"].rle().struct.unnest()
            found = zip(runs["value"], runs["len"], runs["len"].cum_sum().to_list(), strict=True)
            self._places[key] = {table: (stop - length, stop) for table, length, stop in found}
            if len(self._places[key]) < runs.height:
                raise DamagedError(f"{self.folder / name}: rows of a table do not lie together")
        return self._places[key]

    def medians_measured(self) -> dict[tuple[str, str], float]:
        """Median standard error as measured, by geolevel and table."""
        rows = read_parquet(self._intact(VARIANCES))
        error = pl.col("variance").sqrt().median().alias(MEASURED)
        return {(level, table): own for level, table, own in rows.group_by("geolevel", "table").agg(error).iter_rows()}

    def precision(self) -> pl.DataFrame:
        """Precision by geolevel and table, as `precision_rows` gives it."""
        measured, found = self.medians_measured(), []
        for geolevel, table in self.tables():
            if not any(table.name in self._rows_of(geolevel, name) for name in self._files(geolevel)):
                raise DamagedError(f"{self.folder}: no file has table {table.name!r} at {geolevel}: estimate again")
            median, largest, cells = median_and_largest(partial(self._errors, geolevel, table))
            found.append((geolevel, table.name, cells, measured.get((geolevel, table.name)), median, largest))
        names = [GEOLEVEL, TABLE, "cells", MEASURED, STD_ERROR, LARGEST]
        types = dict(zip(names, [pl.String, pl.String, pl.Int64, *[pl.Float64] * 3], strict=True))
        return with_saved(pl.DataFrame(found, schema=types, orient="row"))

    def _errors(self, geolevel: str, table: Table) -> Iterator[Float]:
        for rows in self.rows(geolevel, table, ["std_error"]):
            yield rows["std_error"].explode().to_numpy().reshape(rows.height, table.size)

    def first_rows(self, most: int, level: float) -> pl.DataFrame:
        """The first cells, a row each, with intervals of some level."""
        found: list[pl.DataFrame] = []
        left, names = most, ["geocode", "estimate", "std_error"]
        pieces = ((*own, rows) for own in self.tables() for rows in self.rows(*own, names))
        while left and (piece := next(pieces, None)) is not None:
            geolevel, table, rows = piece
            found.append(_cells(self.schema, geolevel, table, rows.head(-(-left // table.size)), level).head(left))
            left -= len(found[-1])
        return pl.concat(found)

    def first_numbers(self, geolevel: str, level: float) -> pl.DataFrame:
        """The first cell of every place of a geolevel, as `first_rows` gives it."""
        table = next(own for place, own in self.tables() if place == geolevel)
        rows = self.rows(geolevel, table, ["geocode", "estimate", "std_error"])
        return pl.concat(_cells(self.schema, geolevel, table, few, level).gather_every(table.size) for few in rows)


def _cells(schema: Schema, geolevel: str, table: Table, rows: pl.DataFrame, level: float) -> pl.DataFrame:
    estimate, std_error = (rows[name].explode().to_numpy() for name in ("estimate", "std_error"))
    keys = cell_frame(schema, table.name, table).rename(told_apart(schema.names), strict=False)
    frame = cells_frame(keys, rows["geocode"].to_list(), estimate, std_error, level)
    return at_geounits(frame, geolevel).rename({"std_error": STD_ERROR})


def stored_page(folder: Path, level: float, names: Mapping[str, str] = NO_NAMES) -> Page:
    """What is known of a stored result.

    Parameters
    ----------
    folder : Path
    level : float
        Of the intervals.
    names : mapping of str to str
        Of places, by GEOID.

    Raises
    ------
    DamagedError, OSError
        As `StoredEstimates`.
    """
    stored = StoredEstimates(folder)
    precision = stored.precision()
    formats = dict.fromkeys(("estimate", STD_ERROR, "lower", "upper"), BY_ERROR)
    counted = precision.select(GEOLEVEL, TABLE, "cells").iter_rows()
    sizes: dict[tuple[str, ...], int] = {(place, table): cells for place, table, cells in counted}
    listed = listed_sections(stored.first_rows(MOST_ROWS, level), sizes, formats, level, names)
    said, proof = stored.description, stored.proof
    made = [
        f"Solver: {said.solver}. {said.reason[:1].upper()}{said.reason[1:]}.",
        f"Settings {said.settings}, noise {said.noise}.",
        f"Tied by {stored.tied}.",
        "All files of the folder have the SHA-256 that was written.",
        *(f"Of the files that were read, {remark.about}: {remark.text}." for remark in said.remarks),
    ]
    advice = "A folder of estimates does not keep them; from a file, estimates are judged with --measured."
    known = {}
    if proof.certificate is not None or proof.fit is not None:
        known["fit"] = stored_fit(proof.fit, stored.fit_schema)
    if proof.certificate is not None:
        known["certificate"] = certificate_said(proof.certificate)
    page = unjudged_page(folder.name, precision, listed, advice, made, known, tied_tile(stored.tied), stored.doubt)
    return replace(page, places=partial(stored.first_numbers, level=level))

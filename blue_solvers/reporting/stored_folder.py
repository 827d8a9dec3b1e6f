"""The page of a folder that `estimate` made of measurement files, read by its manifest and in little memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from blue_solvers.reporting.judged import listed_section
from blue_solvers.reporting.page_parts import BY_ERROR, MOST_ROWS, STD_ERROR, Page
from blue_solvers.reporting.precision import GEOLEVEL, MEASURED, TABLE, precision_rows
from blue_solvers.reporting.stored_judgement import stored_certificate, stored_fit
from blue_solvers.reporting.unjudged import unjudged_page
from blue_solvers.results.checksums import require_intact
from blue_solvers.results.proof import StoredProof
from blue_solvers.results.store import SETTINGS, VARIANCES, estimates_of, read_description
from blue_solvers.uncertainty import normal_intervals
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, parse_table
from constraint_builders.files.cell_keys import SUMMED_OUT
from constraint_builders.files.naming import naming
from constraint_builders.files.parquet import read_parquet, scan_files
from constraint_builders.files.settings import parse_settings

FILE = "file*"  # column of ours: no column of a file has such a name


class StoredEstimates:
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
        self.folder = folder
        self.description = read_description(folder)
        for name, digest in self.description["files"].items():
            require_intact(folder / name, digest)
        with naming(folder / SETTINGS):
            text = (folder / SETTINGS).read_text(encoding="utf-8")
            self.schema: Schema = parse_settings(text, self.description["settings"]).schema

    def tables(self) -> Iterator[tuple[str, Table, pl.LazyFrame]]:
        """Geolevel, table and its rows, from the highest level down and the smallest table up."""
        for geolevel, names in self.description["tables"].items():
            whole = estimates_of(geolevel)
            files = [name for name in self.description["files"] if name == whole or name.startswith(f"{whole}/")]
            tables = sorted((parse_table(self.schema, name) for name in names), key=lambda own: (own.size, own.name))
            if files:
                rows = scan_files([self.folder / name for name in files], FILE)
                yield from ((geolevel, table, rows.filter(pl.col("table") == table.name)) for table in tables)

    def measured(self) -> pl.DataFrame:
        """Median standard error as measured, by geolevel and table."""
        rows = read_parquet(self.folder / VARIANCES)
        error = pl.col("variance").sqrt().median().alias(MEASURED)
        return rows.group_by("geolevel", "table").agg(error)

    def precision(self) -> pl.DataFrame:
        """Precision by geolevel and table, as `precision_rows` gives it."""
        measured = {(level, table): error for level, table, error in self.measured().iter_rows()}
        found = []
        for geolevel, table, rows in self.tables():
            cells = rows.select(pl.col("std_error").explode().alias(STD_ERROR)).with_columns(
                pl.lit(geolevel).alias(GEOLEVEL),
                pl.lit(table.name).alias(TABLE),
                pl.lit(measured.get((geolevel, table.name)), dtype=pl.Float64).alias(MEASURED),
            )
            found.append(precision_rows(cells, [GEOLEVEL, TABLE]))
        return pl.concat(found)

    def first_rows(self, most: int, level: float) -> pl.DataFrame:
        """The first cells, a row each, with intervals of some level."""
        found: list[pl.DataFrame] = []
        left = most
        for geolevel, table, rows in self.tables():
            if not left:
                break
            own = rows.head(-(-left // table.size)).select("geocode", "estimate", "std_error").collect()
            frame = _cells(self.schema, geolevel, table, own, level).head(left)
            found.append(frame)
            left -= len(frame)
        return pl.concat(found)


def _cells(schema: Schema, geolevel: str, table: Table, rows: pl.DataFrame, level: float) -> pl.DataFrame:
    labels = list(product(*(schema.labels_of(factor) for factor in table.factors)))
    columns = {name: [SUMMED_OUT] * len(labels) for name in schema.names}
    for position, axis in enumerate(table.axes):
        columns[schema.names[axis]] = [cell[position] for cell in labels]
    keys = pl.DataFrame({TABLE: [table.name] * len(labels), **columns})
    estimate, error = (rows[name].explode().to_numpy() for name in ("estimate", "std_error"))
    lower, upper = normal_intervals(estimate, error, level)
    numbers = {"estimate": estimate, STD_ERROR: error, "lower": lower, "upper": upper}
    return pl.concat([keys] * len(rows)).with_columns(
        pl.lit(geolevel).alias(GEOLEVEL),
        pl.Series("geocode", np.repeat(rows["geocode"].to_numpy(), table.size)),
        *(pl.Series(name, column) for name, column in numbers.items()),
    )


def stored_page(folder: Path, level: float) -> Page:
    """What is known of a stored result.

    Parameters
    ----------
    folder : Path
    level : float
        Of the intervals.

    Raises
    ------
    DamagedError, OSError
        As `StoredEstimates`.
    """
    stored = StoredEstimates(folder)
    precision = stored.precision()
    formats = dict.fromkeys(("estimate", STD_ERROR, "lower", "upper"), BY_ERROR)
    listed = listed_section(stored.first_rows(MOST_ROWS, level), int(precision["cells"].sum()), formats, level)
    said = stored.description
    made = [
        f"Solver: {said['solver']}. {said['reason'][:1].upper()}{said['reason'][1:]}.",
        f"Settings {said['settings']}, noise {said['noise']}.",
        "All files of the folder have the SHA-256 that was written.",
    ]
    advice = "A folder of estimates does not keep them; from a file, estimates are judged with --measured."
    proof = StoredProof.from_json(said.get("proof") or {})
    known = {} if proof.fit is None else {"fit": stored_fit(proof.fit)}
    if proof.certificate is not None:
        known["certificate"] = stored_certificate(proof.certificate)
    return unjudged_page(folder.name, precision, listed, advice, made, known)

"""The files of estimates of a result: a row for every table and geounit, written some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import polars as pl

from constraint_builders.arrays import Float, Index
from constraint_builders.description.table import Table
from constraint_builders.files.arrow_files import write_batches

LISTS = pl.List(pl.Float64)
ROW_GROUP, GROUP_CELLS = 1_024, 1 << 15  # read together, at most: a question about few geounits reads few such groups
COMPRESSION: Literal["lz4"] = "lz4"  # digits of estimates hardly compress: others cost several times as much for it
AT_ONCE = 1 << 17  # cells that are made into columns together, so few that they stay in cache
DICTIONARIES = ("table", "geocode", "std_error.list.element")  # listed once where they repeat, as estimates never do
DISTINCT = 1 << 14  # bytes of what is listed: to look for more repeats takes tens of MB

Rows: TypeAlias = Callable[[slice], Float]  # of a table, (rows, cells)
TableRows: TypeAlias = tuple[Table, Rows, Rows | None]


def write_estimates(path: Path, geocodes: Sequence[str], tables: Sequence[TableRows]) -> None:
    """Write tables of some geounits of one geolevel, some rows at a time.

    Parameters
    ----------
    path : Path
    geocodes : sequence of str, (G,)
    tables : sequence of (Table, callable, callable or None)
        Estimates and standard errors, (rows, cells), of the geounits that a slice names; all have standard errors, or
        none has.

    Raises
    ------
    ValueError
        If a number is not finite.
    OSError
        If it cannot be written.
    """
    names = ("estimate",) if tables[0][2] is None else ("estimate", "std_error")
    schema = pl.Schema([("table", pl.String), ("geocode", pl.String), *((name, LISTS) for name in names)])
    listed = {"use_dictionary": [*DICTIONARIES], "dictionary_pagesize_limit": DISTINCT}
    write_batches(_batches(geocodes, tables), schema, path, compression=COMPRESSION, **listed)


def _batches(geocodes: Sequence[str], tables: Sequence[TableRows]) -> Iterator[tuple[pl.DataFrame, int]]:
    """Rows of all tables, in order, in frames of few cells; each with how many rows are a row group."""
    codes = pl.Series("geocode", geocodes, dtype=pl.String)
    for table, estimate, std_error in tables:
        group = max(1, min(ROW_GROUP, GROUP_CELLS // table.size))
        step = group * max(1, AT_ONCE // (group * table.size))
        for start in range(0, len(geocodes), step):
            rows = slice(start, start + step)
            own = codes[rows]
            frame = [pl.Series("table", [table.name]).new_from_index(0, own.len()), own]
            for name, what, cells in (("estimate", "estimate", estimate), ("std_error", "standard error", std_error)):
                if cells is not None:
                    frame.append(_lists(name, cells(rows), f"{what} of table {table.name!r}", own))
            yield pl.DataFrame(frame), group


def _lists(name: str, cells: Float, what: str, codes: pl.Series) -> pl.Series:
    """A column of one list per geounit, of cells (G, cells); refused where one is not finite."""
    if not np.isfinite(cells).all():
        code = codes[int((~np.isfinite(cells)).any(axis=1).argmax())]
        raise ValueError(f"the {what} at {code!r} is not finite: are measurements too large?")
    return pl.Series(name, np.ascontiguousarray(cells)).cast(LISTS)


def rows_of(array: Float, rows: Index, change: Callable[[Float], Float] = np.asarray) -> Rows:
    """Rows of an array, (G, cells), changed as they are asked for."""
    return lambda some: change(array[some] if rows.size == len(array) else array[rows[some]])

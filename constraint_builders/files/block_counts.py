"""True counts by block, as a simulation needs them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl

from constraint_builders.files.naming import naming
from constraint_builders.layout import Float
from constraint_builders.schema import Schema

GEOID_COLUMNS = ("geoid", "geocode")
COUNT_COLUMN = "count"


def read_block_counts(path: str | os.PathLike[str], schema: Schema) -> tuple[list[str], Float]:
    """Read true counts by block from a CSV (also compressed) or Parquet file.

    The column ``geoid`` or ``geocode`` names the block. Counts come in either of two forms:

    - wide: one row a block, one column for every cell, named by the labels of its levels, in the order of the
      variables, joined by ``_``: ``adult_white``;
    - long: one column for every variable, holding a level's label, and ``count``. Rows of one cell add up, cells
      without a row are 0; a block without people may have a row with count 0 and anything in the other columns.

    Parameters
    ----------
    path : path
    schema : Schema

    Returns
    -------
    geoids : list of str
        In order of first appearance.
    counts : ndarray, (blocks, *schema.shape)

    Raises
    ------
    ValueError
        If a column is missing, a label is unknown, a count is no number of 0 or more, or a block of a wide file is
        given twice. The message names the file, the column and the row.
    OSError
        If the file cannot be opened.
    """
    with naming(path):
        with Path(path).open("rb") as file:
            frame = pl.read_parquet(file) if Path(path).suffix == ".parquet" else pl.read_csv(file, infer_schema=False)
        key = next((name for name in GEOID_COLUMNS if name in frame.columns), None)
        if key is None:
            raise ValueError(f"there is no column {' or '.join(map(repr, GEOID_COLUMNS))} to name the blocks")
        if frame[key].dtype.is_numeric():
            raise ValueError(f"column {key!r} must hold text, for leading zeros: it holds {frame[key].dtype}")
        if frame[key].null_count() or frame.is_empty():
            raise ValueError(f"column {key!r} is empty{_in_row(frame[key].is_null())}: every row needs a block")
        return _long(frame, key, schema) if COUNT_COLUMN in frame.columns else _wide(frame, key, schema)


def _in_row(wrong: pl.Series) -> str:
    return f" in row {1 + int(wrong.arg_true()[0])}" if wrong.any() else ""


def _wide(frame: pl.DataFrame, key: str, schema: Schema) -> tuple[list[str], Float]:
    cells = np.ndindex(schema.shape)
    labels = [schema.labels_of(name) for name in schema.names]
    names = ["_".join(own[i] for own, i in zip(labels, cell, strict=True)) for cell in cells]
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(
            f"column {missing[0]!r} is missing: give each of the {len(names):,} cells a column, or one to each of "
            f"{', '.join(schema.names)}, and {COUNT_COLUMN!r}"
        )
    extra = [name for name in frame.columns if name not in (key, *names)]
    if extra:
        raise ValueError(f"column {extra[0]!r} is no cell of the schema")
    repeated = frame[key].is_duplicated()
    if repeated.any():
        raise ValueError(f"block {frame[key].filter(repeated)[0]!r} is given twice, first{_in_row(repeated)}")
    counts = np.stack([_counts(frame[name]) for name in names], axis=1)
    return frame[key].to_list(), counts.reshape(-1, *schema.shape)


def _long(frame: pl.DataFrame, key: str, schema: Schema) -> tuple[list[str], Float]:
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise ValueError(f"column {missing[0]!r} is missing: give one for each of {', '.join(schema.names)}")
    counts = _counts(frame[COUNT_COLUMN])
    geoids = frame[key].unique(maintain_order=True)
    blocks = frame[key].cast(pl.Enum(geoids)).to_physical().to_numpy()
    counted = np.flatnonzero(counts > 0)
    cells = [_levels(frame[name], schema, name, counted) for name in schema.names]
    result = np.zeros((geoids.len(), *schema.shape))
    np.add.at(result, (blocks[counted], *cells), counts[counted])
    return geoids.to_list(), result


def _levels(column: pl.Series, schema: Schema, name: str, rows: np.ndarray) -> np.ndarray:
    """The level in some rows of a variable's column."""
    numbers = {label: number for number, label in enumerate(schema.labels_of(name))}
    labels = column.cast(pl.String).gather(rows)
    found = labels.replace_strict(numbers, default=-1, return_dtype=pl.Int64).to_numpy()
    if found.size and found.min() < 0:
        worst = int(found.argmin())
        known = ", ".join(map(repr, list(numbers)[:8])) + (", ..." if len(numbers) > 8 else "")
        raise ValueError(f"row {1 + rows[worst]}: column {name!r} has no level {labels[worst]!r}: there are {known}")
    return found


def _counts(column: pl.Series) -> Float:
    numbers = column.cast(pl.Float64, strict=False)
    wrong = ~(numbers.is_finite().fill_null(False) & (numbers >= 0).fill_null(False))
    if wrong.any():
        value = column.filter(wrong)[0]
        raise ValueError(f"column {column.name!r} holds {value!r}{_in_row(wrong)}: a count is a number of 0 or more")
    return numbers.to_numpy()

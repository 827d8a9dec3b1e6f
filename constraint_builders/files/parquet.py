"""Parquet files by their own names: nothing in a path is a pattern, an address or somebody's home."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl

from constraint_builders.declared_size import NUMBER_BYTES, DeclaredSize
from constraint_builders.extras import missing_extra
from constraint_builders.files.naming import naming
from constraint_builders.opening import open_file

OLDEST = pl.CompatLevel.oldest()  # text as ordinary strings, which every reader of Arrow knows


def _library() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise missing_extra("Parquet files need pyarrow", "frames") from error
    return pyarrow


@contextmanager
def open_parquet(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile` whose description was read; its path is taken literally, and not named.

    Raises
    ------
    ValueError
        If the file, or what is read of it inside, is no Parquet, damaged, or deep within one another.
    OSError
        If it cannot be opened.
    """
    library = _library()
    with open_file(path):  # which refuses what has no end
        pass
    try:
        with library.parquet.ParquetFile(os.path.abspath(path)) as file:
            yield file
    except MemoryError:
        raise
    except (library.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"not readable as a table: {str(error).splitlines()[0]}") from None


def frame_of(rows: Any) -> pl.DataFrame:
    """A frame of rows of an open file, which are what they say that they are: text, for instance."""
    rows.validate(full=True)
    frame = pl.DataFrame(rows)
    frame.columns = rows.schema.names  # polars gives a column without a name one
    return frame


def declared(file: Any) -> DeclaredSize:
    """How large the table in an open file is, by its description."""
    said = file.metadata
    groups = [said.row_group(number) for number in range(said.num_row_groups)]
    cells = sum(group.column(number).num_values for group in groups for number in range(said.num_columns))
    return DeclaredSize(cells, said.num_columns, sum(group.total_byte_size for group in groups), NUMBER_BYTES)


def scan_files(paths: Sequence[str | os.PathLike[str]], number: str) -> pl.LazyFrame:
    """The rows of some Parquet files, to be read later.

    Parameters
    ----------
    paths : sequence of path
        Taken literally: ``run[1]`` is a file of that name. Folders' names (``State=44``) give no columns.
    number : str
        Name of a column that says from which of the files a row is.
    """
    whole = [os.path.abspath(path) for path in paths]
    for path in whole:
        with naming(path), open_parquet(path):
            pass
    rows = pl.scan_parquet(whole, glob=False, hive_partitioning=False, include_file_paths=number)
    return rows.with_columns(pl.col(number).replace_strict(whole, list(range(len(whole))), return_dtype=pl.Int64))


def read_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of a Parquet file, and of them the named columns, by default all; raises as `open_parquet`, by name."""
    with naming(path), open_parquet(path) as file:
        frame = frame_of(file.read(columns))
        return frame if columns is None else frame.select(columns)


def write_parquet(frame: pl.DataFrame, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a Parquet file; parameters and errors as of `write_batches`."""
    write_batches([frame], frame.schema, path, **options)


def write_batches(
    batches: Iterable[pl.DataFrame],
    schema: pl.Schema,
    path: str | os.PathLike[str],
    *,
    compression: str = "zstd",
    row_group_size: int | None = None,
) -> None:
    """Write a Parquet file of frames that are made one after another, and not held together.

    Parameters
    ----------
    batches : iterable of polars.DataFrame
        Their rows follow one another in the file; what is raised there is raised here.
    schema : polars.Schema
        Of every one of them.
    path : path
        Taken literally.
    compression : str
    row_group_size : int, optional
        Rows of every row group but the last.

    Raises
    ------
    OSError
        If it cannot be written: the disk is full, say.
    """
    kinds = pl.DataFrame(schema=schema).to_arrow(compat_level=OLDEST).schema
    with _library().parquet.ParquetWriter(os.path.abspath(path), kinds, compression=compression) as writer:
        for frame in batches:
            for batch in frame.to_arrow(compat_level=OLDEST).combine_chunks().to_batches():
                writer.write_batch(batch, row_group_size)

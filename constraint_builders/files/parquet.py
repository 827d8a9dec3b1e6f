"""Parquet files by their own names: nothing in a path is a pattern, an address or somebody's home."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from constraint_builders.files.naming import naming
from constraint_builders.files.parquet_footer import read_footer
from constraint_builders.files.replacing import os_error

FOOTER = "transport error"  # what polars says of a description that could not be written, without the system's number
MORE = 1 << 20  # bytes


def scan_parquet(path: str | os.PathLike[str]) -> pl.LazyFrame:
    """The rows of a Parquet file, to be read later.

    Parameters
    ----------
    path : path
        Taken literally: ``run[1]`` is a file of that name. Folders' names (``State=44``) give no columns.

    Raises
    ------
    ValueError
        If the file is damaged, or has columns deep within one another; the path is not named.
    OSError
        If it cannot be opened.
    """
    read_footer(path).declared.require_shallow()
    return pl.scan_parquet(os.path.abspath(path), glob=False, hive_partitioning=False)


def scan_files(paths: Sequence[str | os.PathLike[str]], number: str) -> pl.LazyFrame:
    """The rows of some Parquet files, to be read later.

    Parameters
    ----------
    paths : sequence of path
        Taken literally, as by `scan_parquet`.
    number : str
        Name of a column that says from which of the files a row is.
    """
    whole = [os.path.abspath(path) for path in paths]
    for path in whole:
        with naming(path):
            read_footer(path).declared.require_shallow()
    rows = pl.scan_parquet(whole, glob=False, hive_partitioning=False, include_file_paths=number)
    return rows.with_columns(pl.col(number).replace_strict(whole, list(range(len(whole))), return_dtype=pl.Int64))


def read_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of a Parquet file, and of them the named columns; raises as `scan_parquet`, and names the path.

    Parameters
    ----------
    path : path
        Taken literally, as by `scan_parquet`.
    columns : sequence of str, optional
        By default all.
    """
    with naming(path):
        rows = scan_parquet(path)
        return (rows if columns is None else rows.select(columns)).collect()


def parquet_schema(path: str | os.PathLike[str]) -> pl.Schema:
    """Names and types of the columns of a Parquet file; its path is taken literally."""
    # A scan whose schema was asked for holds its file in memory: never the scan that rows are taken from.
    return scan_parquet(path).collect_schema()


def write_parquet(frame: pl.DataFrame, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a Parquet file; its path is taken literally.

    Parameters
    ----------
    frame : polars.DataFrame
    path : path
    **options
        As `polars.DataFrame.write_parquet` takes them.

    Raises
    ------
    OSError
        If it cannot be written: the disk is full, say.
    """
    with _told(path):
        frame.write_parquet(os.path.abspath(path), **options)


def write_batches(
    batches: Iterable[pl.DataFrame], schema: pl.Schema, path: str | os.PathLike[str], **options: Any
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
    **options
        As `polars.LazyFrame.sink_parquet` takes them.

    Raises
    ------
    OSError
        As `write_parquet`.
    """
    failed: list[BaseException] = []

    def source(*_: object) -> Iterator[pl.DataFrame]:
        try:
            yield from batches
        except Exception as error:
            failed.append(error)
            raise

    with _told(path, failed):
        rows = register_io_source(source, schema=schema)
        rows.sink_parquet(os.path.abspath(path), maintain_order=True, **options)


@contextmanager
def _told(path: str | os.PathLike[str], failed: Sequence[BaseException] = ()) -> Iterator[None]:
    """Raise what failed as itself, and what the system refused as `OSError`."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        if failed:
            raise failed[0] from None
        number = os_error(error)
        if number is None and FOOTER in str(error):
            _require_room(path)
        if number is None:
            raise
        raise OSError(number, os.strerror(number)) from None


def _require_room(path: str | os.PathLike[str]) -> None:
    """Raise what the system says to more at the end of a file whose description, which is written last, it refused."""
    try:
        with open(path, "ab") as file:
            file.write(bytes(MORE))
    except OSError as error:
        raise OSError(error.errno, error.strerror) from None

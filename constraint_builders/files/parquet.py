"""Parquet files by their own names: nothing in a path is a pattern, an address or somebody's home."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import polars as pl

from constraint_builders.files.replacing import os_error


def scan_parquet(path: str | os.PathLike[str]) -> pl.LazyFrame:
    """The rows of a Parquet file, or of all files of a folder, to be read later.

    Parameters
    ----------
    path : path
        Taken literally: ``run[1]`` is a folder of that name. Folders' names (``State=44``) give no columns.
    """
    return pl.scan_parquet(os.path.abspath(path), glob=False, hive_partitioning=False)


def read_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pl.DataFrame:
    """The rows of a Parquet file, or of all files of a folder, and of them the named columns.

    Parameters
    ----------
    path : path
        Taken literally, as by `scan_parquet`.
    columns : sequence of str, optional
        By default all.
    """
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
    try:
        frame.write_parquet(os.path.abspath(path), **options)
    except pl.exceptions.PolarsError as error:
        number = os_error(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number)) from None

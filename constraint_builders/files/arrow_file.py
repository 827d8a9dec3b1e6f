"""Tables in Arrow IPC files, which R's arrow, DuckDB and pandas read and write as Feather."""

from __future__ import annotations

import os
from typing import BinaryIO

import polars as pl

from constraint_builders.files.arrow_messages import MARK, declared
from constraint_builders.opening import read_whole


def read_arrow(file: BinaryIO) -> pl.DataFrame:
    """The rows of an Arrow IPC file or stream.

    Raises
    ------
    ValueError
        If it is neither, cut short, or says that it holds what no table of its size does.
    MemoryError
        If it takes more memory than is free.
    """
    data = read_whole(file)  # polars would go on where the system's own position is, or take a name for a pattern
    declared(data).require_moderate(len(data))
    try:
        return pl.read_ipc_stream(data) if data.startswith(MARK) else pl.read_ipc(data)
    except (pl.exceptions.PolarsError, OSError) as error:  # polars tells of a stream that was cut short by the latter
        raise ValueError(f"not readable as an Arrow file: {str(error).splitlines()[0]}") from None


def write_arrow(frame: pl.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write an Arrow IPC file without compression, text as ordinary strings, which every reader of Arrow knows.

    Raises
    ------
    OSError
        If it cannot be written: the disk is full, say.
    """
    import pyarrow.ipc

    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    with pyarrow.ipc.new_file(os.path.abspath(path), table.schema) as writer:
        writer.write_table(table)

"""Tables in the columns of Arrow: Parquet files, and Arrow IPC files, which many programs read and write as Feather.

Files go by their own names: nothing in a path is a pattern, an address or somebody's home. What a file or stream says
of its columns and rows is looked at before they are read. Those of Arrow IPC are messages, each a table of FlatBuffers
and then buffers of values; a file ends in a table that says where they begin. A table begins with the distance back to
a list of where its fields are.

References
----------
Apache Arrow, "Schema.fbs", "Message.fbs", "File.fbs".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from constraint_builders.arrays import Index
from constraint_builders.extras import needing
from constraint_builders.files.naming import naming
from constraint_builders.opening import MOST_COLUMNS, NUMBER_BYTES, DeclaredSize, open_file, read_whole

OLDEST = pl.CompatLevel.oldest()  # text as ordinary strings, which every reader of Arrow knows
MARK = b"\xff\xff\xff\xff"  # before a message
TAIL = 10  # bytes at the end of a file: the length of its last table, and its name
LAST_SCHEMA, LAST_BLOCKS = 1, (2, 3)  # fields of that table; of a message, a dictionary, a schema, a column, a batch
KIND, HEADER, BODY_BYTES = 1, 2, 3
IN_DICTIONARY = 1
FIELDS = 1
CHILDREN = 5
NODES, BUFFERS, COMPRESSION = 1, 2, 3
OF_SCHEMA, OF_DICTIONARY = 1, 2  # kinds of messages


def arrow_library() -> Any:
    """The package pyarrow; `ImportError` that says what to install where it is missing."""
    with needing("Parquet files need pyarrow", "frames"):
        import pyarrow.parquet
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
    library = arrow_library()
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


def declared_by_parquet(file: Any) -> DeclaredSize:
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


def write_parquet(
    frame: pl.DataFrame, path: str | os.PathLike[str], row_group_size: int | None = None, **options: Any
) -> None:
    """Write a Parquet file, of so many rows a row group; other parameters and errors as of `write_batches`."""
    table = frame.to_arrow(compat_level=OLDEST).combine_chunks()
    write_batches(((batch, row_group_size) for batch in table.to_batches()), table.schema, path, **options)


def write_batches(
    batches: Iterable[tuple[Any, int | None]],
    schema: Any,
    path: str | os.PathLike[str],
    *,
    compression: str = "zstd",
    **options: Any,
) -> None:
    """Write a Parquet file of record batches that are made one after another, and not held together.

    Parameters
    ----------
    batches : iterable of (pyarrow.RecordBatch, int or None)
        Their rows follow one another in the file; with the rows of a row group, by default all. What is raised there
        is raised here.
    schema : pyarrow.Schema
        Of every one of them.
    path : path
        Taken literally.
    compression : str
    **options
        As `pyarrow.parquet.ParquetWriter` has them.

    Raises
    ------
    OSError
        If it cannot be written: the disk is full, say.
    """
    open_writer = arrow_library().parquet.ParquetWriter
    with open_writer(os.path.abspath(path), schema, compression=compression, **options) as writer:
        for batch, rows in batches:
            writer.write_batch(batch, rows)


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
    declared_by_ipc(data).require_moderate(len(data))
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


class _FlatTable:
    """A table at some place of the data."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._int(at, "<i")
        self._end = self._fields + self._int(self._fields, "<H")

    def _int(self, at: int, form: str) -> int:
        if at < 0:
            raise IndexError("it leads before the beginning")
        return int(struct.unpack_from(form, self._data, at)[0])

    def place(self, field: int) -> int:
        """Where a field lies; 0 where there is none."""
        entry = self._fields + 4 + 2 * field
        distance = self._int(entry, "<H") if entry < self._end else 0
        return self._at + distance if distance else 0

    def number(self, field: int, form: str) -> int:
        """A field that is a whole number, 0 where there is none."""
        place = self.place(field)
        return self._int(place, form) if place else 0

    def table(self, field: int) -> _FlatTable:
        """A field that is a table."""
        place = self.place(field)
        return _FlatTable(self._data, place + self._int(place, "<I"))

    def vector(self, field: int, width: int) -> Index:
        """A field that is a list of items of `width` numbers, (items, width); empty where there is none."""
        place = self.place(field)
        start = place + self._int(place, "<I") if place else 0
        count = self._int(start, "<I") if place else 0
        return np.frombuffer(self._data, np.dtype("<i8"), width * count, start + 4).reshape(count, width)

    def tables(self, field: int) -> Iterator[_FlatTable]:
        """A field that is a list of tables."""
        place = self.place(field)
        start = place + self._int(place, "<I") + 4 if place else 0
        for item in range(start, start + 4 * self._int(start - 4, "<I") if place else 0, 4):
            yield _FlatTable(self._data, item + self._int(item, "<I"))


def declared_by_ipc(data: bytes) -> DeclaredSize:
    """How large the table in a file or stream is; `ValueError` if it is neither."""
    cells = plain = columns = depth = 0
    try:
        for kind, table, body in _stream(data) if data.startswith(MARK) else _file(data):
            if kind == OF_SCHEMA:
                columns, depth = _shape(table)
                continue
            batch = table.table(IN_DICTIONARY) if kind == OF_DICTIONARY else table
            lengths, buffers = batch.vector(NODES, 2)[:, 0], batch.vector(BUFFERS, 2)
            if min(lengths.min(initial=0), buffers.min(initial=0)) < 0:
                raise IndexError("a column has less than nothing")
            if body + buffers.sum(axis=1).max(initial=0) > len(data):
                raise IndexError("a column ends beyond the file")
            cells += sum(lengths.tolist())
            plain += _plain(data, body, buffers) if batch.place(COMPRESSION) else sum(buffers[:, 1].tolist())
    except (struct.error, IndexError, ValueError):
        raise ValueError("not readable as an Arrow file: it is cut short or damaged, copy it again") from None
    return DeclaredSize(cells, columns, plain, NUMBER_BYTES, depth)


def _stream(data: bytes) -> Iterator[tuple[int, _FlatTable, int]]:
    """Kind and table of every message of a stream, and where its values begin."""
    at = 0
    while data[at : at + 4] == MARK and (length := struct.unpack_from("<i", data, at + 4)[0]) > 0:
        message, body = _FlatTable(data, at + 8 + struct.unpack_from("<I", data, at + 8)[0]), at + 8 + length
        yield message.number(KIND, "<B"), message.table(HEADER), body
        at = body + max(message.number(BODY_BYTES, "<q"), 0)


def _file(data: bytes) -> Iterator[tuple[int, _FlatTable, int]]:
    """The same of a file, its schema from its end."""
    start = len(data) - TAIL - struct.unpack_from("<i", data, max(len(data) - TAIL, 0))[0]
    last = _FlatTable(data, start + struct.unpack_from("<I", data, max(start, 0))[0])
    yield OF_SCHEMA, last.table(LAST_SCHEMA), 0
    for field in LAST_BLOCKS:
        for at, length, _ in last.vector(field, 3).tolist():
            first = at + (8 if data[at : at + 4] == MARK else 4)
            message = _FlatTable(data, first + struct.unpack_from("<I", data, max(first, 0))[0])
            yield message.number(KIND, "<B"), message.table(HEADER), at + (length & 0x7FFFFFFF)


def _shape(schema: _FlatTable) -> tuple[int, int]:
    """How many columns there are, counting those within others until there are too many, and how deep they are."""
    columns, depth, inner = 0, 0, list(islice(schema.tables(FIELDS), MOST_COLUMNS + 1))
    while inner and columns <= MOST_COLUMNS:
        columns, depth = columns + len(inner), depth + 1
        inner = list(islice((child for field in inner for child in field.tables(CHILDREN)), MOST_COLUMNS + 1))
    return columns, depth


def _plain(data: bytes, body: int, buffers: Index) -> int:
    """Bytes of compressed buffers, (k, 2), once decompressed; each begins with their number, -1 if not compressed."""
    total = 0
    for offset, length in buffers.tolist():
        if length:
            said = struct.unpack_from("<q", data, body + offset)[0]
            total += length if said < 0 else said
    return total

"""Tables from wherever they are: files, of which every format has one record, and data frames.

Frames of pandas come in, and go out, without pyarrow, which would make of NaN that it is empty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from constraint_builders.extras import missing_extra
from constraint_builders.files.arrow_files import (
    declared_by_parquet,
    frame_of,
    open_parquet,
    read_arrow,
    write_arrow,
    write_parquet,
)
from constraint_builders.files.excel import read_excel
from constraint_builders.files.naming import naming
from constraint_builders.files.text_table import read_text_table, write_csv
from constraint_builders.files.titles import Source
from constraint_builders.opening import open_file, read_whole

PathLike = str | os.PathLike[str]
FRAME = "data frame"
SKIP_ROWS = "skip_rows"
UNNAMED_INDEX = re.compile(r"__index_level_\d+__")  # what pyarrow calls that of a pandas frame
Writer = Callable[[pl.DataFrame, PathLike], None]


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes
    ----------
    name : str
        What messages call it: ``"Excel"``.
    suffixes : tuple of str
        How the names of its files end, in small letters: ``(".xlsx",)``.
    read : callable
        From the open file, whose ``name`` is its path, to a data frame as `read_long_table` takes it, or to a
        `Source` where cells are text and rows are counted as people see them. A file that is none of this format
        is a `ValueError`.
    write : callable, optional
        ``write(frame, path)`` of a polars frame. The path need not end in a suffix.
    library, extra : str
        What reading imports beyond polars, and the extra of this package that brings it.
    options : tuple of str
        What can be said of where the table lies: `read` takes it by these names, such as ``skip_rows``.

    Raises
    ------
    ValueError
        If there is no suffix, or one is none; if a library is named without its extra, or the extra alone.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[BinaryIO], Any]
    write: Writer | None = None
    library: str = ""
    extra: str = ""
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [text for text in self.suffixes if text[:1] != "." or len(text) < 2 or text != text.lower()]
        if not isinstance(self.suffixes, tuple) or not self.suffixes or wrong:
            raise ValueError(f"format {self.name!r}: suffixes must be a tuple such as ('.tsv',): got {self.suffixes!r}")
        if bool(self.library) != bool(self.extra):
            raise ValueError(f"format {self.name!r}: give the library together with the extra that brings it")

    def open(self, file: BinaryIO, **options: Any) -> Any:
        """Read an open file; `ImportError`, which names the extra, where the library is missing.

        Parameters
        ----------
        file : binary file
        **options
            Some of those that it has.

        Returns
        -------
        data frame

        Raises
        ------
        ImportError
            If the library is missing; it names the extra.
        ValueError
            If it has no such option.
        """
        if self.library and find_spec(self.library) is None:
            raise missing_extra(f"{self.name} files need {self.library}", self.extra, "save the table as CSV")
        for option in options:
            if option not in self.options:
                raise ValueError(f"{option}= is not of {self.name} files, which have no such thing: leave it out")
        return self.read(file, **options)


def _read_text(file: BinaryIO, skip_rows: int = 0) -> Source:
    return read_text_table(read_whole(file), skip_rows)


def _read_parquet(file: BinaryIO) -> pl.DataFrame:
    with open_parquet(file.name) as opened:
        declared_by_parquet(opened).require_moderate(os.fstat(file.fileno()).st_size)
        return frame_of(opened.read())


FORMATS = [
    Format("CSV", (".csv",), _read_text, write_csv, options=(SKIP_ROWS,)),
    Format("compressed CSV", (".csv.gz",), _read_text, options=(SKIP_ROWS,)),
    Format("TSV", (".tsv", ".tsv.gz"), _read_text, options=(SKIP_ROWS,)),
    Format("Parquet", (".parquet",), _read_parquet, write_parquet),
    Format("Arrow", (".arrow", ".feather"), read_arrow, write_arrow),
    Format("Excel", (".xlsx",), read_excel, library="fastexcel", extra="excel", options=("sheet", SKIP_ROWS)),
]


def add_format(added: Format) -> None:
    """Make a format known by the endings of its files, wherever a file is read or written by its name.

    Parameters
    ----------
    added : Format

    Raises
    ------
    TypeError
        If it is no `Format`.
    ValueError
        If another format has one of its suffixes.
    """
    if not isinstance(added, Format):
        raise TypeError(f"a format is a Format: got {type(added).__name__}")
    if added in FORMATS:
        return
    for known in FORMATS:
        taken = sorted(set(known.suffixes) & set(added.suffixes))
        if taken:
            raise ValueError(f"format {added.name!r}: {taken[0]} is the suffix of {known.name}: give it another")
    FORMATS.append(added)


def suffixes(written: bool = False) -> tuple[str, ...]:
    """How names of files of tables end; with `written`, of those that can be written."""
    return tuple(suffix for known in FORMATS if known.write or not written for suffix in known.suffixes)


def format_of(path: PathLike) -> Format:
    """The format of a file by its name; `ValueError` for any other name."""
    suffix = _suffix(path, suffixes())
    return next(known for known in FORMATS if suffix in known.suffixes)


def writer_of(path: PathLike) -> Writer:
    """What writes a file of this name; `ValueError` where nothing does."""
    suffix = _suffix(path, suffixes(written=True))
    return next(known.write for known in FORMATS if suffix in known.suffixes and known.write)


def _suffix(path: PathLike, known: tuple[str, ...]) -> str:
    name = Path(path).name.lower()
    found = [suffix for suffix in known if name.endswith(suffix)]
    if not found:
        raise ValueError(f"{os.fspath(path)}: the name must end in {', '.join(known[:-1])} or {known[-1]}")
    return max(found, key=len)


def open_source(source: Any, **options: Any) -> Source:
    """Read a table.

    Parameters
    ----------
    source : path or data frame
        A file of one of the `source.FORMATS`; a pandas frame, whose named index becomes columns; or a frame with the
        Arrow PyCapsule interface (``__arrow_c_stream__``: polars, pyarrow), whose index without a name is none where it
        holds whole numbers.
    **options
        Where the table lies in a file: ``sheet`` of a workbook, ``skip_rows`` above the header.

    Raises
    ------
    ValueError
        If the file cannot be read as a table.
    OSError
        If the file cannot be opened.
    TypeError
        If `source` is neither a path nor a data frame.
    ImportError
        For a file whose format needs an extra that is not installed.
    """
    if _is_frame(source):
        if options:
            raise TypeError(f"{' and '.join(options)} say where a table lies in a file: a data frame is one itself")
        with naming(FRAME):
            return _of_frame(source, FRAME)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a table is a path or a data frame (pandas, polars, ...): got {type(source).__name__}")
    path, what = Path(source), os.fspath(source)
    known = format_of(path)
    with open_file(path) as file, naming(path):
        table = known.open(file, **options)
        if isinstance(table, Source):
            return replace(table, what=what)
        if not _is_frame(table):
            raise TypeError(f"what reads {known.name} files must give a data frame: got {type(table).__name__}")
        return _of_frame(table, what)


def open_whole(source: Any) -> Source:
    """As `open_source`, but for a file of which titles or notes would be left out, which is refused."""
    table = open_source(source)
    if table.left_out:
        raise ValueError(f"{table.left_out[0]} would be left out: take it out of the file, or fill its cells")
    return table


def _is_frame(source: Any) -> bool:
    return is_pandas(source) or hasattr(source, "__arrow_c_stream__")


def _of_frame(source: Any, what: str) -> Source:
    frame = from_pandas(source) if is_pandas(source) else pl.DataFrame(source)
    unnamed = [name for name, kind in frame.schema.items() if UNNAMED_INDEX.fullmatch(name) and kind.is_integer()]
    frame = frame.drop(unnamed)
    return Source(frame, np.arange(1, frame.height + 1), what=what)


def is_pandas(source: Any) -> bool:
    """Whether something is a data frame of pandas."""
    kind = type(source)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"


def from_pandas(frame: Any) -> pl.DataFrame:
    """A frame of pandas as one of polars; a named index becomes columns, text and whole numbers beside it text.

    Raises
    ------
    ValueError
        If two columns have one name, or a column mixes other kinds of values.
    """
    if any(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    names = [str(name) for name in frame.columns]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"column {name!r} is given twice, as columns {names.index(name) + 1} and {i + 1}")
    return pl.DataFrame([_series(name, frame.iloc[:, i]) for i, name in enumerate(names)])


def _series(name: str, column: Any) -> pl.Series:
    if getattr(column.dtype, "kind", "") in "biufM" and hasattr(column.dtype, "type"):
        numbers = column.to_numpy()
        if numbers.dtype != object:
            return pl.Series(name, numbers)
    values = [None if empty else value for value, empty in zip(column.tolist(), column.isna(), strict=True)]
    kinds = {type(value) for value in values} - {type(None)}
    if str in kinds and kinds <= {str, int}:
        return pl.Series(name, [value if value is None else str(value) for value in values], dtype=pl.String)
    if bool not in kinds or len(kinds) == 1:  # True would be 1
        with suppress(TypeError):
            return pl.Series(name, values)
    mixed = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"column {name!r} mixes {mixed}: give one kind of value")


def frame_like(source: Any, frame: pl.DataFrame) -> Any:
    """A frame of polars in the kind of another frame: of pandas, of pyarrow, or of polars.

    Parameters
    ----------
    source : data frame
    frame : polars.DataFrame

    Returns
    -------
    data frame
    """
    if is_pandas(source):
        import pandas

        numbers = [name for name in frame.columns if frame[name].dtype.is_float()]
        return pandas.DataFrame(
            {name: frame[name].to_numpy() if name in numbers else frame[name].to_list() for name in frame.columns}
        )
    if type(source).__module__.partition(".")[0] == "pyarrow":
        return frame.to_arrow()
    return frame

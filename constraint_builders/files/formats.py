"""The formats of files that hold a table: the one record of each."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from constraint_builders.extras import missing_extra
from constraint_builders.files.arrow_file import read_arrow, write_arrow
from constraint_builders.files.excel import read_excel
from constraint_builders.files.parquet import declared, frame_of, open_parquet, write_parquet
from constraint_builders.files.text_table import TextTable, read_text_table, write_csv
from constraint_builders.opening import read_whole

PathLike = str | os.PathLike[str]
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
        `TextTable` where cells are text and rows are counted as people see them. A file that is none of this format
        is a `ValueError`.
    write : callable, optional
        ``write(frame, path)`` of a polars frame. The path need not end in a suffix.
    library, extra : str
        What reading imports beyond polars, and the extra of this package that brings it.

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

    def __post_init__(self) -> None:
        wrong = [text for text in self.suffixes if text[:1] != "." or len(text) < 2 or text != text.lower()]
        if not isinstance(self.suffixes, tuple) or not self.suffixes or wrong:
            raise ValueError(f"format {self.name!r}: suffixes must be a tuple such as ('.tsv',): got {self.suffixes!r}")
        if bool(self.library) != bool(self.extra):
            raise ValueError(f"format {self.name!r}: give the library together with the extra that brings it")

    def open(self, file: BinaryIO) -> Any:
        """Read an open file; `ImportError`, which names the extra, where the library is missing."""
        if self.library and find_spec(self.library) is None:
            raise missing_extra(f"{self.name} files need {self.library}", self.extra, "save the table as CSV")
        return self.read(file)


def _read_text(file: BinaryIO) -> TextTable:
    return read_text_table(read_whole(file))


def _read_parquet(file: BinaryIO) -> pl.DataFrame:
    with open_parquet(file.name) as opened:
        declared(opened).require_moderate(os.fstat(file.fileno()).st_size)
        return frame_of(opened.read())


FORMATS = [
    Format("CSV", (".csv",), _read_text, write_csv),
    Format("compressed CSV", (".csv.gz",), _read_text),
    Format("Parquet", (".parquet",), _read_parquet, write_parquet),
    Format("Arrow", (".arrow", ".feather"), read_arrow, write_arrow),
    Format("Excel", (".xlsx",), read_excel, library="fastexcel", extra="excel"),
]


def add_format(added: Format) -> None:
    """Make a format known by the endings of its files, wherever a file is read or written by its name.

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

"""Tables from wherever they are: files of any format, and data frames."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.files.formats import format_of
from constraint_builders.files.naming import naming
from constraint_builders.files.pandas_frames import from_pandas, is_pandas
from constraint_builders.files.text_table import TextTable
from constraint_builders.opening import open_file

FRAME = "data frame"


@dataclass(frozen=True)
class Source:
    """A table as it was found.

    Attributes
    ----------
    frame : polars.DataFrame
    what : str
        What messages call it.
    rows : ndarray of int, (height,)
        The number of every row there, as people count: in text and in Excel the header is a row too.
    delimiter : str
        Of the cells in text, empty elsewhere.
    doubts : tuple of str
        What is doubtful about how they were written.
    """

    frame: pl.DataFrame
    what: str
    rows: NDArray[np.int64]
    delimiter: str = ""
    doubts: tuple[str, ...] = ()


def open_source(source: Any) -> Source:
    """Read a table.

    Parameters
    ----------
    source : path or data frame
        A file of one of the `formats.FORMATS`; a pandas frame, whose named index becomes columns; or a frame with the
        Arrow PyCapsule interface (``__arrow_c_stream__``: polars, pyarrow).

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
        with naming(FRAME):
            return _of_frame(source, FRAME)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a table is a path or a data frame (pandas, polars, ...): got {type(source).__name__}")
    path, what = Path(source), os.fspath(source)
    known = format_of(path)
    with open_file(path) as file, naming(path):
        table = known.open(file)
        if isinstance(table, TextTable):
            return Source(table.frame, what, table.rows, table.delimiter, table.doubts)
        if not _is_frame(table):
            raise TypeError(f"what reads {known.name} files must give a data frame: got {type(table).__name__}")
        return _of_frame(table, what)


def _is_frame(source: Any) -> bool:
    return is_pandas(source) or hasattr(source, "__arrow_c_stream__")


def _of_frame(source: Any, what: str) -> Source:
    frame = from_pandas(source) if is_pandas(source) else pl.DataFrame(source)
    return Source(frame, what, np.arange(1, frame.height + 1))

"""Tables from wherever they are: files of any format, and data frames.

Frames of pandas come in, and go out, without pyarrow.
"""

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
    try:
        return pl.Series(name, values)
    except TypeError:
        mixed = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"column {name!r} mixes {mixed}: give one kind of value") from None


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

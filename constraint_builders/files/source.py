"""Tables from wherever they are: CSV and Parquet files, and data frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from constraint_builders.files.naming import naming
from constraint_builders.files.parquet import read_parquet
from constraint_builders.files.text_table import read_text_table

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
        The number of every row there, as people count: in text the header is a row too.
    delimiter : str
        Of the cells in text, empty elsewhere.
    """

    frame: pl.DataFrame
    what: str
    rows: NDArray[np.int64]
    delimiter: str = ""


def open_source(source: Any, suffixes: Sequence[str]) -> Source:
    """Read a table.

    Parameters
    ----------
    source : path or data frame
    suffixes : sequence of str
        The endings that a file may have.

    Raises
    ------
    ValueError
        If the file cannot be read as a table.
    OSError
        If the file cannot be opened.
    TypeError
        If `source` is neither a path nor a data frame.
    """
    if hasattr(source, "__arrow_c_stream__"):
        with naming(FRAME):
            frame = pl.DataFrame(source)
            return Source(frame, FRAME, np.arange(1, frame.height + 1))
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"a table is a path or a data frame (pandas, polars, ...): got {type(source).__name__}")
    path = Path(source)
    suffix = require_suffix(path, suffixes)
    with path.open("rb") as file, naming(path):
        if suffix == ".parquet":
            frame = read_parquet(path)
            return Source(frame, os.fspath(path), np.arange(1, frame.height + 1))
        text = read_text_table(file.read())
        return Source(text.frame, os.fspath(path), text.rows, text.delimiter)


def require_suffix(path: str | os.PathLike[str], suffixes: Sequence[str]) -> str:
    """The ending of a file's name, one of `suffixes`; `ValueError` for any other."""
    name = Path(path).name.lower()
    found = [suffix for suffix in suffixes if name.endswith(suffix)]
    if not found:
        raise ValueError(f"{os.fspath(path)}: the name must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}")
    return found[0]

"""The columns of any data frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from constraint_builders.description.labelled import read_names
from constraint_builders.extras import missing_extra


def columns_of(frame: Any) -> dict[str, np.ndarray]:
    """Columns by name, each (rows,).

    Parameters
    ----------
    frame : data frame or mapping of str to sequence
        Of pandas, polars or pyarrow; others with the Arrow PyCapsule interface are read by polars.

    Raises
    ------
    TypeError
        If it is none.
    ValueError
        If columns differ in length.
    """
    if isinstance(frame, Mapping):
        names, values = list(frame), {name: read_names(own, f"column {name!r}") for name, own in frame.items()}
    elif hasattr(frame, "column_names") and hasattr(frame, "num_rows"):
        names, values = list(frame.column_names), frame
    elif hasattr(frame, "columns") and hasattr(frame, "to_numpy"):
        names, values = list(frame.columns), frame
    elif hasattr(frame, "__arrow_c_stream__"):
        values = _by_polars(frame)
        names = values.columns
    else:
        raise TypeError(f"areas are read from a data frame, one row a leaf: got {type(frame).__name__}")
    columns = {str(name): _column(values[name]) for name in names}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of the frame differ in length: {lengths}")
    return columns


def _by_polars(frame: Any) -> Any:
    try:
        import polars
    except ImportError:
        raise missing_extra("reading a frame by its Arrow stream needs polars", "frames") from None
    return polars.DataFrame(frame)


def _column(values: Any) -> np.ndarray:
    """Values as they are, in an array of one axis."""
    if isinstance(values, np.ndarray) or hasattr(values, "to_numpy"):
        return np.asarray(values)
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column

"""Frames of pandas, in and out, without pyarrow."""

from __future__ import annotations

from typing import Any

import polars as pl


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

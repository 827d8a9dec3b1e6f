"""Lists of numbers in rows of measurement files, as arrays: without a copy where that can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

LARGEST = 2.0**53  # beyond, not every whole number is a floating-point number
ROW, POSITION = "row*", "position*"  # columns of ours: no variable's name has a *


def place_of(rows: pl.DataFrame) -> str:
    """What messages call the first of some rows of a file."""
    row, name, geocode = rows.select(ROW, "query_name", "geocode").row(0)
    return f"row {row} ({name} of {geocode!r})"


@dataclass(frozen=True)
class Values:
    """The lists of some rows of a file.

    Attributes
    ----------
    rows : polars.DataFrame
        Their other columns.
    elements : polars.Series
        The elements of all lists of the file, one after another.
    starts, lengths : ndarray of int, (rows,)
        Where the list of each row begins, and its length.
    """

    rows: pl.DataFrame
    elements: pl.Series
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def array(self, size: int, what: str) -> NDArray:
        """The lists as an array, (rows, size).

        Raises
        ------
        ValueError
            If a list has another length, or an element is empty, NaN, infinite or so large that sums would not be
            exact; the first such row is named.
        """
        wrong = np.flatnonzero(self.lengths != size)
        if wrong.size:
            place, count = place_of(self.rows[int(wrong[0]) :]), self.lengths[wrong[0]]
            raise ValueError(f"{place}: {count} values, but {what} has {size} cells: is the schema the file's?")
        if (np.diff(self.starts) == size).all():
            values = self.elements.slice(int(self.starts[0]), self.starts.size * size).to_numpy().reshape(-1, size)
        else:
            values = self.elements.to_numpy()[self.starts[:, None] + np.arange(size)]
        if values.dtype.kind in "iu" and values.dtype.itemsize <= 4:
            return values  # whole numbers, none of which is so large
        if values.size and values.min() >= -LARGEST and values.max() <= LARGEST:
            return values
        for bad, why in (
            (~np.isfinite(values), "is empty, NaN or infinite"),
            ((values < -LARGEST) | (values > LARGEST), f"is beyond {LARGEST:,.0f}: no such number is a count"),
        ):
            if bad.any():
                raise ValueError(f"{place_of(self.rows[int(bad.any(axis=1).argmax()) :])}: a value {why}")
        return values


def groups(frame: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], pl.DataFrame, Values]]:
    """The rows of a file that agree in some columns: what these say, the other columns, and the lists of values.

    Groups come in order of first appearance; no list may be null.
    """
    lengths = frame["value"].list.len().cast(pl.Int64).to_numpy()
    empty = np.flatnonzero(lengths == 0)
    if empty.size:
        raise ValueError(f"{place_of(frame[int(empty[0]) :])}: the list of values is empty")
    starts, elements = np.cumsum(lengths) - lengths, frame["value"].explode()
    others = frame.drop("value").with_row_index(POSITION)
    for said, rows in others.group_by(keys, maintain_order=True):
        positions = rows[POSITION].to_numpy()
        yield dict(zip(keys, said, strict=True)), rows, Values(rows, elements, starts[positions], lengths[positions])

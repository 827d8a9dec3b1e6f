"""Lists of numbers in rows of measurement files, as arrays: without a copy where that can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
    elements : sequence of polars.Series
        The elements of all lists of the file, one after another: a piece for every piece that was decoded.
    ends : ndarray of int, (pieces,)
        How many elements there are up to the end of each piece.
    starts, lengths : ndarray of int, (rows,)
        Where the list of each row begins, and its length.
    """

    rows: pl.DataFrame
    elements: Sequence[pl.Series]
    ends: NDArray[np.int64]
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
        found = [own for _, own in self.arrays(size, what)]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def arrays(self, size: int, what: str) -> Iterator[tuple[slice, NDArray]]:
        """The lists as arrays, (some rows, size), of rows that follow one another; raises as `array`."""
        wrong = np.flatnonzero(self.lengths != size)
        if wrong.size:
            place, count = place_of(self.rows[int(wrong[0]) :]), self.lengths[wrong[0]]
            raise ValueError(f"{place}: {count} values, but {what} has {size} cells: is the schema the file's?")
        piece = np.searchsorted(self.ends, self.starts, side="right")
        cuts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), piece.size]
        for first, stop in pairwise(cuts):
            rows, number = slice(first, stop), int(piece[first])
            starts = self.starts[rows] - (int(self.ends[number - 1]) if number else 0)
            yield rows, self._checked(rows, _cut(self.elements[number], starts, size))

    def _checked(self, rows: slice, values: NDArray) -> NDArray:
        if values.dtype.kind in "iu" and values.dtype.itemsize <= 4:
            return values  # whole numbers, none of which is so large
        if values.size and values.min() >= -LARGEST and values.max() <= LARGEST:
            return values
        own = self.rows[rows]
        bad = ~np.isfinite(values).all(axis=1)
        if bad.any():
            raise ValueError(f"{place_of(own[int(bad.argmax()) :])}: a value is empty, NaN or infinite")
        bad = ~((values >= -LARGEST) & (values <= LARGEST)).all(axis=1)
        if bad.any():
            place = place_of(own[int(bad.argmax()) :])
            raise ValueError(f"{place}: a value is beyond {LARGEST:,.0f}: no such number is a count")
        return values


def _cut(elements: pl.Series, starts: NDArray[np.int64], size: int) -> NDArray:
    """Lists of one length, which begin at `starts`, of the elements of a piece."""
    if (np.diff(starts) == size).all():
        return elements.slice(int(starts[0]), starts.size * size).to_numpy().reshape(-1, size)
    return elements.to_numpy()[starts[:, None] + np.arange(size)]


def groups(frame: pl.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, str], pl.DataFrame, Values]]:
    """The rows of a file that agree in some columns: what these say, the other columns, and the lists of values.

    Groups come in order of first appearance; no list may be null.
    """
    lengths = frame["value"].list.len().cast(pl.Int64).to_numpy()
    empty = np.flatnonzero(lengths == 0)
    if empty.size:
        raise ValueError(f"{place_of(frame[int(empty[0]) :])}: the list of values is empty")
    starts, elements = np.cumsum(lengths) - lengths, [piece.explode() for piece in frame["value"].get_chunks()]
    ends = np.cumsum([piece.len() for piece in elements], dtype=np.int64)
    others = frame.drop("value").with_row_index(POSITION)
    for said, rows in others.group_by(keys, maintain_order=True):
        positions = rows[POSITION].to_numpy()
        yield (
            dict(zip(keys, said, strict=True)),
            rows,
            Values(rows, elements, ends, starts[positions], lengths[positions]),
        )

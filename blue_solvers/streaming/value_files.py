"""Measured values on disk, to be written in any order and read for any geounits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.files.measured_level import blended


class ValueFiles:
    """A file for every table of a geolevel: a row of numbers for every geounit, in their order within the level.

    They are int32 as long as all of a table are whole and fit, and float64 otherwise.

    Parameters
    ----------
    folder : Path
        Exists, and is empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[tuple[str, str], _TableFile] = {}

    def write(self, level: str, table: str, ranks: Index, values: NDArray, share: Float | None = None) -> Float | None:
        """Keep the values, (G, cells), of some geounits; of those from before all but a share (G,), by default none.

        Returns
        -------
        ndarray, (G,), or None
            The squares of what both differ by, summed over cells, where there is a share.
        """
        apart = None
        if (known := self._tables.get((level, table))) is None:
            path = self._folder / str(len(self._tables))
            known = self._tables[level, table] = _TableFile(path, values.shape[1])
        elif share is not None:
            values, apart = blended(values, known.read(ranks), share)
        known.write(ranks, values)
        return apart

    def read(self, level: str, table: str, ranks: Index) -> NDArray:
        """The values of some geounits, (G, cells), int32 or float64; zeros where nothing was written.

        Raises
        ------
        OSError
            If the file is gone, or shorter than what was written.
        """
        return self._tables[level, table].read(ranks)


class _TableFile:
    """The file of one table of a geolevel."""

    def __init__(self, path: Path, cells: int) -> None:
        self._path, self._cells, self._height = path, cells, 0
        self._dtype: np.dtype[np.int32 | np.float64] = np.dtype(np.int32)
        path.touch(exist_ok=False)

    def write(self, ranks: Index, values: NDArray) -> None:
        """Keep the values of some geounits, (G, cells)."""
        if self._dtype == np.int32:
            with np.errstate(invalid="ignore"):  # what is no number is not equal to any
                whole = values.astype(np.int32)
            if np.array_equal(whole, values):
                values = whole
            else:
                self._widen()
        values = np.ascontiguousarray(values, dtype=self._dtype)
        self._height = max(self._height, int(ranks.max(initial=-1)) + 1)
        with self._path.open("r+b") as file:
            for rows, start in _runs(ranks):
                file.seek(self._dtype.itemsize * self._cells * start)
                file.write(values[as_slice(rows)].data)

    def _widen(self) -> None:
        before = self.read(np.arange(self._height))
        self._dtype = np.dtype(np.float64)
        self._path.write_bytes(before.astype(self._dtype).data)

    def read(self, ranks: Index) -> NDArray:
        """The values of some geounits, (G, cells)."""
        values = np.zeros((ranks.size, self._cells), dtype=self._dtype)
        for rows, start in _runs(ranks):
            written = min(max(self._height - start, 0), rows.size)
            first, count = self._dtype.itemsize * self._cells * start, self._cells * written
            own = np.fromfile(self._path, self._dtype, count, offset=first) if written else values[:0]
            if own.size < count:
                raise OSError(f"{self._path}: what was written there is gone: let nobody remove it, and run again")
            values[as_slice(rows[:written])] = own.reshape(written, self._cells)
        return values


def _runs(ranks: Index) -> Iterator[tuple[Index, int]]:
    """Positions of geounits, of ranks (k,), that follow one another, and the first of these."""
    order = np.argsort(ranks, kind="stable")
    if order.size:
        for rows in np.split(order, np.flatnonzero(np.diff(ranks[order]) != 1) + 1):
            yield rows, int(ranks[rows[0]])

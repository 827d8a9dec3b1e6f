"""Measured values on disk, to be written in any order and read for any geounits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float, Index
from constraint_builders.files.kept_variables import blended


class ValueFiles:
    """A file for every table of a geolevel: a row of float64 for every geounit, in their order within the level.

    Parameters
    ----------
    folder : Path
        Exists, and is empty.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[tuple[str, str], int] = {}
        self._heights: dict[tuple[str, str], int] = {}

    def _path(self, level: str, table: str) -> Path:
        return self._folder / str(list(self._sizes).index((level, table)))

    def write(self, level: str, table: str, ranks: Index, values: NDArray, share: Float | None = None) -> None:
        """Keep the values, (G, cells), of some geounits; of those from before all but a share (G,), by default none."""
        if share is not None and (level, table) in self._sizes:
            values = blended(values, self.read(level, table, ranks), share)
        self._sizes.setdefault((level, table), values.shape[1])
        path, known = self._path(level, table), self._heights.get((level, table))
        self._heights[level, table] = max(known or 0, int(ranks.max(initial=-1)) + 1)
        with path.open("xb" if known is None else "r+b") as file:
            for rows, start in _runs(ranks):
                file.seek(8 * values.shape[1] * start)
                file.write(np.ascontiguousarray(values[rows], dtype=np.float64).data)

    def read(self, level: str, table: str, ranks: Index) -> Float:
        """The values of some geounits, (G, cells); zeros where nothing was written.

        Raises
        ------
        OSError
            If the file is gone, or shorter than what was written.
        """
        size, path = self._sizes[level, table], self._path(level, table)
        values = np.zeros((ranks.size, size))
        with path.open("rb") as file:
            for rows, start in _runs(ranks):
                file.seek(8 * size * start)
                own = np.zeros((rows.size, size))
                written = min(max(self._heights[level, table] - start, 0), rows.size)
                if written and file.readinto(own[:written].data) < 8 * size * written:
                    raise OSError(f"{path}: what was written there is gone: let nobody remove it, and run again")
                values[rows] = own
        return values


def _runs(ranks: Index) -> Iterator[tuple[Index, int]]:
    """Positions of geounits that follow one another, and the first of these."""
    order = np.argsort(ranks, kind="stable")
    if order.size:
        for rows in np.split(order, np.flatnonzero(np.diff(ranks[order]) != 1) + 1):
            yield rows, int(ranks[rows[0]])

"""Measured values on disk, to be written in any order and read for any geounits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.subtrees import Index
from blue_solvers.solver import Float


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

    def _path(self, level: str, table: str) -> Path:
        return self._folder / str(list(self._sizes).index((level, table)))

    def write(self, level: str, table: str, ranks: Index, values: NDArray) -> None:
        """Keep the values, (G, cells), of some geounits."""
        self._sizes.setdefault((level, table), values.shape[1])
        path = self._path(level, table)
        with path.open("r+b" if path.exists() else "w+b") as file:
            for rows, start in _runs(ranks):
                file.seek(8 * values.shape[1] * start)
                file.write(np.ascontiguousarray(values[rows], dtype=np.float64).data)

    def read(self, level: str, table: str, ranks: Index) -> Float:
        """The values of some geounits, (G, cells); zeros where nothing was written."""
        size = self._sizes[level, table]
        values = np.zeros((ranks.size, size))
        with self._path(level, table).open("rb") as file:
            for rows, start in _runs(ranks):
                file.seek(8 * size * start)
                own = np.zeros((rows.size, size))
                file.readinto(own.data)
                values[rows] = own
        return values


def _runs(ranks: Index) -> Iterator[tuple[Index, int]]:
    """Positions of geounits that follow one another, and the first of these."""
    order = np.argsort(ranks, kind="stable")
    if order.size:
        for rows in np.split(order, np.flatnonzero(np.diff(ranks[order]) != 1) + 1):
            yield rows, int(ranks[rows[0]])

"""The measured values of a folder, put in their places in one vector as files are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float, Index, as_slice
from constraint_builders.description.layout import Layout
from constraint_builders.description.spine import Spine
from constraint_builders.description.table import Table
from constraint_builders.files.kept_variables import blended


class MeasuredVector:
    """Blocks of tables, one after another in the order in which they are met: mostly that of the layout.

    Room is made for all that the files name, of which no memory is taken before it is written to. What else is found,
    known exactly by constraints for instance, gets room of its own, and then all is put in order at the end.
    """

    def __init__(self) -> None:
        self._room, self._used = np.zeros(0), 0
        self._geounits: dict[str, int] = {}
        self._blocks: dict[tuple[str, str], Float] = {}
        self._first: dict[tuple[str, str], int] = {}  # of those in the room

    def begin(self, spine: Spine, tables: Mapping[str, Sequence[Table]]) -> None:
        """Make room for tables of geolevels."""
        self._geounits = {name: members.size for name, members in zip(spine.levels, spine.members, strict=True)}
        cells = (self._geounits[level] * table.size for level, own in tables.items() for table in own)
        self._room = np.zeros(sum(cells))

    def keep(self, level: str, table: str, geounits: Index, values: NDArray, share: Float | None) -> Float | None:
        """Put in the values, (G, cells), of some geounits; as `read_outline` hands them on, and wants to know."""
        block = self._blocks.get((level, table))
        if block is None:
            block = self._blocks[level, table] = self._block((level, table), values.shape[1])
        rows, apart = as_slice(geounits), None
        if share is not None:
            values, apart = blended(values, block[rows], share)
        block[rows] = values
        return apart

    def _block(self, key: tuple[str, str], cells: int) -> Float:
        shape = self._geounits[key[0]], cells
        end = self._used + shape[0] * cells
        if end > self._room.size:
            return np.zeros(shape)
        self._first[key], self._used = self._used, end
        return self._room[self._first[key] : end].reshape(shape)

    def vector(self, layout: Layout) -> Float:
        """All of them over a layout, 0 where nothing was kept; nothing can be kept after it."""
        in_place = all(self._first.get(name) == layout.slice(name).start for name in self._blocks)
        if in_place and layout.size == self._used:
            self._blocks.clear()
            self._room.resize(self._used, refcheck=False)  # no block looks at it any longer
            return self._room
        y = np.zeros(layout.size)
        for key in list(self._blocks):
            y[layout.slice(key)] = self._blocks.pop(key).ravel()
        return y

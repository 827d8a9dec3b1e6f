"""Tables of a layout copied to where the sweeps hold them, times weights, and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blue_solvers.components.lattice.axes import Axes
from blue_solvers.components.lattice.plan import SweepPlan
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

Copy = Callable[[Float, Float, Integers, Float], object]


class Runs:
    """Tables of a layout among those of the sweeps, each with a weight, as runs of cells.

    Parameters
    ----------
    plan : SweepPlan
    tables : list of tuple of int
    starts : ndarray of int, (tables,)
        In the layout.
    weights : ndarray, (tables,)
    size : int
        Of the layout.
    """

    def __init__(self, plan: SweepPlan, tables: list[Axes], starts: Integers, weights: Float, size: int) -> None:
        self.size, self._weights = size, weights
        first = {table: number for number, table in reversed([*enumerate(tables)])}
        empty = [own for own in plan.tables if own not in first]
        places, cells = [plan.places[table] for table in tables], [plan.size_of(table) for table in tables]
        adds = [first[table] != number for number, table in enumerate(tables)]
        nothing = [(-1, plan.places[own], plan.size_of(own), 0) for own in empty]
        read = [*nothing, *zip(starts.tolist(), places, cells, adds, strict=True)]
        self._reads, self._read_weights = _rows(read), np.concatenate([np.zeros(len(empty)), weights])
        self._writes = _rows([(*run, 0) for run in zip(places, starts.tolist(), cells, strict=True)])
        lies = starts.tolist() == places and sum(cells) == size
        self._is_as_it_lies = lies and bool((weights == 1).all())

    def read(self, values: Float, rooms: int, copy: Copy) -> Float:
        """All tables of the sweeps, and those here, (rooms, K): values times weights, 0 where there are none."""
        cells = np.empty((rooms, values.shape[1]))
        copy(np.ascontiguousarray(values), cells, self._reads, self._read_weights)
        return cells

    def write(self, cells: Float, copy: Copy) -> Float:
        """The layout's values, (size, K): cells times weights, 0 in tables that are not here; `cells` is used up."""
        if self._is_as_it_lies and len(cells) <= 2 * self.size:
            return cells[: self.size]
        values = np.zeros((self.size, cells.shape[1]))
        self.write_to(values, cells, copy)
        return values

    def write_to(self, values: Float, cells: Float, copy: Copy) -> None:
        """Set the tables' own values in a layout."""
        copy(cells, values, self._writes, self._weights)


def _rows(runs: list[tuple[int, int, int, int]]) -> Integers:
    return np.array(runs, dtype=np.int64).reshape(-1, 4)


def copy_weighted_in_numpy(values: Float, cells: Float, runs: Integers, weights: Float) -> None:
    """Copy runs of cells times their weights, or add them; from nowhere, write 0.

    Parameters
    ----------
    values, cells : ndarray, (S, K)
        From and to; `cells` is changed in place.
    runs : ndarray of int, (rows, 4)
        Where a run starts in both, -1 for nowhere, how long it is, and whether it is added.
    weights : ndarray, (rows,)
    """
    for (source, target, size, adds), weight in zip(runs.tolist(), weights.tolist(), strict=True):
        if source < 0:
            cells[target : target + size] = 0
        elif adds:
            cells[target : target + size] += weight * values[source : source + size]
        else:
            np.multiply(values[source : source + size], weight, out=cells[target : target + size])


@compiled(reference=copy_weighted_in_numpy)
def copy_weighted(values: Float, cells: Float, runs: Integers, weights: Float) -> None:
    """See `copy_weighted_in_numpy`."""
    width, found, flat = values.shape[1], values.ravel(), cells.ravel()
    for row in range(runs.shape[0]):
        source, target, size = runs[row, 0] * width, runs[row, 1] * width, runs[row, 2] * width
        weight = weights[row]
        if source < 0:
            for i in range(size):
                flat[target + i] = 0.0
        elif runs[row, 3]:
            for i in range(size):
                flat[target + i] += weight * found[source + i]
        else:
            for i in range(size):
                flat[target + i] = weight * found[source + i]

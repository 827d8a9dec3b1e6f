"""Tables of a layout copied to where the sweeps hold them, times weights, and back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property

import numpy as np

from blue_solvers.components.lattice.axes import Axes
from blue_solvers.components.lattice.plan import SweepPlan
from blue_solvers.components.lattice.schedule import PARTS
from blue_solvers.threads import WORTH_BYTES, Workers
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
    apart : collection of tuple of int
        Tables that sweeps copy themselves.
    """

    def __init__(
        self,
        plan: SweepPlan,
        tables: list[Axes],
        starts: Integers,
        weights: Float,
        size: int,
        apart: Collection[Axes] = (),
    ) -> None:
        self.size, self._apart = size, set(apart)
        self._plan, self._tables, self._starts, self._weights = plan, tables, starts.tolist(), weights
        self._cells = [plan.size_of(table) for table in tables]
        self._places = [plan.places[table] for table in tables]

    @cached_property
    def _reads(self) -> list[tuple[Integers, Float]]:
        present, plan = {*self._tables, *self._apart}, self._plan
        runs = [(-1, plan.places[own], plan.size_of(own), 0) for own in plan.tables if own not in present]
        weights, seen, adds = [0.0] * len(runs), set[Axes](), False
        for table, weight, *run in zip(
            self._tables, self._weights.tolist(), self._starts, self._places, self._cells, strict=True
        ):
            if table not in self._apart:
                runs.append((*run, table in seen))
                weights.append(weight)
            adds |= table in seen
            seen.add(table)
        return _pieces(runs, np.array(weights), adds)

    @cached_property
    def _writes(self) -> list[tuple[Integers, Float]]:
        runs = [(*run, 0) for run in zip(self._places, self._starts, self._cells, strict=True)]
        return _pieces(runs, self._weights, False)

    @cached_property
    def _is_as_it_lies(self) -> bool:
        lies = self._starts == self._places and sum(self._cells) == self.size
        return lies and bool((self._weights == 1).all())

    def read(self, values: Float, rooms: int, copy: Copy, workers: Workers) -> Float:
        """All tables of the sweeps, and those here, (rooms, K): values times weights, 0 where there are none.

        Those apart hold anything.
        """
        cells = np.empty((rooms, values.shape[1]))
        values = np.ascontiguousarray(values)
        workers.for_each(lambda own: copy(values, cells, *own), self._reads)
        return cells

    def write(self, cells: Float, copy: Copy, workers: Workers) -> Float:
        """The layout's values, (size, K): cells times weights, 0 in tables that are not here; `cells` is used up."""
        if self._is_as_it_lies and len(cells) <= 2 * self.size:
            return cells[: self.size]
        values = np.zeros((self.size, cells.shape[1]))
        self.write_to(values, cells, copy, workers)
        return values

    def write_to(self, values: Float, cells: Float, copy: Copy, workers: Workers) -> None:
        """Set the tables' own values in a layout."""
        workers.for_each(lambda own: copy(cells, values, *own), self._writes)


def _pieces(rows: list[tuple[int, int, int, int]], weights: Float, adds: bool) -> list[tuple[Integers, Float]]:
    """Runs and their weights in parts of some cells each; all in one where one adds to what another has copied."""
    runs = np.array(rows, dtype=np.int64).reshape(-1, 4)
    if adds or not (total := int(runs[:, 2].sum())) or 8 * total < WORTH_BYTES:
        return [(runs, weights)]
    most = 1 + total // PARTS
    counts = -(-runs[:, 2] // most)
    of = np.repeat(np.arange(len(runs)), counts)
    first = (np.arange(of.size) - np.repeat(np.cumsum(counts) - counts, counts)) * most
    runs = runs[of]
    runs[:, 0] += np.where(runs[:, 0] < 0, 0, first)
    runs[:, 1] += first
    runs[:, 2] = np.minimum(most, runs[:, 2] - first)
    part = (np.cumsum(runs[:, 2]) - 1) // most
    return [(runs[part == own], weights[of][part == own]) for own in np.unique(part)]


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

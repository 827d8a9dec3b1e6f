"""Products of all components' small matrices with slots at once, in numpy and as a loop to be compiled.

A run is of consecutive slots that one matrix is multiplied with, m such runs side by side for a matrix of (m, m).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from blue_solvers.components.batches import one_or_all
from blue_solvers.components.component_products import Component, multiply
from blue_solvers.components.tree.coefficient_arrays import Coefficients
from blue_solvers.components.tree.piecewise import Composed, together
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.compiled import compiled

EMPTY = np.zeros((0, 0))


def multiply_runs_in_numpy(
    block: Float, columns: int, entries: Integers, matrices: Float, runs: Integers, starts: Integers, transpose: bool
) -> None:
    """Multiply slots in place.

    Parameters
    ----------
    block : ndarray, (G, slots K)
    columns : int
        K.
    entries : ndarray of int, (G,)
        The row of `matrices` that every geounit has.
    matrices : ndarray, (entries, numbers)
        Those of all components, one after the other.
    runs : ndarray of int, (runs, 4)
        Where the matrix begins in its row, its order m, how many slots, and where its m starts begin in `starts`.
    starts : ndarray of int
        First slots.
    transpose : bool
    """
    for first, m, length, place in runs.tolist():
        own = matrices[entries, first : first + m * m].reshape(-1, m, m)
        cells = (starts[place : place + m, None] * columns + np.arange(length * columns)).ravel()
        values = block[:, cells].reshape(len(block), m, -1)
        block[:, cells] = ((own.swapaxes(1, 2) if transpose else own) @ values).reshape(len(block), -1)


@compiled(reference=multiply_runs_in_numpy)
def multiply_runs(
    block: Float, columns: int, entries: Integers, matrices: Float, runs: Integers, starts: Integers, transpose: bool
) -> None:
    """See `multiply_runs_in_numpy`."""
    longest = 0
    for i in range(runs.shape[0]):
        longest = max(longest, runs[i, 1] * runs[i, 2] * columns)
    flat, strip, zero, one = block.ravel(), np.empty(longest), np.uint64(0), np.uint64(1)
    for g in range(block.shape[0]):
        own, table = matrices[entries[g]], g * block.shape[1]
        for i in range(runs.shape[0]):
            at, m, length, place = runs[i, 0], runs[i, 1], np.uint64(runs[i, 2] * columns), runs[i, 3]
            if m == 1:
                factor, start = own[at], np.uint64(table + starts[place] * columns)
                for c in range(zero, length, one):
                    flat[start + c] *= factor
                continue
            down, across = (1, m) if transpose else (m, 1)
            for row in range(m):
                to = np.uint64(row) * length
                factor, start = own[at + row * down], np.uint64(table + starts[place] * columns)
                for c in range(zero, length, one):
                    strip[to + c] = factor * flat[start + c]
                for column in range(1, m):
                    factor = own[at + row * down + column * across]
                    start = np.uint64(table + starts[place + column] * columns)
                    for c in range(zero, length, one):
                        strip[to + c] += factor * flat[start + c]
            for row in range(m):
                to, start = np.uint64(row) * length, np.uint64(table + starts[place + row] * columns)
                for c in range(zero, length, one):
                    flat[start + c] = strip[to + c]


class SlotProducts:
    """Of some components with all coefficients of one name.

    Parameters
    ----------
    components : sequence of Component
    coefficients : sequence of Coefficients
    shape : tuple of int
        Slots along every variable.
    name : str
        ``"own"`` and ``"own_exact"`` of components of one group sum only.
    """

    def __init__(
        self, components: Sequence[Component], coefficients: Sequence[Coefficients], shape: tuple[int, ...], name: str
    ) -> None:
        self._others: list[tuple[Component, Composed]] = []
        arrays: list[tuple[Component, Float]] = []
        for component, own in zip(components, coefficients, strict=True):
            if component.size == 1 or not name.startswith("own"):
                matrices = together(getattr(own, name), component.size)
                if isinstance(matrices, np.ndarray):
                    arrays.append((component, matrices))
                else:
                    self._others.append((component, matrices))
        flat = [own.reshape(len(own), component.size**2) for component, own in arrays]
        self._matrices = np.concatenate(flat, axis=1) if len(flat) > 1 else np.ascontiguousarray((flat or [EMPTY])[0])
        self._runs, self._starts = _runs_of([component for component, _ in arrays], shape)

    def multiply(self, block: Float, entries: Index, transpose: bool = False) -> None:
        """Multiply a block of geounits (G, ..., K), each by the matrices of its entry, in place."""
        if self._runs.size and block.size:
            assert block.flags.c_contiguous  # otherwise the reshape below would be a copy
            flat = block.reshape(len(block), -1)
            columns = block.shape[-1]
            multiply_runs.fastest()(flat, columns, entries, self._matrices, self._runs, self._starts, transpose)
        if self._others:
            places = one_or_all(entries)
            multiply(block, ((component, own[places]) for component, own in self._others), transpose)


def _runs_of(components: Sequence[Component], shape: tuple[int, ...]) -> tuple[Integers, Integers]:
    """What `multiply_runs` takes."""
    slots = np.arange(prod(shape)).reshape(shape)
    runs, starts, first, place = [], [], 0, 0
    for component in components:
        m = component.size
        own = component.to_front(slots[component.slots][None, ..., None], m)[0]
        begins = np.flatnonzero((np.diff(own, axis=1, prepend=-2) != 1).any(axis=0))
        for begin, end in pairwise([*begins.tolist(), own.shape[1]]):
            runs.append((first, m, end - begin, place))
            starts.append(own[:, begin])
            place += m
        first += m * m
    return np.array(runs, dtype=np.int64).reshape(-1, 4), np.concatenate([np.zeros(0, np.int64), *starts])

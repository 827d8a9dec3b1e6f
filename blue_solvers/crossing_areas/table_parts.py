"""What tables have of components that share a problem, moved there and back by one compiled loop over all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from constraint_builders.arrays import Float, Index
from constraint_builders.compiled import compiled
from constraint_builders.description.layout import Layout


class TablePart(NamedTuple):
    """What a table has of components that share a problem.

    Attributes
    ----------
    block : int
        The table, by its number in a layout.
    slots : ndarray of int, (group cells, contrasts)
        Where that is in its slots, the contrasts of one component after those of another.
    place : slice
        Where it is in a layout of the shared problem.
    weights : ndarray, (areas of the layer * group cells,)
        Of an observed table its share in what is measured there, by precision, and what turns slots into sums over
        groups; of a desired one what turns these back.
    """

    block: int
    slots: Index
    place: slice
    weights: Float


class TableParts:
    """What all tables of a layout have of components that share a problem.

    Parameters
    ----------
    layout : Layout
    parts : list of TablePart
    size : int
        Of the layout of the shared problem.
    """

    def __init__(self, layout: Layout, parts: list[TablePart], size: int) -> None:
        self.parts, self._size = parts, size
        slots = {id(own.slots): own.slots for own in parts}
        starts = dict(zip(slots, np.cumsum([0, *(own.size for own in slots.values())]).tolist(), strict=False))
        self._steps, weighed = np.zeros((len(parts), 7), dtype=np.intp), 0
        for step, own in zip(self._steps, parts, strict=True):
            areas, groups = own.weights.size // len(own.slots), len(own.slots)
            cells = int(layout.sizes[own.block]) // areas
            step[:] = layout.offsets[own.block], cells, areas, groups, starts[id(own.slots)], own.place.start, weighed
            weighed += own.weights.size
        self._slots = np.concatenate([own.ravel() for own in slots.values()])
        self._weights = np.concatenate([own.weights for own in parts])
        self.contrasts = parts[0].slots.shape[1]

    def gather(self, slots: Float, run: slice = slice(None)) -> Float:
        """From slots of all tables, (n, K), to numbers of the shared problem, (size, contrasts * K), added up."""
        first, stop, _ = run.indices(self.contrasts)
        numbers = np.zeros((self._size, (stop - first) * slots.shape[1]))
        self._move(slots, numbers, first, False)
        return numbers

    def spread(self, slots: Float, run: slice, numbers: Float) -> None:
        """The transpose of `gather`, into slots, (n, K), from numbers, (size, contrasts * K)."""
        self._move(slots, numbers, run.start, True)

    def _move(self, slots: Float, numbers: Float, first: int, back: bool) -> None:
        """Between slots, (n, K), and numbers, (size, contrasts * K), the first of which is the contrast of a number."""
        move_slots(slots, numbers, self._steps, self._slots, self._weights, first, self.contrasts, back)


def move_slots_in_numpy(
    slots: Float, numbers: Float, steps: Index, places: Index, weights: Float, first: int, contrasts: int, back: bool
) -> None:
    """Add slots of tables, each times a weight, to the numbers of a shared problem, or set them from these.

    Parameters
    ----------
    slots : ndarray, (n, K)
    numbers : ndarray, (rows, width * K)
        Of so many contrasts.
    steps : ndarray of int, (parts, 7)
        Of every part where its table starts, cells of an area, areas, group cells of an area; and where its places,
        its numbers and its weights start.
    places : ndarray of int
        Slots of an area of a table, (group cells, contrasts) one after the other.
    weights : ndarray
        Of numbers, (areas * group cells,) one after the other.
    first, contrasts : int
        The first of these contrasts, and how many there are in all.
    back : bool
    """
    columns = slots.shape[1]
    some = slice(first, first + numbers.shape[1] // columns)
    for start, cells, areas, groups, listed, row, weighed in steps.tolist():
        table = slots[start : start + areas * cells].reshape(areas, cells, columns)
        own = places[listed : listed + groups * contrasts].reshape(groups, contrasts)[:, some]
        part = numbers[row : row + areas * groups].reshape(areas, *own.shape, columns)
        each = weights[weighed : weighed + areas * groups].reshape(areas, groups, 1, 1)
        if back:
            table[:, own] = each * part
        else:
            part += each * table[:, own]


@compiled(reference=move_slots_in_numpy)
def move_slots(
    slots: Float, numbers: Float, steps: Index, places: Index, weights: Float, first: int, contrasts: int, back: bool
) -> None:
    """See `move_slots_in_numpy`: slots are (n, K), numbers (rows, width * K)."""
    columns, flat, found = np.uint64(slots.shape[1]), slots.ravel(), numbers.ravel()
    width = np.uint64(numbers.shape[1]) // columns
    for step in range(steps.shape[0]):
        start, cells, areas, groups, listed, row, weighed = steps[step]
        number = np.uint64(row) * width * columns
        for area in range(areas):
            table = np.uint64(start + area * cells)
            for group in range(groups):
                weight, place = weights[weighed + area * groups + group], np.uint64(listed + group * contrasts + first)
                for k in range(columns):
                    for i in range(width):
                        slot = (table + np.uint64(places[place + i])) * columns + k
                        if back:
                            flat[slot] = weight * found[number + i * columns + k]
                        else:
                            found[number + i * columns + k] += weight * flat[slot]
                number += width * columns

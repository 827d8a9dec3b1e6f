"""An orthonormal basis of contrasts and group sums along each axis, by reflections in place.

For a group of s levels the reflection that exchanges 1 / sqrt(s) with the last unit vector turns the last level
into the group's coordinate, sum / sqrt(s), and the others into orthonormal contrasts. It costs one sum and one
subtraction, and it is its own inverse and transpose.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.axis_sums import add_to_levels, sum_middle
from blue_solvers.components.grouping import Grouping
from blue_solvers.solver import Float


def level_order(grouping: Grouping) -> NDArray[np.intp]:
    """Levels in the order of slots: of every group all but its last level, then the last ones."""
    last = np.array([np.flatnonzero(grouping.groups == group)[-1] for group in range(grouping.sizes.size)])
    others = np.setdiff1d(np.arange(grouping.levels), last)
    return np.concatenate([others[np.argsort(grouping.groups[others], kind="stable")], last])


def reflect(array: Float, axis: int, grouping: Grouping) -> None:
    """Change basis along one axis of a C-contiguous array, levels in the order of `level_order`, in place."""
    assert array.flags.c_contiguous  # otherwise the reshape below would be a copy
    shape = array.shape
    flat = array.reshape(prod(shape[:axis]), shape[axis], -1)
    first_group = grouping.levels - grouping.sizes.size
    stop = 0
    for group, size in enumerate(grouping.sizes.tolist()):
        if size > 1:
            start, stop = stop, stop + size - 1
            _reflect(flat[:, start:stop], flat[:, first_group + group], size)


def _reflect(others: Float, last: Float, size: int) -> None:
    root = np.sqrt(size)
    coordinate = sum_middle(others)
    coordinate += last
    coordinate /= root
    shift = coordinate - last
    shift /= root - 1
    np.negative(shift, out=shift)
    add_to_levels(others, shift)
    last[...] = coordinate

"""Sums along axes of large arrays, by whichever loop is long."""

from __future__ import annotations

from math import prod

import numpy as np

from blue_solvers.solver import Float

SHORT = 16  # sums over so few levels run fastest as whole-array additions


def sum_middle(levels: Float) -> Float:
    """Sum (before, levels, after) over its levels, giving (before, after)."""
    _, count, after = levels.shape
    if after == 1 and count > SHORT:
        return levels[:, :, 0] @ np.ones((count, 1))
    if after < SHORT and count <= SHORT:
        total = levels[:, 0].copy()
        for level in range(1, count):
            total += levels[:, level]
        return total
    return levels.sum(axis=1)


def sum_axes(array: Float, axes: tuple[int, ...]) -> Float:
    """Sum a C-ordered array over some axes, the longest first."""
    for axis in sorted(axes, key=lambda axis: -array.shape[axis]):
        shape = array.shape
        flat = array.reshape(prod(shape[:axis]), shape[axis], -1)
        array = sum_middle(flat).reshape(*shape[:axis], 1, *shape[axis + 1 :])
    return array.reshape([length for axis, length in enumerate(array.shape) if axis not in axes])

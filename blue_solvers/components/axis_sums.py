"""Sums and additions along axes of large arrays, by whichever loop is long."""

from __future__ import annotations

from math import prod

import numpy as np

from constraint_builders.arrays import Float

SHORT = 16  # over so few levels, or entries in a row, whole-array additions run fastest


def sum_middle(levels: Float) -> Float:
    """Sum (before, levels, after) over its levels, giving (before, after)."""
    _, count, after = levels.shape
    if after > 1:
        return np.einsum("ijk->ik", levels)
    if count > SHORT:
        return levels[:, :, 0] @ np.ones((count, 1))
    total = levels[:, 0].copy()
    for level in range(1, count):
        total += levels[:, level]
    return total


def add_to_levels(levels: Float, values: Float) -> None:
    """Add (before, after) to every level of (before, levels, after), in place."""
    _, count, after = levels.shape
    if after < SHORT and count <= SHORT:
        for level in range(count):
            levels[:, level] += values
    else:
        levels += values[:, None]


def sum_axes(array: Float, axes: tuple[int, ...]) -> Float:
    """Sum a C-ordered array over some axes, the longest first."""
    for axis in sorted(axes, key=lambda axis: -array.shape[axis]):
        shape = array.shape
        flat = array.reshape(prod(shape[:axis]), shape[axis], -1)
        array = sum_middle(flat).reshape(*shape[:axis], 1, *shape[axis + 1 :])
    return array.reshape([length for axis, length in enumerate(array.shape) if axis not in axes])

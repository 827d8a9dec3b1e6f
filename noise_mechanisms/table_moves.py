"""Moves between tables of whole numbers: tensor products of steps from one level to another, along some axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, prod
from typing import TypeAlias

import numpy as np

from constraint_builders.arrays import Integers

Vectors: TypeAlias = tuple[Integers, Integers]  # the cells that each of some vectors changes, and by how much all do


def tensor_products(shape: tuple[int, ...], ends: Sequence[Integers]) -> Vectors:
    """Tensor products of one vector along each axis: of e_j - e_i for each of its pairs (i, j), or of e_i for each i.

    Parameters
    ----------
    shape : tuple of int
        Of the table.
    ends : sequence of ndarray of int, (count, 1 or 2), one for each axis
        The pairs, or the levels.

    Returns
    -------
    cells : ndarray of int64, (products, corners)
        In C order, of the products as of the corners.
    steps : ndarray of int64, (corners,)
        1 at the last corner.
    """
    cells, steps = np.zeros((1, 1), dtype=np.int64), np.ones(1, dtype=np.int64)
    for length, along in zip(shape, ends, strict=True):
        joined = cells[:, None, :, None] * length + along[None, :, None, :]
        cells = joined.reshape(cells.shape[0] * along.shape[0], cells.shape[1] * along.shape[1])
        steps = np.multiply.outer(steps, [-1, 1][-along.shape[1] :]).ravel()
    return cells, steps


def pairs_of_levels(length: int, neighbours: bool = False) -> Integers:
    """All pairs of so many levels, or of neighbouring ones, (pairs, 2)."""
    levels = np.arange(length)
    return np.column_stack([levels[:-1], levels[1:]] if neighbours else np.triu_indices(length, 1))


def count_moves_along(shape: tuple[int, ...], axes: frozenset[int], neighbours: bool = False) -> int:
    """How many moves a table has along some axes, one for each pair of levels there and each level of the others."""
    pairs = [length - 1 if neighbours else comb(length, 2) for length in shape]
    return prod(pairs[axis] if axis in axes else length for axis, length in enumerate(shape))


def moves_along(shape: tuple[int, ...], axes: frozenset[int], neighbours: bool = False) -> Vectors:
    """All these moves, the step at the first corner of each being 1; see `tensor_products`."""
    ends = [
        pairs_of_levels(length, neighbours) if axis in axes else np.arange(length)[:, None]
        for axis, length in enumerate(shape)
    ]
    cells, steps = tensor_products(shape, ends)
    return cells, steps * steps[0]

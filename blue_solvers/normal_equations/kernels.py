"""The loops that numpy is slow at, each in numpy and as a loop to be compiled.

Selected inversion copies parts of one front into another: numpy needs an array of indices for that, compiled code
does not. An order statistic keeps the largest errors of every cell: numpy sorts all of them, compiled code skips
the many that are not among the largest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

Gather = Callable[[Float, Integers, Integers, Integers, Float], None]

ROWS_IN_CACHE = 4096


def gather_in_numpy(values: Float, bases: Integers, strides: Integers, positions: Integers, out: Float) -> None:
    """Copy square submatrices of matrices that lie one after the other in one array.

    Parameters
    ----------
    values : ndarray, (N,)
        Square matrices in C order.
    bases, strides : ndarray, (B,)
        Where the matrix of every copy starts, and its order.
    positions : ndarray, (B, r)
        Rows and columns to copy.
    out : ndarray, (B, r, r)
        Where to copy them.
    """
    rows = bases[:, None] + positions * strides[:, None]
    out[...] = values.take(rows[:, :, None] + positions[:, None, :])


@compiled(reference=gather_in_numpy)
def gather(values: Float, bases: Integers, strides: Integers, positions: Integers, out: Float) -> None:
    """See `gather_in_numpy`."""
    for b in range(positions.shape[0]):
        for i in range(positions.shape[1]):
            row = bases[b] + positions[b, i] * strides[b]
            for j in range(positions.shape[1]):
                out[b, i, j] = values[row + positions[b, j]]


def keep_largest_in_numpy(largest: Float, errors: Float) -> None:
    """Put the absolute values of some columns in place of the smallest in `largest`, row by row, where they are larger.

    Parameters
    ----------
    largest : ndarray, (cells, k)
        Ascending; changed in place.
    errors : ndarray, (cells, K)
    """
    width = errors.shape[1]
    for start in range(0, errors.shape[0], ROWS_IN_CACHE):
        rows = slice(start, start + ROWS_IN_CACHE)
        both = np.hstack([largest[rows], abs(errors[rows])])
        both.sort(axis=1)
        largest[rows] = both[:, width:]


@compiled(reference=keep_largest_in_numpy)
def keep_largest(largest: Float, errors: Float) -> None:
    """See `keep_largest_in_numpy`."""
    cells, keep = largest.shape
    for cell in range(cells):
        for error in errors[cell]:
            size = abs(error)
            if size > largest[cell, 0]:
                place = 1
                while place < keep and largest[cell, place] < size:
                    largest[cell, place - 1] = largest[cell, place]
                    place += 1
                largest[cell, place - 1] = size

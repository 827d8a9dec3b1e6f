"""The largest errors of every cell, in numpy and as a loop to be compiled.

An order statistic keeps the largest errors of every cell: numpy sorts all of them, compiled code skips the many that
are not among the largest.
"""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Float
from constraint_builders.compiled import compiled

ROWS_IN_CACHE = 4096


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
    """See `keep_largest_in_numpy`: largest is (cells, k), errors (cells, K)."""
    cells, keep = largest.shape
    for cell in range(cells):
        for error in errors[cell]:
            size = abs(error)
            if not size <= largest[cell, 0]:  # NaN stays
                place = 1
                while place < keep and largest[cell, place] < size:
                    largest[cell, place - 1] = largest[cell, place]
                    place += 1
                largest[cell, place - 1] = size

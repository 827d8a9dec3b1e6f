"""Runs of cells copied from one vector to another, in numpy and as a loop to be compiled.

A row of a list of runs is a run of cells: where it is read, where it is written, its length, and whether it is added
to what is there. What is read at -1 is 0.
"""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled


def copy_weighted_in_numpy(values: Float, cells: Float, runs: Integers, weights: Float) -> None:
    """Copy runs of cells, each times its weight.

    Parameters
    ----------
    values : ndarray, (N, K)
        Where runs are read.
    cells : ndarray, (S, K)
        Where they are written.
    runs : ndarray of int, (rows, 4)
    weights : ndarray, (rows,)
    """
    for (source, target, size, adds), weight in zip(runs.tolist(), weights.tolist(), strict=True):
        place = cells[target : target + size]
        if source < 0:
            place[...] = 0
        elif adds:
            place += values[source : source + size] * weight
        else:
            np.multiply(values[source : source + size], weight, out=place)


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

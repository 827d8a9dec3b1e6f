"""What residuals weigh beside what is expected of them, row by row: in numpy, and as a loop to be compiled."""

from __future__ import annotations

import numpy as np

from blue_solvers.verification.goodness_of_fit import LEAST_CHECKED
from constraint_builders.arrays import Float
from constraint_builders.compiled import compiled

COMPILED_FROM = 1 << 16  # cells, of which a loop is worth loading


def weigh(y: Float, x: Float, precision: Float, spread: Float, of_rows: Float) -> None:
    """As `weigh_residuals_in_numpy`, compiled where there are many cells."""
    run = weigh_residuals.fastest() if y.size >= COMPILED_FROM else weigh_residuals_in_numpy
    run(y, x, precision, spread, of_rows)


def weigh_residuals_in_numpy(y: Float, x: Float, precision: Float, spread: Float, of_rows: Float) -> None:
    """Weigh residuals.

    Parameters
    ----------
    y, x : ndarray, (G, cells)
        Measured, and estimated.
    precision : ndarray, (G, 1) or (G, cells)
        Of the measurements; 0 where there is none, or what is exact.
    spread : ndarray, (G, cells)
        Variances of the estimates.
    of_rows : ndarray, (G, 4)
        Where to put of every row the sum of weighted squares, what it is expected to be, the largest square of a
        studentised residual, and how many cells others check.
    """
    squares, redundancy = squares_and_redundancy(y, x, precision, spread)
    of_rows[:, 0], of_rows[:, 1] = squares.sum(axis=1), redundancy.sum(axis=1)
    of_rows[:, 2] = studentised(squares, redundancy).max(axis=1, initial=0.0)
    of_rows[:, 3] = np.count_nonzero(redundancy > LEAST_CHECKED, axis=1)


@compiled(reference=weigh_residuals_in_numpy)
def weigh_residuals(y: Float, x: Float, precision: Float, spread: Float, of_rows: Float) -> None:
    """See `weigh_residuals_in_numpy`."""
    last = precision.shape[1] - 1
    for row in range(y.shape[0]):
        statistic, expectation, largest, count = 0.0, 0.0, 0.0, 0
        for i in range(y.shape[1]):
            weight = precision[row, min(i, last)]
            if weight > 0:
                redundancy = min(max(1.0 - spread[row, i] * weight, 0.0), 1.0)
                square = (y[row, i] - x[row, i]) ** 2 * weight
                statistic += square
                expectation += redundancy
                if redundancy > LEAST_CHECKED:
                    count += 1
                    if square > largest * redundancy:
                        largest = square / redundancy
        of_rows[row, 0], of_rows[row, 1], of_rows[row, 2], of_rows[row, 3] = statistic, expectation, largest, count


def squares_and_redundancy(y: Float, x: Float, precision: Float, spread: Float) -> tuple[Float, Float]:
    """Of every cell its weighted square and what that is expected to be, 0 where nothing was measured."""
    redundancy = spread * precision
    np.subtract(1.0, redundancy, out=redundancy)
    np.clip(redundancy, 0.0, 1.0, out=redundancy)
    squares = y - x
    if not (precision > 0).all():
        none = np.broadcast_to(precision <= 0, y.shape)
        redundancy[none] = squares[none] = 0.0
    np.square(squares, out=squares)
    squares *= precision
    return squares, redundancy


def studentised(squares: Float, redundancy: Float) -> Float:
    """Weighted squares, which are used up, by what is expected of them; 0 where others check nothing."""
    checked = redundancy > LEAST_CHECKED
    np.divide(squares, redundancy, out=squares, where=checked)
    if not checked.all():
        squares[~checked] = 0.0
    return squares

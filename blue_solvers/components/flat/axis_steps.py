"""The two sweeps of a family of tables as lists of operations, each in numpy and as a loop to be compiled.

A row of a list of steps is a table and one of its axes: where the table lies, where the table without that axis lies,
the cells before the axis, its levels, and the cells after it. Going up, the mean over the axis leaves the table and is
added to the table without it; going down, the table without it is spread evenly over the levels. Shapes need not be
alike. A row of a list of runs is a run of cells: where it is read, where it is written, its length, and whether it is
added to what is there. What is read at -1 is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

STRIP = 512  # cells whose means are held at once
SHORT = 16  # cells after an axis that are too few for a strip


def take_means_in_numpy(cells: Float, steps: Integers, factors: Float) -> None:
    """Move means over axes to the tables without them, in the order of the list.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other; changed in place.
    steps : ndarray of int, (rows, 5)
    factors : ndarray, (rows,)
        What the table is multiplied by after each step.
    """
    for (table, without), factor in zip(_tables(cells, steps), factors.tolist(), strict=True):
        means = table.mean(axis=1)
        table -= means[:, None]
        without += means
        if factor != 1:
            table *= factor


@compiled(reference=take_means_in_numpy)
def take_means(cells: Float, steps: Integers, factors: Float) -> None:
    """See `take_means_in_numpy`."""
    flat, width, strip = cells.ravel(), cells.shape[1], np.empty(STRIP)
    for row in range(steps.shape[0]):
        start, without = steps[row, 0] * width, steps[row, 1] * width
        before, levels, after = steps[row, 2], steps[row, 3], steps[row, 4] * width
        table = flat[start : start + before * levels * after].reshape((before, levels, after))
        sums = flat[without : without + before * after].reshape((before, after))
        if levels == 2:
            _take_pairs(table, sums, factors[row])
        elif after < SHORT:
            _take_short(table, sums, factors[row])
        else:
            _take_long(table, sums, factors[row], strip)


def _take_pairs(table: Float, sums: Float, factor: float) -> None:
    half = 0.5 * factor
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            one, two = table[b, 0, i], table[b, 1, i]
            sums[b, i] += 0.5 * (one + two)
            contrast = half * (one - two)
            table[b, 0, i] = contrast
            table[b, 1, i] = -contrast


def _take_short(table: Float, sums: Float, factor: float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            mean = 0.0
            for level in range(table.shape[1]):
                mean += table[b, level, i]
            mean *= share
            sums[b, i] += mean
            for level in range(table.shape[1]):
                table[b, level, i] = (table[b, level, i] - mean) * factor


def _take_long(table: Float, sums: Float, factor: float, strip: Float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for first in range(0, table.shape[2], STRIP):
            own = sums[b, first : first + STRIP]
            line = table[b, 0, first : first + STRIP]
            for i in range(own.size):
                strip[i] = line[i]
            for level in range(1, table.shape[1]):
                line = table[b, level, first : first + STRIP]
                for i in range(own.size):
                    strip[i] += line[i]
            for i in range(own.size):
                strip[i] *= share
                own[i] += strip[i]
            for level in range(table.shape[1]):
                line = table[b, level, first : first + STRIP]
                for i in range(own.size):
                    line[i] = (line[i] - strip[i]) * factor


def spread_evenly_in_numpy(cells: Float, steps: Integers) -> None:
    """Add to every table what the table without an axis has, spread evenly over the axis, in the order of the list.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other; changed in place.
    steps : ndarray of int, (rows, 5)
    """
    for table, without in _tables(cells, steps):
        table += (without * (1 / table.shape[1]))[:, None]


@compiled(reference=spread_evenly_in_numpy)
def spread_evenly(cells: Float, steps: Integers) -> None:
    """See `spread_evenly_in_numpy`."""
    flat, width, strip = cells.ravel(), cells.shape[1], np.empty(STRIP)
    for row in range(steps.shape[0]):
        start, without = steps[row, 0] * width, steps[row, 1] * width
        before, levels, after = steps[row, 2], steps[row, 3], steps[row, 4] * width
        table = flat[start : start + before * levels * after].reshape((before, levels, after))
        sums = flat[without : without + before * after].reshape((before, after))
        if levels == 2:
            _spread_pairs(table, sums)
        elif after < SHORT:
            _spread_short(table, sums)
        else:
            _spread_long(table, sums, strip)


def _spread_pairs(table: Float, sums: Float) -> None:
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            part = 0.5 * sums[b, i]
            table[b, 0, i] += part
            table[b, 1, i] += part


def _spread_short(table: Float, sums: Float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            part = share * sums[b, i]
            for level in range(table.shape[1]):
                table[b, level, i] += part


def _spread_long(table: Float, sums: Float, strip: Float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for first in range(0, table.shape[2], STRIP):
            own = sums[b, first : first + STRIP]
            for i in range(own.size):
                strip[i] = own[i] * share
            for level in range(table.shape[1]):
                line = table[b, level, first : first + STRIP]
                for i in range(own.size):
                    line[i] += strip[i]


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


def _tables(cells: Float, steps: Integers) -> Iterator[tuple[Float, Float]]:
    """Of every step the table, (before, levels, after), and the table without its axis, (before, after)."""
    width = cells.shape[1]
    for table, without, before, levels, after in steps.tolist():
        size = before * after
        whole = cells[table : table + size * levels].reshape(before, levels, after * width)
        yield whole, cells[without : without + size].reshape(before, after * width)

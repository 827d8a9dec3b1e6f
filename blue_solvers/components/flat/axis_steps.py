"""The two sweeps of a family of tables as lists of operations, each in numpy and as a loop to be compiled.

A row of a list of steps is a table and one of its axes: where the table lies, where the table without that axis lies,
the cells before the axis, its levels, the cells after it, and where the groups of the levels are listed, or -1 for a
single group. Going up, the mean over every group leaves the table and is added to the table without the axis, or with
groups in its place; going down, that table is spread evenly over the levels. Shapes need not be alike.

A row of a list of runs is a run of cells: where it is read, where it is written, its length, and whether it is added
to what is there. What is read at -1 is 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

STRIP = 512  # cells whose means are held at once
SHORT = 16  # cells after an axis that are too few for a strip


def take_means_in_numpy(cells: Float, steps: Integers, groups: Integers, factors: Float) -> None:
    """Move means over axes to the tables without them, in the order of the list.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other; changed in place.
    steps : ndarray of int, (rows, 6)
    groups : ndarray of int
        The groups of the levels of axes, one after the other, each after their number.
    factors : ndarray, (rows,)
        What the table is multiplied by after each step.
    """
    for (table, without, own), factor in zip(_tables(cells, steps, groups), factors.tolist(), strict=True):
        means = sum_groups(table, own) / np.bincount(own)[:, None]
        table -= means[:, own]
        without += means
        table *= factor


@compiled(reference=take_means_in_numpy)
def take_means(cells: Float, steps: Integers, groups: Integers, factors: Float) -> None:
    """See `take_means_in_numpy`."""
    flat, width, strip = cells.ravel(), cells.shape[1], np.empty(STRIP)
    for row in range(steps.shape[0]):
        table, listed = _table(flat, steps, row, width), steps[row, 5]
        if listed >= 0:
            own = groups[listed + 1 : listed + 1 + table.shape[1]]
            _take_groups(table, _below(flat, steps, row, width, groups[listed]), own, factors[row])
            continue
        sums = _below(flat, steps, row, width, 1)
        if table.shape[1] == 2:
            _take_pairs(table, sums, factors[row])
        elif table.shape[2] < SHORT:
            _take_short(table, sums, factors[row])
        else:
            _take_long(table, sums, factors[row], strip)


def _table(flat: Float, steps: Integers, row: int, width: int) -> Float:
    """The table of a step, (before, levels, after)."""
    start, before, levels, after = steps[row, 0] * width, steps[row, 2], steps[row, 3], steps[row, 4] * width
    return flat[start : start + before * levels * after].reshape((before, levels, after))


def _below(flat: Float, steps: Integers, row: int, width: int, count: int) -> Float:
    """The table that it leads to, (before, groups, after)."""
    start, before, after = steps[row, 1] * width, steps[row, 2], steps[row, 4] * width
    return flat[start : start + before * count * after].reshape((before, count, after))


def _take_groups(table: Float, parts: Float, own: Integers, factor: float) -> None:
    shares = _shares(own, parts.shape[1])
    means = np.empty((parts.shape[1], min(STRIP, table.shape[2])))
    for b in range(table.shape[0]):
        for first in range(0, table.shape[2], STRIP):
            size = min(STRIP, table.shape[2] - first)
            means[:] = 0.0
            for level in range(own.size):
                line, mean = table[b, level, first : first + size], means[own[level]]
                for i in range(size):
                    mean[i] += line[i]
            for group in range(shares.size):
                part, mean = parts[b, group, first : first + size], means[group]
                for i in range(size):
                    mean[i] *= shares[group]
                    part[i] += mean[i]
            for level in range(own.size):
                line, mean = table[b, level, first : first + size], means[own[level]]
                for i in range(size):
                    line[i] = (line[i] - mean[i]) * factor


def _shares(own: Integers, count: int) -> Float:
    """1 over the number of levels in every group."""
    sizes = np.zeros(count)
    for level in range(own.size):
        sizes[own[level]] += 1
    return 1 / sizes


def _take_pairs(table: Float, sums: Float, factor: float) -> None:
    half = 0.5 * factor
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            one, two = table[b, 0, i], table[b, 1, i]
            sums[b, 0, i] += 0.5 * (one + two)
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
            sums[b, 0, i] += mean
            for level in range(table.shape[1]):
                table[b, level, i] = (table[b, level, i] - mean) * factor


def _take_long(table: Float, sums: Float, factor: float, strip: Float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for first in range(0, table.shape[2], STRIP):
            own = sums[b, 0, first : first + STRIP]
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


def spread_evenly_in_numpy(cells: Float, steps: Integers, groups: Integers) -> None:
    """Add to every table what the table without an axis has, spread evenly over the axis, in the order of the list.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other; changed in place.
    steps : ndarray of int, (rows, 6)
    groups : ndarray of int
        As of `take_means_in_numpy`.
    """
    for table, without, own in _tables(cells, steps, groups):
        table += (without * (1 / np.bincount(own))[:, None])[:, own]


@compiled(reference=spread_evenly_in_numpy)
def spread_evenly(cells: Float, steps: Integers, groups: Integers) -> None:
    """See `spread_evenly_in_numpy`."""
    flat, width, strip = cells.ravel(), cells.shape[1], np.empty(STRIP)
    for row in range(steps.shape[0]):
        table, listed = _table(flat, steps, row, width), steps[row, 5]
        if listed >= 0:
            own = groups[listed + 1 : listed + 1 + table.shape[1]]
            _spread_groups(table, _below(flat, steps, row, width, groups[listed]), own)
            continue
        sums = _below(flat, steps, row, width, 1)
        if table.shape[1] == 2:
            _spread_pairs(table, sums)
        elif table.shape[2] < SHORT:
            _spread_short(table, sums)
        else:
            _spread_long(table, sums, strip)


def _spread_groups(table: Float, parts: Float, own: Integers) -> None:
    shares = _shares(own, parts.shape[1])
    for b in range(table.shape[0]):
        for level in range(own.size):
            line, part, share = table[b, level], parts[b, own[level]], shares[own[level]]
            for i in range(line.size):
                line[i] += share * part[i]


def _spread_pairs(table: Float, sums: Float) -> None:
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            part = 0.5 * sums[b, 0, i]
            table[b, 0, i] += part
            table[b, 1, i] += part


def _spread_short(table: Float, sums: Float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for i in range(table.shape[2]):
            part = share * sums[b, 0, i]
            for level in range(table.shape[1]):
                table[b, level, i] += part


def _spread_long(table: Float, sums: Float, strip: Float) -> None:
    share = 1 / table.shape[1]
    for b in range(table.shape[0]):
        for first in range(0, table.shape[2], STRIP):
            own = sums[b, 0, first : first + STRIP]
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


def sum_groups(table: Float, groups: Integers) -> Float:
    """Sums over groups of levels, (before, levels, after) to (before, groups, after)."""
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(groups.max() + 1))
    return np.add.reduceat(table[:, order], starts, axis=1)


def _tables(cells: Float, steps: Integers, groups: Integers) -> Iterator[tuple[Float, Float, Integers]]:
    """Of every step the table, (before, levels, after), that which it leads to, (before, groups, after), and groups."""
    width = cells.shape[1]
    for table, without, before, levels, after, listed in steps.tolist():
        own = np.zeros(levels, dtype=np.int64) if listed < 0 else groups[listed + 1 : listed + 1 + levels]
        size = before * after * (1 if listed < 0 else int(groups[listed]))
        whole = cells[table : table + before * levels * after].reshape(before, levels, after * width)
        yield whole, cells[without : without + size].reshape(before, -1, after * width), own

"""The two sweeps of a family of tables as lists of operations, each in numpy and as a loop to be compiled.

A row of a list of steps is a table and one of its axes: where the table lies, where the table without that axis lies,
the cells before the axis, its levels, the cells after it, and where the groups of the levels are listed, or -1 for a
single group. Going up, the mean over every group leaves the table and is added to the table without the axis, or with
groups in its place; going down, that table is spread evenly over the levels. Shapes need not be alike.

Two axes of two levels each that lie side by side in a table, few cells after them, take one pass together where their
rows follow one another: four cells at once are read and written once instead of twice.

The loops count in unsigned numbers from the start of one vector, and read again where a table starts whenever they come
to its next cells: so what is compiled neither asks whether an index is negative nor whether far cells overlap, which
would keep the inner loops from taking several cells at once (2 to 4 times as fast for tables of some hundred cells).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

STRIP = 512  # cells whose means are held at once
SHORT = 8  # cells after an axis that are too few for a strip
FEW = 4  # that are too few for a loop over them


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
    flat, width, strip, row = cells.ravel(), np.uint64(cells.shape[1]), np.empty(STRIP), -1
    while row + 1 < steps.shape[0]:
        row += 1
        levels, after = steps[row, 3], np.uint64(steps[row, 4]) * width
        if steps[row, 5] >= 0:
            table, parts, own = _grouped(flat, steps, row, cells.shape[1], groups)
            _take_groups(table, parts, own, factors[row])
        elif levels == 2 and after < 2 * SHORT and _are_side_by_side(steps, row):
            _take_fours(flat, steps, row, width, factors[row], factors[row + 1])
            row += 1
        elif levels == 2:
            _take_pairs(flat, steps, row, width, factors[row])
        elif after == 1:
            _take_rows(flat, steps, row, factors[row])
        elif after < SHORT:
            _take_short(flat, steps, row, width, factors[row])
        else:
            _take_long(flat, steps, row, width, factors[row], strip)


def _grouped(flat: Float, steps: Integers, row: int, width: int, groups: Integers) -> tuple[Float, Float, Integers]:
    """The table of a step, (before, levels, after), that which it leads to, (before, groups, after), and groups."""
    start, without, before, levels = steps[row, 0] * width, steps[row, 1] * width, steps[row, 2], steps[row, 3]
    after, listed = steps[row, 4] * width, steps[row, 5]
    count = groups[listed]
    table = flat[start : start + before * levels * after].reshape((before, levels, after))
    parts = flat[without : without + before * count * after].reshape((before, count, after))
    return table, parts, groups[listed + 1 : listed + 1 + levels]


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


def _take_pairs(flat: Float, steps: Integers, row: int, width: np.uint64, factor: float) -> None:
    before, after = np.uint64(steps[row, 2]), np.uint64(steps[row, 4]) * width
    without, half, one = np.uint64(steps[row, 1]) * width, 0.5 * factor, np.uint64(1)
    if after == 1:
        first = np.uint64(steps[row, 0])
        for _ in range(before):
            contrast = half * (flat[first] - flat[first + one])
            flat[without] += 0.5 * (flat[first] + flat[first + one])
            flat[first] = contrast
            flat[first + one] = -contrast
            first += np.uint64(2)
            without += one
        return
    if after < SHORT:
        for i in range(after):
            first, below = np.uint64(steps[row, 0]) * width + np.uint64(i), without + np.uint64(i)
            for _ in range(before):
                contrast = half * (flat[first] - flat[first + after])
                flat[below] += 0.5 * (flat[first] + flat[first + after])
                flat[first] = contrast
                flat[first + after] = -contrast
                first += np.uint64(2) * after
                below += after
        return
    for b in range(before):
        first = np.uint64(steps[row, 0]) * width + np.uint64(2) * np.uint64(b) * after
        second, below = first + after, without + np.uint64(b) * after
        for i in range(after):
            contrast = half * (flat[first + i] - flat[second + i])
            flat[below + i] += 0.5 * (flat[first + i] + flat[second + i])
            flat[first + i] = contrast
            flat[second + i] = -contrast


def _are_side_by_side(steps: Integers, row: int) -> bool:
    """Whether the axis of a row, of two levels, and that of the next are neighbours in one table."""
    if row + 1 == steps.shape[0] or steps[row + 1, 0] != steps[row, 0]:
        return False
    return steps[row + 1, 3] == 2 and steps[row + 1, 5] < 0 and steps[row, 4] == 2 * steps[row + 1, 4]


def _take_fours(flat: Float, steps: Integers, row: int, width: np.uint64, factor: float, last: float) -> None:
    before, after, two = np.uint64(steps[row, 2]), np.uint64(steps[row + 1, 4]) * width, np.uint64(2)
    start, below = np.uint64(steps[row, 0]) * width, np.uint64(steps[row, 1]) * width
    beside = np.uint64(steps[row + 1, 1]) * width
    for i in range(after):
        first, mean, other = start + np.uint64(i), below + np.uint64(i), beside + np.uint64(i)
        for _ in range(before):
            _take_four(flat, first, mean, other, after, 0.5 * factor, 0.5 * last)
            first += two * two * after
            mean += two * after
            other += two * after


def _take_four(
    flat: Float, first: np.uint64, mean: np.uint64, other: np.uint64, after: np.uint64, half: float, last: float
) -> None:
    second, third = first + after, first + after + after
    fourth = third + after
    upper, lower = half * (flat[first] - flat[third]), half * (flat[second] - flat[fourth])
    flat[mean] += 0.5 * (flat[first] + flat[third])
    flat[mean + after] += 0.5 * (flat[second] + flat[fourth])
    along, contrast = 0.5 * (upper + lower), last * (upper - lower)
    flat[other] += along
    flat[other + after] -= along
    flat[first] = contrast
    flat[second] = -contrast
    flat[third] = -contrast
    flat[fourth] = contrast


def _take_rows(flat: Float, steps: Integers, row: int, factor: float) -> None:
    """Of an axis without cells after it; four sums at once, none of which waits for another."""
    levels, share = np.uint64(steps[row, 3]), 1 / steps[row, 3]
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    whole = levels // four * four
    for b in range(np.uint64(steps[row, 2])):
        first = np.uint64(steps[row, 0]) + np.uint64(b) * levels
        sum0 = sum1 = sum2 = sum3 = 0.0
        cell = first
        while cell < first + whole:
            sum0 += flat[cell]
            sum1 += flat[cell + one]
            sum2 += flat[cell + two]
            sum3 += flat[cell + three]
            cell += four
        while cell < first + levels:
            sum0 += flat[cell]
            cell += one
        mean = ((sum0 + sum1) + (sum2 + sum3)) * share
        flat[np.uint64(steps[row, 1]) + np.uint64(b)] += mean
        for i in range(levels):
            flat[first + i] = (flat[first + i] - mean) * factor


def _take_short(flat: Float, steps: Integers, row: int, width: np.uint64, factor: float) -> None:
    start, without = np.uint64(steps[row, 0]) * width, np.uint64(steps[row, 1]) * width
    levels, after, share = np.uint64(steps[row, 3]), np.uint64(steps[row, 4]) * width, 1 / steps[row, 3]
    for b in range(np.uint64(steps[row, 2])):
        for i in range(after):
            first, mean = start + np.uint64(b) * levels * after + np.uint64(i), 0.0
            cell = first
            for _ in range(levels):
                mean += flat[cell]
                cell += after
            mean *= share
            flat[without + np.uint64(b) * after + np.uint64(i)] += mean
            cell = first
            for _ in range(levels):
                flat[cell] = (flat[cell] - mean) * factor
                cell += after


def _take_long(flat: Float, steps: Integers, row: int, width: np.uint64, factor: float, strip: Float) -> None:
    levels, after, share = np.uint64(steps[row, 3]), np.uint64(steps[row, 4]) * width, 1 / steps[row, 3]
    for b in range(np.uint64(steps[row, 2])):
        for start in range(np.uint64(0), after, np.uint64(STRIP)):
            size = min(np.uint64(STRIP), after - np.uint64(start))
            first = np.uint64(steps[row, 0]) * width + np.uint64(b) * levels * after + np.uint64(start)
            below, line = np.uint64(steps[row, 1]) * width + np.uint64(b) * after + np.uint64(start), first
            for i in range(size):
                strip[i] = flat[first + i]
            for _ in range(levels - np.uint64(1)):
                line += after
                for i in range(size):
                    strip[i] += flat[line + i]
            for i in range(size):
                strip[i] *= share
                flat[below + i] += strip[i]
            line = first
            for _ in range(levels):
                for i in range(size):
                    flat[line + i] = (flat[line + i] - strip[i]) * factor
                line += after


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
    flat, width, row = cells.ravel(), np.uint64(cells.shape[1]), -1
    while row + 1 < steps.shape[0]:
        row += 1
        levels, after = steps[row, 3], np.uint64(steps[row, 4]) * width
        if steps[row, 5] >= 0:
            table, parts, own = _grouped(flat, steps, row, cells.shape[1], groups)
            _spread_groups(table, parts, own)
        elif levels == 2 and after < 2 * SHORT and _are_side_by_side(steps, row):
            _spread_fours(flat, steps, row, width)
            row += 1
        elif levels == 2:
            _spread_pairs(flat, steps, row, width)
        elif after == 1:
            _spread_rows(flat, steps, row)
        elif after < FEW:
            _spread_short(flat, steps, row, width)
        else:
            _spread_long(flat, steps, row, width)


def _spread_groups(table: Float, parts: Float, own: Integers) -> None:
    shares = _shares(own, parts.shape[1])
    for b in range(table.shape[0]):
        for level in range(own.size):
            line, part, share = table[b, level], parts[b, own[level]], shares[own[level]]
            for i in range(line.size):
                line[i] += share * part[i]


def _spread_pairs(flat: Float, steps: Integers, row: int, width: np.uint64) -> None:
    before, after = np.uint64(steps[row, 2]), np.uint64(steps[row, 4]) * width
    without, one = np.uint64(steps[row, 1]) * width, np.uint64(1)
    if after == 1:
        first = np.uint64(steps[row, 0])
        for _ in range(before):
            part = 0.5 * flat[without]
            flat[first] += part
            flat[first + one] += part
            first += np.uint64(2)
            without += one
        return
    if after < SHORT:
        for i in range(after):
            first, below = np.uint64(steps[row, 0]) * width + np.uint64(i), without + np.uint64(i)
            for _ in range(before):
                part = 0.5 * flat[below]
                flat[first] += part
                flat[first + after] += part
                first += np.uint64(2) * after
                below += after
        return
    for b in range(before):
        first = np.uint64(steps[row, 0]) * width + np.uint64(2) * np.uint64(b) * after
        second, below = first + after, without + np.uint64(b) * after
        for i in range(after):
            part = 0.5 * flat[below + i]
            flat[first + i] += part
            flat[second + i] += part


def _spread_fours(flat: Float, steps: Integers, row: int, width: np.uint64) -> None:
    before, after, two = np.uint64(steps[row, 2]), np.uint64(steps[row + 1, 4]) * width, np.uint64(2)
    start, below = np.uint64(steps[row, 0]) * width, np.uint64(steps[row, 1]) * width
    beside = np.uint64(steps[row + 1, 1]) * width
    for i in range(after):
        first, part, other = start + np.uint64(i), below + np.uint64(i), beside + np.uint64(i)
        for _ in range(before):
            _spread_four(flat, first, part, other, after)
            first += two * two * after
            part += two * after
            other += two * after


def _spread_four(flat: Float, first: np.uint64, part: np.uint64, other: np.uint64, after: np.uint64) -> None:
    second, third = first + after, first + after + after
    upper, lower = 0.5 * flat[part], 0.5 * flat[part + after]
    left, right = 0.5 * flat[other], 0.5 * flat[other + after]
    flat[first] = flat[first] + upper + left
    flat[second] = flat[second] + lower + left
    flat[third] = flat[third] + upper + right
    flat[third + after] = flat[third + after] + lower + right


def _spread_rows(flat: Float, steps: Integers, row: int) -> None:
    levels, share = np.uint64(steps[row, 3]), 1 / steps[row, 3]
    for b in range(np.uint64(steps[row, 2])):
        first = np.uint64(steps[row, 0]) + np.uint64(b) * levels
        part = share * flat[np.uint64(steps[row, 1]) + np.uint64(b)]
        for i in range(levels):
            flat[first + i] += part


def _spread_short(flat: Float, steps: Integers, row: int, width: np.uint64) -> None:
    start, without = np.uint64(steps[row, 0]) * width, np.uint64(steps[row, 1]) * width
    levels, after, share = np.uint64(steps[row, 3]), np.uint64(steps[row, 4]) * width, 1 / steps[row, 3]
    for b in range(np.uint64(steps[row, 2])):
        for i in range(after):
            part = share * flat[without + np.uint64(b) * after + np.uint64(i)]
            cell = start + np.uint64(b) * levels * after + np.uint64(i)
            for _ in range(levels):
                flat[cell] += part
                cell += after


def _spread_long(flat: Float, steps: Integers, row: int, width: np.uint64) -> None:
    levels, after, share = np.uint64(steps[row, 3]), np.uint64(steps[row, 4]) * width, 1 / steps[row, 3]
    for b in range(np.uint64(steps[row, 2])):
        below = np.uint64(steps[row, 1]) * width + np.uint64(b) * after
        line = np.uint64(steps[row, 0]) * width + np.uint64(b) * levels * after
        for _ in range(levels):
            for i in range(after):
                flat[line + i] += share * flat[below + i]
            line += after


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

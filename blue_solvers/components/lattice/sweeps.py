"""The operations between tables as loops to be compiled.

The loops count in unsigned numbers from the start of one vector, and read again where a table starts whenever they come
to its next cells: so what is compiled neither asks whether an index is negative nor whether far cells overlap, which
would keep the inner loops from taking several cells at once (2 to 4 times as fast for tables of some hundred cells).
"""

from __future__ import annotations

import numpy as np

from blue_solvers.components.lattice.operations import KINDS, operate, sums, tables_of
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import ALL_AT_ONCE, compiled, in_any_order

MOVE, REDUCE, LAND, EXPAND, PUT, ADD, SUM, READ, WRITE = KINDS
Count = np.uint64
Four = tuple[float, float, float, float]
IN_SLICES = 3 * ALL_AT_ONCE  # numbers that are there: a call is for a part of large tables
STRIP = 512  # cells whose means are held at once
FOURS, LONG = 16, 32  # from which many on these, or levels, are not worked on in fours


def go_up_in_numpy(cells: Float, steps: Integers, lists: Integers, factors: Float, values: Float) -> None:
    """Move means of tables to coarser ones, in the order of the list.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other, and room for what is worked out on the way; changed in place.
    steps : ndarray of int, (rows, 7 or more)
        What is done, both places, before, levels, after, where the list is; no more is looked at.
    lists : ndarray of int
        Which cells levels go to, one list after the other, each after the number of these cells.
    factors : ndarray, (rows,)
        Of what is read, and of what comes to coarser tables.
    values : ndarray, (n, K)
        What is read, and added to by `SUM`; of the type of `cells`, so that loops are compiled once.
    """
    for row, factor in zip(steps.tolist(), factors.tolist(), strict=True):
        operate(cells, row, lists, factor, values, True)


def go_down_in_numpy(cells: Float, steps: Integers, lists: Integers, values: Float) -> None:
    """Put coarser tables of (S, K) where the sums of finer ones were: `go_up_in_numpy` transposed, without factors."""
    for row in steps.tolist():
        operate(cells, row, lists, 1.0, values, False)


@compiled(reference=go_up_in_numpy, inline=False, most=IN_SLICES)
def go_up(cells: Float, steps: Integers, lists: Integers, factors: Float, values: Float) -> None:
    """See `go_up_in_numpy`: cells are (S, K), steps (rows, 7 or more), values (n, K)."""
    _go(cells, steps, lists, factors, values, True)


@compiled(reference=go_down_in_numpy, inline=False, most=IN_SLICES)
def go_down(cells: Float, steps: Integers, lists: Integers, values: Float) -> None:
    """See `go_down_in_numpy`: cells are (S, K), steps (rows, 7 or more), values (n, K)."""
    _go(cells, steps, lists, np.ones(1), values, False)


def look_at_gaps_in_numpy(cells: Float, steps: Integers, lists: Integers, gaps: Float) -> None:
    """Write by how much tables in (S, K) differ most from sums of finer ones, (rows,); `REDUCE` makes these sums."""
    for number, row in enumerate(steps.tolist()):
        if row[0] == REDUCE:
            operate(cells, row, lists, 1.0, cells, False)
            continue
        fine, coarse, own = tables_of(cells, row, lists, cells)
        gaps[number] = abs(sums(fine, own, coarse.shape[1]) - coarse).max(initial=0.0)


@compiled(reference=look_at_gaps_in_numpy, inline=False)
def look_at_gaps(cells: Float, steps: Integers, lists: Integers, gaps: Float) -> None:
    """See `look_at_gaps_in_numpy`, of (S, K)."""
    flat, width, found = cells.ravel(), np.uint64(cells.shape[1]), np.empty(cells.size)
    step = np.empty(steps.shape[1], np.int64)
    for row in range(steps.shape[0]):
        step[:] = steps[row]
        if step[0] == REDUCE:
            _reduce(flat, flat, step, width, lists, False)
            continue
        step[2] = 0  # where what is written stays in cache
        _reduce(flat, found, step, width, lists, False)
        size = np.uint64(step[3] * (1 if step[6] < 0 else lists[step[6]]) * step[5]) * width
        worst, cell = 0.0, np.uint64(steps[row, 2]) * width
        for i in range(size):
            gap = abs(found[i] - flat[cell + i])
            if not gap <= worst:
                worst = gap if worst == worst else worst  # NaN, once met, stays
        gaps[row] = worst


def scale_tables_in_numpy(cells: Float, sizes: Integers, factors: Float) -> None:
    """Multiply tables, one after the other in (S, K), each by its factor, in place."""
    cells[: sizes.sum()] *= np.repeat(factors, sizes)[:, None]


@compiled(reference=scale_tables_in_numpy, most=IN_SLICES)
def scale_tables(cells: Float, sizes: Integers, factors: Float) -> None:
    """See `scale_tables_in_numpy`: cells are (S, K), sizes and factors (tables,)."""
    flat, start = cells.ravel(), np.uint64(0)
    for table in range(sizes.size):
        stop, factor = start + np.uint64(sizes[table] * cells.shape[1]), factors[table]
        for i in range(start, stop):
            flat[i] *= factor
        start = stop


def _go(cells: Float, steps: Integers, lists: Integers, factors: Float, values: Float, upwards: bool) -> None:
    """All operations in (S, K); `upwards` is a constant where moves are given it: none of their loops asks for it."""
    flat, read, width, strip = cells.ravel(), values.ravel(), np.uint64(cells.shape[1]), np.empty(STRIP)
    for row in range(steps.shape[0]):
        step, up = steps[row], upwards and row >= 0  # which is no constant: what takes it is compiled once
        kind, after, factor = step[0], np.uint64(step[5]) * width, factors[row] if upwards else 1.0
        if kind == LAND:
            _land(flat, step, width, factor, up)
        elif kind == REDUCE:
            _reduce(flat, flat, step, width, lists, up)
        elif kind == SUM and upwards:
            _expand(read, flat, step, width, lists, 1.0, up)
        elif kind == SUM:
            _reduce(read, flat, step, width, lists, up)
        elif kind >= READ:
            _expand(flat, read, step, width, lists, factor, up)
        elif kind >= EXPAND:
            _expand(flat, flat, step, width, lists, -1.0 if upwards and kind == PUT else 1.0, up)
        elif step[4] > 2 and after == 1:
            _move_short(flat, step, width, np.uint64(1), factor, upwards, True)
        elif step[4] > 2 and after < FOURS:
            _move_short(flat, step, width, after, factor, upwards, False)
        elif step[4] > 2:
            _move_long(flat, step, width, factor, strip, upwards)
        elif after == 1:
            _move_pairs(flat, step, width, np.uint64(1), factor, upwards)
        elif after == 2:
            _move_pairs(flat, step, width, np.uint64(2), factor, upwards)
        else:
            _move_pairs(flat, step, width, after, factor, upwards)


def _land(flat: Float, step: Integers, width: Count, factor: float, upwards: bool) -> None:
    """Add a table in `flat`, 1-d, times a factor to another, or going down put what the other has more in its place."""
    place, other = np.uint64(step[1]) * width, np.uint64(step[2]) * width
    for i in range(np.uint64(step[3] * step[5]) * width):
        if upwards:
            flat[other + i] += factor * flat[place + i]
        else:
            flat[place + i] = flat[other + i] - flat[place + i]


def _reduce(fine: Float, flat: Float, step: Integers, width: Count, lists: Integers, upwards: bool) -> None:
    """Write means, or going down sums, over levels of `fine`, 1-d, to the coarser table in `flat`, 1-d."""
    if step[6] >= 0:
        for i in range(np.uint64(step[3] * lists[step[6]] * step[5]) * width):
            flat[np.uint64(step[2]) * width + i] = 0.0
        _go_listed(fine, flat, step, width, lists, (0.0, 1.0) if upwards else (1.0, 0.0), True)
        return
    levels, after = np.uint64(step[4]), np.uint64(step[5]) * width
    first, below, share = np.uint64(step[1]) * width, np.uint64(step[2]) * width, 1 / step[4]
    for _ in range(step[3]):
        if after == 1:
            flat[below] = _sum_of_line(fine, first, levels)
        else:
            _sum(fine, first, levels, after, flat, below, after)
        for i in range(after if upwards else np.uint64(0)):
            flat[below + i] *= share
        first += levels * after
        below += after


def _go_listed(
    fine: Float, coarse: Float, step: Integers, width: Count, lists: Integers, shared: tuple[float, float], adds: bool
) -> None:
    """Add what levels in `fine`, 1-d, have to cells in `coarse`, 1-d, that they go to, or what these have to them.

    Times a factor, and one over the number of levels that go to a cell. Levels that follow one another and go to one
    cell are taken at once, and of lines side by side four.
    """
    own, ends, runs = lists[step[6] + 1 : step[6] + 1 + step[4]], np.zeros(step[4] + 1, np.uint64), 0
    shares, levels, after, four = np.zeros(lists[step[6]]), np.uint64(step[4]), np.uint64(step[5]) * width, np.uint64(4)
    for level in range(own.size):
        runs += level == 0 or own[level] != own[level - 1]
        ends[runs] = level + 1
    for run in range(runs):
        shares[own[ends[run]]] += ends[run + 1] - ends[run]
    start, under, left, count = np.uint64(step[1]) * width, np.uint64(step[2]) * width, step[3], np.uint64(shares.size)
    while left > 0:
        some = four if after == 1 and left >= 4 else np.uint64(1)
        for run in range(runs):
            group, cell, end = own[ends[run]], start + ends[run] * after, start + ends[run + 1] * after
            one, share = under + np.uint64(group) * after, shared[0] + shared[1] / shares[group]
            two, three = one + count, one + count + count
            if some == four and adds:
                sum0, sum1, sum2, sum3 = _sums_of_four(fine, cell, end, after, levels)
                coarse[one] += share * sum0
                coarse[two] += share * sum1
                coarse[three] += share * sum2
                coarse[three + count] += share * sum3
            elif some == four:
                added = share * coarse[one], share * coarse[two], share * coarse[three], share * coarse[three + count]
                _add_to_four(fine, cell, end, after, levels, added)
            elif after == 1 and adds:
                coarse[one] += share * _sum_of_line(fine, cell, end - cell)
            while some < four and cell < end and not (after == 1 and adds):
                for i in range(after):
                    if adds:
                        coarse[one + i] += share * fine[cell + i]
                    else:
                        fine[cell + i] += share * coarse[one + i]
                cell += after
        start, under, left = start + some * levels * after, under + some * count * after, left - np.int64(some)


def _sum(flat: Float, first: Count, levels: Count, after: Count, out: Float, place: Count, size: Count) -> None:
    """Write sums over the levels of many cells after an axis in `flat`, 1-d, to `out`, 1-d."""
    for i in range(size):
        out[place + i] = flat[first + i]
    for _ in range(levels - np.uint64(1)):
        first += after
        for i in range(size):
            out[place + i] += flat[first + i]


@in_any_order
def _sum_of_line(flat: Float, first: Count, levels: Count) -> float:
    """The sum of cells side by side in `flat`, 1-d."""
    total = 0.0
    for i in range(levels):
        total += flat[first + i]
    return total


def _expand(
    flat: Float, source: Float, step: Integers, width: Count, lists: Integers, factor: float, upwards: bool
) -> None:
    """Write to all levels in `flat`, 1-d, what the coarser table has, times a factor, or down a part; or add it."""
    is_new = step[0] == EXPAND or step[0] == WRITE
    if step[6] >= 0:
        for i in range(np.uint64(step[3] * step[4] * step[5]) * width if is_new else np.uint64(0)):
            flat[np.uint64(step[1]) * width + i] = 0.0
        _go_listed(flat, source, step, width, lists, (factor, 0.0) if upwards else (0.0, 1.0), False)
        return
    levels, after = np.uint64(step[4]), np.uint64(step[5]) * width
    share, before = factor if upwards else 1 / step[4], np.uint64(step[3])
    first, below = np.uint64(step[1]) * width, np.uint64(step[2]) * width
    if levels == 1:
        before, after = np.uint64(1), before * after
    for _ in range(before):
        if after == 1:
            value = share * source[below]
            for i in range(levels):
                flat[first + i] = value if is_new else flat[first + i] + value
            first += levels
        else:
            for _ in range(levels):
                for i in range(after):
                    value = share * source[below + i]
                    flat[first + i] = value if is_new else flat[first + i] + value
                first += after
        below += after


def _move_short(
    flat: Float, step: Integers, width: Count, after: Count, factor: float, upwards: bool, is_line: bool
) -> None:
    """With a few cells after the axis in `flat`, 1-d, or none: then these are lines, side by side."""
    levels, share, one, two, four = np.uint64(step[4]), 1 / step[4], np.uint64(1), np.uint64(2), np.uint64(4)
    start, below = np.uint64(step[1]) * width, np.uint64(step[2]) * width
    before, lines, gap = (1, np.uint64(step[3]), levels) if is_line else (step[3], after, one)
    for _ in range(before):
        first, end = start, below + lines
        while below + four <= end and (levels < LONG or not is_line):
            stop = first + levels * after
            sum0, sum1, sum2, sum3 = _sums_of_four(flat, first, stop, after, gap)
            rest0 = _settle(flat, below, sum0, share, factor, upwards)
            rest1 = _settle(flat, below + one, sum1, share, factor, upwards)
            rest2 = _settle(flat, below + two, sum2, share, factor, upwards)
            rest3 = _settle(flat, below + two + one, sum3, share, factor, upwards)
            _add_to_four(flat, first, stop, after, gap, (rest0, rest1, rest2, rest3))
            first, below = first + four * gap, below + four
        while below < end:
            total = _sum_of_line(flat, first, levels) if is_line else 0.0
            for level in range(np.uint64(0) if is_line else levels):
                total += flat[first + level * after]
            rest = _settle(flat, below, total, share, factor, upwards)
            for level in range(levels):
                flat[first + level * after] += rest
            first, below = first + gap, below + one
        start += levels * after


def _move_long(flat: Float, step: Integers, width: Count, factor: float, strip: Float, upwards: bool) -> None:
    """With many cells after the axis in `flat`, 1-d, some at a time, whose sums `strip`, (STRIP,), holds."""
    levels, after, share = np.uint64(step[4]), np.uint64(step[5]) * width, 1 / step[4]
    start, without = np.uint64(step[1]) * width, np.uint64(step[2]) * width
    for b in range(np.uint64(step[3])):
        for part in range(np.uint64(0), after, np.uint64(STRIP)):
            size = min(np.uint64(STRIP), after - np.uint64(part))
            first = start + np.uint64(b) * levels * after + np.uint64(part)
            below = without + np.uint64(b) * after + np.uint64(part)
            _sum(flat, first, levels, after, strip, np.uint64(0), size)
            for i in range(size):
                strip[i] = _settle(flat, below + i, strip[i], share, factor, upwards)
            for _ in range(levels):
                for i in range(size):
                    flat[first + i] += strip[i]
                first += after


def _sums_of_four(flat: Float, cell: Count, end: Count, after: Count, gap: Count) -> Four:
    """Sums of four lines in `flat`, 1-d, with such a gap between their starts, none of which waits for another."""
    two, sum0, sum1, sum2, sum3 = gap + gap, 0.0, 0.0, 0.0, 0.0
    while cell < end:
        sum0 += flat[cell]
        sum1 += flat[cell + gap]
        sum2 += flat[cell + two]
        sum3 += flat[cell + two + gap]
        cell += after
    return sum0, sum1, sum2, sum3


def _add_to_four(flat: Float, cell: Count, end: Count, after: Count, gap: Count, added: Four) -> None:
    """Add a number to all cells of each of four lines in `flat`, 1-d, with such a gap between their starts."""
    two = gap + gap
    while cell < end:
        flat[cell] += added[0]
        flat[cell + gap] += added[1]
        flat[cell + two] += added[2]
        flat[cell + two + gap] += added[3]
        cell += after


def _settle(flat: Float, below: Count, total: float, share: float, factor: float, upwards: bool) -> float:
    """What some levels get: less their mean, which a cell in `flat`, 1-d, takes, or their part of what they lack."""
    if upwards:
        rest = -total * share
        flat[below] -= factor * rest
        return rest
    return (flat[below] - total) * share


def _move_pairs(flat: Float, step: Integers, width: Count, after: Count, factor: float, upwards: bool) -> None:
    """Of two levels in `flat`, 1-d; with the number of cells after the axis compiled in, 1.4 times as fast on 2^12."""
    start, without, two = np.uint64(step[1]) * width, np.uint64(step[2]) * width, np.uint64(2)
    for b in range(np.uint64(step[3])):
        first, below = start + two * np.uint64(b) * after, without + np.uint64(b) * after
        second = first + after
        for i in range(after):
            half, contrast = 0.5 * (flat[first + i] + flat[second + i]), 0.5 * (flat[first + i] - flat[second + i])
            if upwards:
                flat[first + i], flat[second + i] = contrast, -contrast
                flat[below + i] += factor * half
            else:
                rest = 0.5 * flat[below + i]
                flat[first + i], flat[second + i] = rest + contrast, rest - contrast

"""Sums of tables over several of their axes, and additions along these, each table met once while it is at hand.

A row of `heads` is a table: where it is read, where it is written, its cells, and its first step and how many it has. A
row of `steps` is one of its axes: where its margin without the axis lies, the cells before the axis, its levels, the
cells after it, and where the groups of the levels are listed, or -1; with groups, the margin has them in its place.

Large tables are taken in blocks of their last axes: a block that was read once is at hand for all steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from blue_solvers.components.flat.axis_steps import sum_groups
from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

BLOCK = 16384  # cells at hand at once
SHORT = 8  # cells after an axis that are too few for a loop over them


def sum_together_in_numpy(values: Float, margins: Float, heads: Integers, steps: Integers, groups: Integers) -> None:
    """Set the margins of tables to their sums.

    Parameters
    ----------
    values : ndarray, (N, K)
        Where tables are read.
    margins : ndarray, (S, K)
        Where margins are written.
    heads : ndarray of int, (tables, 5)
    steps : ndarray of int, (rows, 5)
    groups : ndarray of int
        The groups of the levels of axes, one after the other, each after their number.
    """
    for source, _, cells, first, count in heads.tolist():
        for whole, margin, own in _axes(values[source : source + cells], margins, steps[first : first + count], groups):
            margin[...] = sum_groups(whole, own)


@compiled(reference=sum_together_in_numpy)
def sum_together(values: Float, margins: Float, heads: Integers, steps: Integers, groups: Integers) -> None:
    """See `sum_together_in_numpy`."""
    width, found, flat = values.shape[1], values.ravel(), margins.ravel()
    for row in range(heads.shape[0]):
        source, size, first = heads[row, 0] * width, heads[row, 2] * width, heads[row, 3]
        last = first + heads[row, 4]
        for step in range(first, last):
            parts = 1 if steps[step, 4] < 0 else groups[steps[step, 4]]
            start = steps[step, 0] * width
            for i in range(steps[step, 1] * parts * steps[step, 3] * width):
                flat[np.uint64(start + i)] = 0.0
        block = _block(steps, first, last, size)
        for start in range(0, size, block):
            for step in range(first, last):
                levels, after, listed = steps[step, 2], steps[step, 3] * width, steps[step, 4]
                parts, target = 1 if listed < 0 else groups[listed], steps[step, 0] * width
                if levels * after > block:
                    place = target + _beside(start, levels, after, listed, parts, groups)
                    for i in range(block):
                        flat[np.uint64(place + i)] += found[np.uint64(source + start + i)]
                    continue
                turn, stop = start // (levels * after), (start + block) // (levels * after)
                if listed >= 0:
                    _sum_groups(found, flat, source, target, turn, stop, levels, after, parts, listed, groups)
                elif after == 1:
                    _sum_rows(found, flat, source, target, turn, stop, levels)
                elif after < SHORT:
                    _sum_short(found, flat, source, target, turn, stop, levels, after)
                else:
                    _sum_long(found, flat, source, target, turn, stop, levels, after)


def _block(steps: Integers, first: int, last: int, size: int) -> int:
    """The most cells that may be taken at once: of every step either whole lines, or a part of one level."""
    block = size
    for step in range(first, last):
        own = size // steps[step, 1]
        if own < block if block > BLOCK else block < own <= BLOCK:
            block = own
    return block


def _beside(start: int, levels: int, after: int, listed: int, parts: int, groups: Integers) -> int:
    """Where in a margin the cells are that a part of one level goes to."""
    line, level = start // (levels * after), start // after % levels
    group = 0 if listed < 0 else groups[listed + 1 + level]
    return (line * parts + group) * after + start % after


def _sum_groups(
    found: Float,
    flat: Float,
    source: int,
    target: int,
    turn: int,
    stop: int,
    levels: int,
    after: int,
    parts: int,
    listed: int,
    groups: Integers,
) -> None:
    for b in range(turn, stop):
        for level in range(levels):
            line = np.uint64(source + (b * levels + level) * after)
            below = np.uint64(target + (b * parts + groups[listed + 1 + level]) * after)
            for i in range(np.uint64(after)):
                flat[below + i] += found[line + i]


def _sum_rows(found: Float, flat: Float, source: int, target: int, turn: int, stop: int, levels: int) -> None:
    """Of an axis without cells after it; four sums at once, none of which waits for another."""
    count, one, two, three, four = np.uint64(levels), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    whole = count // four * four
    for b in range(turn, stop):
        first = np.uint64(source + b * levels)
        sum0 = sum1 = sum2 = sum3 = 0.0
        cell = first
        while cell < first + whole:
            sum0 += found[cell]
            sum1 += found[cell + one]
            sum2 += found[cell + two]
            sum3 += found[cell + three]
            cell += four
        while cell < first + count:
            sum0 += found[cell]
            cell += one
        flat[np.uint64(target + b)] += (sum0 + sum1) + (sum2 + sum3)


def _sum_short(
    found: Float, flat: Float, source: int, target: int, turn: int, stop: int, levels: int, after: int
) -> None:
    for b in range(turn, stop):
        for i in range(after):
            cell, total = np.uint64(source + b * levels * after + i), 0.0
            for _ in range(levels):
                total += found[cell]
                cell += np.uint64(after)
            flat[np.uint64(target + b * after + i)] += total


def _sum_long(
    found: Float, flat: Float, source: int, target: int, turn: int, stop: int, levels: int, after: int
) -> None:
    for b in range(turn, stop):
        below, line = np.uint64(target + b * after), np.uint64(source + b * levels * after)
        for _ in range(levels):
            for i in range(np.uint64(after)):
                flat[below + i] += found[line + i]
            line += np.uint64(after)


def add_together_in_numpy(
    values: Float, cells: Float, margins: Float, heads: Integers, steps: Integers, groups: Integers
) -> None:
    """Copy tables, and add their margins to every level.

    Parameters
    ----------
    values : ndarray, (N, K)
        Where tables are read.
    cells : ndarray, (M, K)
        Where they are written.
    margins : ndarray, (S, K)
    heads, steps, groups : ndarray of int
        As of `sum_together_in_numpy`.
    """
    for source, target, size, first, count in heads.tolist():
        table = cells[target : target + size]
        table[...] = values[source : source + size]
        for whole, margin, own in _axes(table, margins, steps[first : first + count], groups):
            whole += margin[:, own]


@compiled(reference=add_together_in_numpy)
def add_together(
    values: Float, cells: Float, margins: Float, heads: Integers, steps: Integers, groups: Integers
) -> None:
    """See `add_together_in_numpy`."""
    width, found, flat, added = values.shape[1], values.ravel(), cells.ravel(), margins.ravel()
    for row in range(heads.shape[0]):
        source, target, size = heads[row, 0] * width, heads[row, 1] * width, heads[row, 2] * width
        first, last = heads[row, 3], heads[row, 3] + heads[row, 4]
        block = _block(steps, first, last, size)
        for start in range(0, size, block):
            for i in range(block):
                flat[np.uint64(target + start + i)] = found[np.uint64(source + start + i)]
            for step in range(first, last):
                levels, after, listed = steps[step, 2], steps[step, 3] * width, steps[step, 4]
                parts, origin = 1 if listed < 0 else groups[listed], steps[step, 0] * width
                if levels * after > block:
                    place = origin + _beside(start, levels, after, listed, parts, groups)
                    for i in range(block):
                        flat[np.uint64(target + start + i)] += added[np.uint64(place + i)]
                    continue
                turn, stop = start // (levels * after), (start + block) // (levels * after)
                if listed >= 0:
                    _add_groups(flat, added, target, origin, turn, stop, levels, after, parts, listed, groups)
                elif after == 1:
                    _add_rows(flat, added, target, origin, turn, stop, levels)
                elif after < SHORT:
                    _add_short(flat, added, target, origin, turn, stop, levels, after)
                else:
                    _add_long(flat, added, target, origin, turn, stop, levels, after)


def _add_groups(
    flat: Float,
    added: Float,
    target: int,
    origin: int,
    turn: int,
    stop: int,
    levels: int,
    after: int,
    parts: int,
    listed: int,
    groups: Integers,
) -> None:
    for b in range(turn, stop):
        for level in range(levels):
            line = np.uint64(target + (b * levels + level) * after)
            below = np.uint64(origin + (b * parts + groups[listed + 1 + level]) * after)
            for i in range(np.uint64(after)):
                flat[line + i] += added[below + i]


def _add_rows(flat: Float, added: Float, target: int, origin: int, turn: int, stop: int, levels: int) -> None:
    for b in range(turn, stop):
        first, part = np.uint64(target + b * levels), added[np.uint64(origin + b)]
        for i in range(np.uint64(levels)):
            flat[first + i] += part


def _add_short(
    flat: Float, added: Float, target: int, origin: int, turn: int, stop: int, levels: int, after: int
) -> None:
    for b in range(turn, stop):
        for i in range(after):
            cell, part = np.uint64(target + b * levels * after + i), added[np.uint64(origin + b * after + i)]
            for _ in range(levels):
                flat[cell] += part
                cell += np.uint64(after)


def _add_long(
    flat: Float, added: Float, target: int, origin: int, turn: int, stop: int, levels: int, after: int
) -> None:
    for b in range(turn, stop):
        below, line = np.uint64(origin + b * after), np.uint64(target + b * levels * after)
        for _ in range(levels):
            for i in range(np.uint64(after)):
                flat[line + i] += added[below + i]
            line += np.uint64(after)


def exchange_in_numpy(
    cells: Float, margins: Float, rows: Integers, groups: Integers, weights: Float, back: bool
) -> None:
    """Tell tables the means that margins have, or margins what they lack of the tables' means.

    Parameters
    ----------
    cells : ndarray, (S, K)
        The tables that margins belong to.
    margins : ndarray, (T, K)
        Sums over an axis.
    rows : ndarray of int, (margins, 6)
        Where the table lies, then as of steps.
    groups : ndarray of int
    weights : ndarray, (margins,)
    back : bool
        False adds the margin's mean times its weight to the table; True makes of the margin the mean of the table times
        its weight less its own.
    """
    for (table, place, before, levels, after, listed), weight in zip(rows.tolist(), weights.tolist(), strict=True):
        own = np.full(levels, 0) if listed < 0 else groups[listed + 1 : listed + 1 + levels]
        shares = 1 / np.bincount(own)
        size = before * shares.size * after
        margin = margins[place : place + size].reshape(before, shares.size, -1)
        whole = cells[table : table + size].reshape(margin.shape)
        if back:
            margin[...] = (weight * whole - margin) * shares[:, None]
        else:
            whole += margin * (weight * shares)[:, None]


@compiled(reference=exchange_in_numpy)
def exchange(cells: Float, margins: Float, rows: Integers, groups: Integers, weights: Float, back: bool) -> None:
    """See `exchange_in_numpy`."""
    width, flat, found = cells.shape[1], cells.ravel(), margins.ravel()
    for row in range(rows.shape[0]):
        levels, after, listed = rows[row, 3], rows[row, 4] * width, rows[row, 5]
        parts, size, turns = 1 if listed < 0 else groups[listed], levels, rows[row, 2]
        if parts == 1:
            after, turns = turns * after, 1
        for turn in range(turns):
            for group in range(parts):
                if listed >= 0:
                    size = 0
                    for level in range(levels):
                        size += groups[listed + 1 + level] == group
                share, start = 1 / size, (turn * parts + group) * after
                table, place = rows[row, 0] * width + start, rows[row, 1] * width + start
                if back:
                    for i in range(after):
                        own = weights[row] * flat[np.uint64(table + i)] - found[np.uint64(place + i)]
                        found[np.uint64(place + i)] = own * share
                else:
                    for i in range(after):
                        flat[np.uint64(table + i)] += weights[row] * share * found[np.uint64(place + i)]


def _axes(table: Float, margins: Float, steps: Integers, groups: Integers) -> Iterator[tuple[Float, Float, Integers]]:
    """Of every step the table, (before, levels, after), its margin, (before, groups, after), and the levels' groups."""
    for place, before, levels, after, listed in steps.tolist():
        own = np.zeros(levels, dtype=np.int64) if listed < 0 else groups[listed + 1 : listed + 1 + levels]
        size = before * after * (1 if listed < 0 else int(groups[listed]))
        yield (
            table.reshape(before, levels, -1),
            margins[place : place + size].reshape(before, size // before // after, -1),
            own,
        )

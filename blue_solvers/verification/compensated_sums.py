"""What a certificate adds up along the axes of tables, each in numpy and as a loop to be compiled.

Steps are those of `ClosedTables`. Sums over levels are compensated: nothing is lost but by rounding the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from blue_solvers.verification.weighed_noise import ROUNDING
from constraint_builders.arrays import Float, Index, Integers
from constraint_builders.compiled import compiled

Lists: TypeAlias = tuple[Integers, Integers, Integers, Float, Integers]  # see `walk_in_numpy`
FEW = 7  # cells of a row that are not worth lanes
TOGETHER = 64  # cells added one after another in a loop, before what was lost is put in its place


def take_parts_in_numpy(cells: Float, steps: Integers, squares: Float) -> None:
    """Move means over axes to the tables without them.

    Parameters
    ----------
    cells : ndarray, (S,)
        All tables; changed in place.
    steps : ndarray of int, (rows, 5)
        All of a table after all of those that have more variables.
    squares : ndarray, (rows,)
        Where to put the sum of the squared means of every step.
    """
    for row, (table, without) in enumerate(tables_of_steps(cells, steps)):
        levels = table.shape[1]
        means = 0.5 * (table[:, 0] + table[:, 1]) if levels == 2 else _sum(table[:, 1:], table[:, 0]) / levels
        table -= means[:, None]
        without += means
        squares[row] = (means**2).sum()


@compiled(reference=take_parts_in_numpy)
def take_parts(cells: Float, steps: Integers, squares: Float) -> None:
    """See `take_parts_in_numpy`: cells are (S,), steps (rows, 5), squares (rows,)."""
    for row in range(steps.shape[0]):
        start, without, before, levels, after = steps[row]
        table = cells[start : start + before * levels * after].reshape((before, levels, after))
        sums = cells[without : without + before * after].reshape((before, after))
        square = 0.0
        for b in range(before):
            for i in range(after):
                total, lost = 0.0, 0.0
                for level in range(levels):
                    total, lost = _add(total, lost, table[b, level, i])
                mean = (total + lost) / levels
                square += mean * mean
                sums[b, i] += mean
                for level in range(levels):
                    table[b, level, i] -= mean
        squares[row] = square


def spread_gaps_in_numpy(cells: Float, gaps: Float, steps: Integers) -> None:
    """How far tables are from some that agree and have every table's part from itself.

    Parameters
    ----------
    cells : ndarray, (S,)
        All tables.
    gaps : ndarray, (S,)
        Of all tables, 0 to begin with; changed in place.
    steps : ndarray of int, (rows, 5)
        All of a table after all of those that have fewer variables.
    """
    for (table, without), (gap, known) in zip(tables_of_steps(cells, steps), tables_of_steps(gaps, steps), strict=True):
        gap += ((_sum(table, -without) + known - gap.sum(axis=1)) / gap.shape[1])[:, None]


@compiled(reference=spread_gaps_in_numpy)
def spread_gaps(cells: Float, gaps: Float, steps: Integers) -> None:
    """See `spread_gaps_in_numpy`: cells and gaps are (S,), steps (rows, 5)."""
    for row in range(steps.shape[0]):
        start, without, before, levels, after = steps[row]
        table = cells[start : start + before * levels * after].reshape((before, levels, after))
        gap = gaps[start : start + before * levels * after].reshape((before, levels, after))
        sums = cells[without : without + before * after].reshape((before, after))
        known = gaps[without : without + before * after].reshape((before, after))
        for b in range(before):
            for i in range(after):
                total, lost = -sums[b, i], known[b, i]
                for level in range(levels):
                    total, lost = _add(total, lost, table[b, level, i])
                    lost -= gap[b, level, i]
                mean = (total + lost) / levels
                for level in range(levels):
                    gap[b, level, i] += mean


def _sum(table: Float, first: Float) -> Float:
    """Of the levels of a table, (before, levels, after), and what is given first, (before, after)."""
    total, lost = first, np.zeros_like(first)
    for level in range(table.shape[1]):
        total, lost = _add(total, lost, table[:, level])
    return total + lost


def _add(total: Any, lost: Any, term: Any) -> tuple[Any, Any]:
    """Sum and what it lost by rounding so far (Knuth's two-sum)."""
    sum_ = total + term
    part = sum_ - total
    return sum_, lost + ((total - (sum_ - part)) + (term - part))


def tables_of_steps(cells: Float, steps: Integers) -> Iterator[tuple[Float, Float]]:
    """Of every step the table, (before, levels, after), and the table without its axis, (before, after)."""
    for table, without, before, levels, after in steps.tolist():
        size = before * after
        yield (
            cells[table : table + size * levels].reshape(before, levels, after),
            cells[without : without + size].reshape(before, after),
        )


def _pairs(step: Integers, lists: Lists) -> tuple[Index, Index, Float]:
    """Of a step where each cell lies and the sum that it belongs to, and by how much it counts there, (pairs,) each."""
    _, starts, areas, weights, into = lists
    start, apart, rows, count, sums, wide, first, to = step.tolist()
    begins = starts[first : first + rows + 1] if first >= 0 and starts.size else np.arange(rows + 1)
    row, entries = np.repeat(np.arange(rows), np.diff(begins)), np.arange(begins[0], begins[-1])
    area, number = row if first < 0 else areas[entries], np.arange(count)
    weight = weights[entries] if first >= 0 and weights.size else np.ones(row.size)
    if to >= 0:
        run = max(-first, 1)
        number = np.add.outer(into[to : to + count // run], np.arange(run)).ravel()
    cells, places = np.add.outer(start + apart * row, np.arange(count)), np.add.outer(sums + wide * area, number)
    return cells.ravel(), places.ravel(), np.repeat(weight, count)


def walk_in_numpy(given: Float, lists: Lists, changed: Float, up: bool) -> None:
    """Add rows of cells to those of the areas that they are in, or if not `up` what is said of areas to these rows.

    What goes to one place is added two by two.

    Parameters
    ----------
    given : ndarray, (1 or 2, S)
        Blocks of rows, and what these lose by rounding; if not `up` what is said of areas.
    lists : (steps, starts, areas, weights, into)
        Integers, (steps, 8), of every block: where it starts, how far its rows are apart, how many rows and cells it
        has, where sums start, how far their rows are apart, and where rows are in `starts`, cells in `into`: -1 if each
        is its own area, cell. If each row is its own area, -r instead of -1 says that r cells at a time follow one
        another in the area too: `into` has the first of each r. The areas of every row, (rows + 1,) and (entries,), and
        by how much it counts there, (entries,); `starts` is empty where each row is in one, `weights` where each counts
        once. The area's cell that each is added to.
    changed : ndarray, (2, T)
        Sums, which are added to, and what they lose by rounding; may be what is given, of which later blocks are sums
        then. If not `up` the blocks of rows.
    up : bool
    """
    for step in lists[0]:
        cell, place, weight = _pairs(step, lists)
        if not up:
            cell, place = place, cell
        order = np.argsort(place, kind="stable")
        cell, place, weight = cell[order], place[order], weight[order]
        high = given[0, cell]
        low = given[1, cell] if len(given) > 1 else np.zeros(high.size)
        if (weight != 1.0).any():
            term = weight * high
            high, low = term, weight * low + _rest_of(term, weight, high)
        while (same := place[1:] == place[:-1]).any():
            first = np.flatnonzero(np.append(True, ~same))
            even = (np.arange(place.size) - np.repeat(first, np.diff(first, append=place.size))) % 2 == 0
            pair = np.flatnonzero(even[:-1] & same)
            high[pair], low[pair] = _plus(high[pair], low[pair] + low[pair + 1], high[pair + 1])
            high, low, place = high[even], low[even], place[even]
        changed[0, place], changed[1, place] = _plus(changed[0, place], changed[1, place] + low, high)


@compiled(reference=walk_in_numpy)
def walk(given: Float, lists: Lists, changed: Float, up: bool) -> None:
    """See `walk_in_numpy`: given is (1 or 2, S), changed (2, T)."""
    both = given.shape[0] > 1
    steps, starts, areas, weights, into = lists
    for step in range(steps.shape[0]):
        start, apart, rows, count, sums, wide, first, to = steps[step]
        run = -first
        for row in range(rows):
            begin = start + row * apart
            entry, last = row, row + 1
            if first >= 0 and starts.size > 0:
                entry, last = starts[first + row], starts[first + row + 1]
            for k in range(entry, last):
                weight, place, i = weights[k] if first >= 0 and weights.size > 0 else 1.0, sums, 0
                place += wide * (areas[k] if first >= 0 else k)
                while i < count and ((to < 0 and (up or count > FEW)) or run > 1):  # in lanes
                    j, size = i, count - i
                    if to >= 0:
                        j, size = into[to + i // run] + i % run, min(run - i % run, size)
                    source, target = (begin + i, place + j) if up else (place + j, begin + i)
                    _add_alike(given, source, weight, changed, target, size)
                    i += size
                while up and i < count:
                    j = into[to + i]
                    high, low, after = changed[0, place + j], changed[1, place + j], min(i + TOGETHER, count)
                    while i < after and into[to + i] == j:
                        term, rest = _product(weight, given[0, begin + i])
                        if both:
                            rest += weight * given[1, begin + i]
                        high, low = _add(high, low + rest, term)
                        i += 1
                    changed[0, place + j] = high + low
                    changed[1, place + j] = low - (changed[0, place + j] - high)
                for own in range(i, count):
                    source, at = place + (into[to + own] if to >= 0 else own), begin + own
                    term, rest = _product(weight, given[0, source])
                    if both:
                        rest += weight * given[1, source]
                    changed[0, at], changed[1, at] = _plus(changed[0, at], changed[1, at] + rest, term)


def _add_alike(cells: Float, begin: int, weight: float, total: Float, end: int, count: int) -> None:
    """Add so many cells, of (1 or 2, S), times a weight to sums, of (2, T)."""
    for part in range(cells.shape[0]):
        given, high, low = cells[part, begin : begin + count], total[0, end : end + count], total[1, end : end + count]
        for i in range(count):
            term, rest = _product(weight, given[i])
            high[i], low[i] = _plus(high[i], low[i] + rest, term)


def sum_rounding(count: int, width: int) -> float:
    """By how much a sum over so many rows and cells is off, beside the sum of sizes of all that is added."""
    return 4 * ROUNDING**2 * ((count + 4) * (width + 4) + TOGETHER**2)


def _product(weight: float, cell: float) -> tuple[float, float]:
    """A product, and what it loses by rounding (Dekker's)."""
    term = weight * cell
    return term, 0.0 if weight == 1.0 else _rest_of(term, weight, cell)


def _rest_of(term: Any, weight: Any, cell: Any) -> Any:
    """What a product lost by rounding."""
    a, b = 134217729.0 * weight, 134217729.0 * cell
    high, other = a - (a - weight), b - (b - cell)
    low, rest = weight - high, cell - other
    return ((high * other - term) + high * rest + low * other) + low * rest


def _plus(total: Any, lost: Any, term: Any) -> tuple[Any, Any]:
    """A sum of two doubles that do not overlap, and one more."""
    high, low = _add(total, lost, term)
    whole = high + low
    return whole, low - (whole - high)

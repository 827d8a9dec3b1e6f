"""What a certificate adds up along the axes of tables, each in numpy and as a loop to be compiled.

Steps are those of `ClosedTables`. Sums over levels are compensated: nothing is lost but by rounding the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled


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
    for row, (table, without) in enumerate(_tables(cells, steps)):
        means = _sum(table, np.zeros_like(without)) / table.shape[1]
        table -= means[:, None]
        without += means
        squares[row] = (means**2).sum()


@compiled(reference=take_parts_in_numpy)
def take_parts(cells: Float, steps: Integers, squares: Float) -> None:
    """See `take_parts_in_numpy`."""
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
    for (table, without), (gap, known) in zip(_tables(cells, steps), _tables(gaps, steps), strict=True):
        gap += ((_sum(table, -without) + known - gap.sum(axis=1)) / gap.shape[1])[:, None]


@compiled(reference=spread_gaps_in_numpy)
def spread_gaps(cells: Float, gaps: Float, steps: Integers) -> None:
    """See `spread_gaps_in_numpy`."""
    for row in range(steps.shape[0]):
        start, without, before, levels, after = steps[row]
        table = cells[start : start + before * levels * after].reshape((before, levels, after))
        gap = gaps[start : start + before * levels * after].reshape((before, levels, after))
        sums = cells[without : without + before * after].reshape((before, after))
        known = gaps[without : without + before * after].reshape((before, after))
        for b in range(before):
            for i in range(after):
                total, lost, own = -sums[b, i], 0.0, 0.0
                for level in range(levels):
                    total, lost = _add(total, lost, table[b, level, i])
                    own += gap[b, level, i]
                share = (total + lost + known[b, i] - own) / levels
                for level in range(levels):
                    gap[b, level, i] += share


def _sum(table: Float, first: Float) -> Float:
    """Of the levels of a table and what is given first."""
    total, lost = first, np.zeros_like(first)
    for level in range(table.shape[1]):
        total, lost = _add(total, lost, table[:, level])
    return total + lost


def _add(total: Any, lost: Any, term: Any) -> tuple[Any, Any]:
    """Sum and what it lost by rounding so far (Knuth's two-sum)."""
    sum_ = total + term
    part = sum_ - total
    return sum_, lost + ((total - (sum_ - part)) + (term - part))


def _tables(cells: Float, steps: Integers) -> Iterator[tuple[Float, Float]]:
    """Of every step the table, (before, levels, after), and the table without its axis, (before, after)."""
    for table, without, before, levels, after in steps.tolist():
        size = before * after
        yield (
            cells[table : table + size * levels].reshape(before, levels, after),
            cells[without : without + size].reshape(before, after),
        )

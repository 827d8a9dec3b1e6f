"""The operations of the two sweeps over tables of any shapes, and what they do, in numpy.

A row of a list of operations says what is done, where two tables lie, the cells before an axis, its levels, the cells
after it, and where the cells that its levels go to are listed, -1 for a single one. Neighbouring axes that are kept or
summed out together are one axis.

`MOVE` takes means from a table to a coarser one going up, and puts the coarser one in their place going down. Several
axes apart take the same in parts: `REDUCE` along one axis after the other, `LAND`, `EXPAND` back, and `PUT` into the
table; `ADD` is `PUT` without a change of sign. Going down is the transpose of going up, but for a factor that what
comes to the coarser table is multiplied by. Going up alone, `READ` adds to the levels of a table what a table of values
has, times the factor, and `WRITE` puts it there. The finer table of `SUM` is one of values: going down its sums are
written to the coarser one, going up what that has is added to all that it sums.
"""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Float, Integers

MOVE, REDUCE, LAND, EXPAND, PUT, ADD, SUM, READ, WRITE = KINDS = range(9)


def operate(cells: Float, row: list[int], lists: Integers, factor: float, values: Float, upwards: bool) -> None:
    """One operation, in place in (S, K), going up or down; see `go_up_in_numpy`."""
    kind = row[0]
    fine, coarse, own = tables_of(values if kind == SUM else cells, row, lists, values if kind >= READ else cells)
    shares = (1 / np.bincount(own))[:, None]
    above, below = (shares, 1.0) if upwards else (1.0, shares)
    if kind == REDUCE or (kind == SUM and not upwards):
        coarse[:] = sums(fine, own, coarse.shape[1]) * above
    elif kind == EXPAND:
        fine[:] = (coarse * below)[:, own]
    elif kind == LAND and upwards:
        coarse += factor * fine
    elif kind == LAND:
        fine[:] = coarse - fine
    elif kind == MOVE:
        total = sums(fine, own, coarse.shape[1])
        rest = -total * shares if upwards else (coarse - total) * shares
        coarse -= factor * rest if upwards else 0.0
        fine += rest[:, own]
    elif kind >= READ:
        fine[:] = (fine if kind == READ else 0.0) + (factor * coarse)[:, own]
    else:
        fine += (-coarse if upwards and kind == PUT else coarse * below)[:, own]


def tables_of(cells: Float, row: list[int], lists: Integers, others: Float) -> tuple[Float, Float, Integers]:
    """The table of an operation, (before, levels, after), the coarser of others, (before, cells, after), the list."""
    _, start, without, before, levels, after, listed, *_ = row
    count, own = 1, np.zeros(levels, dtype=np.intp)
    if listed >= 0:
        count, own = int(lists[listed]), lists[listed + 1 : listed + 1 + levels]
    fine = cells[start : start + before * levels * after].reshape(before, levels, -1)
    return fine, others[without : without + before * count * after].reshape(before, count, -1), own


def sums(table: Float, own: Integers, count: int) -> Float:
    """Of (before, levels, after) over the levels that go to each of so many cells, (before, cells, after)."""
    if count == 1:
        return table.sum(axis=1, keepdims=True)
    found = np.zeros((table.shape[0], count, table.shape[2]))
    for level, cell in enumerate(own.tolist()):
        found[:, cell] += table[:, level]
    return found

"""Sums over the children of every parent, in extended precision: in numpy, and as a loop to be compiled."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from constraint_builders.arrays import Float, Index, Long
from constraint_builders.compiled import compiled

RUN = 16  # children added one after another: what is lost grows with these, and with the number of such runs


def family_sums(cells: Float | Long, starts: Index, compile_it: bool) -> Long:
    """(children, cells) summed to (parents, cells).

    Parameters
    ----------
    cells : ndarray, (children, cells)
        Those of one parent follow one another.
    starts : ndarray of int, (parents,)
        First child of each.
    compile_it : bool
        Whether it is worth a compiled loop.
    """
    if not compile_it or cells.dtype != np.float64:
        return _long_sums(cells, starts)
    total, lost = np.zeros((2, starts.size, cells.shape[1]))
    add_families.fastest()(np.asarray(cells, dtype=np.float64), np.append(starts, len(cells)), total, lost)
    return np.add(total, lost, dtype=np.longdouble)


def add_families_in_numpy(cells: Float, bounds: Index, total: Float, lost: Float) -> None:
    """Sum over the children of every parent.

    Parameters
    ----------
    cells : ndarray, (children, cells)
    bounds : ndarray of int, (parents + 1,)
        First child of each, and the end of the last.
    total, lost : ndarray, (parents, cells)
        Zeros; where to put the sums, and what was lost by rounding these.
    """
    sums = _long_sums(cells, bounds[:-1])
    total[:] = sums
    lost[:] = sums - total


@compiled(reference=add_families_in_numpy)
def add_families(cells: Float, bounds: Index, total: Float, lost: Float) -> None:
    """See `add_families_in_numpy`; Knuth's two-sum, whose own rounding is of the second order."""
    for family in range(bounds.size - 1):
        sums, gone = total[family], lost[family]
        for child in range(bounds[family], bounds[family + 1]):
            row = cells[child]
            for i in range(row.size):
                before, term = sums[i], row[i]
                after = before + term
                part = after - before
                gone[i] += (before - (after - part)) + (term - part)
                sums[i] = after
        for i in range(sums.size):
            whole = sums[i] + gone[i]
            gone[i] -= whole - sums[i]
            sums[i] = whole


def _long_sums(cells: Float | Long, starts: Index) -> Long:
    """In two steps: fewer roundings of every figure."""
    families = pairwise([*starts.tolist(), len(cells)])
    runs = np.concatenate([np.arange(first, stop, RUN) for first, stop in families])
    pieces = pairwise([*runs.tolist(), len(cells)])
    added = np.stack([cells[first:stop].sum(axis=0, dtype=np.longdouble) for first, stop in pieces])
    return np.add.reduceat(added, np.searchsorted(runs, starts), axis=0)

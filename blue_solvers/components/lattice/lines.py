"""Components whose tables see groups of variables, as lines of cells that one small matrix mixes, for all contrasts.

A line is what one table has for one set of groups: its start, and how far apart its cells are along every outer axis of
contrasts; cells of the inner axis lie side by side. A row of `heads` is a component: its first line, how many it has,
the inner axis' cells, and where its matrix, (lines, lines), starts; a row of `outer` the outer axes' cells.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from constraint_builders.arrays import Float, Integers
from constraint_builders.compiled import compiled

STRIP = 64  # cells of every line that are held at once
MANY = 24  # lines from which on a library's product takes less time; below loops take 0.3 of its time


def mix_lines_in_numpy(
    cells: Float, heads: Integers, outer: Integers, lines: Integers, matrices: Float, transpose: bool
) -> None:
    """Replace the lines of every component by sums of them all, weighted by its matrix.

    Parameters
    ----------
    cells : ndarray, (S, K)
        All tables, one after the other; changed in place.
    heads : ndarray of int, (components, 4)
    outer : ndarray of int, (components, axes)
    lines : ndarray of int, (lines, 1 + axes)
    matrices : ndarray
        One after the other.
    transpose : bool
        Whether to take their transposes.
    """
    for (first, count, inner, start), lengths in zip(heads.tolist(), outer, strict=True):
        own, matrix = lines[first : first + count], matrices[start : start + count**2].reshape(count, count)
        steps = own[:, 1:] @ np.indices(lengths).reshape(len(lengths), lengths.prod())
        places = (own[:, :1] + steps)[:, :, None] + np.arange(inner)
        cells[places] = np.tensordot(matrix.T if transpose else matrix, cells[places], 1)


@compiled(reference=mix_lines_in_numpy)
def mix_lines(
    cells: Float, heads: Integers, outer: Integers, lines: Integers, matrices: Float, transpose: bool
) -> None:
    """See `mix_lines_in_numpy`."""
    flat, width, most = cells.ravel(), cells.shape[1], 0
    for row in range(heads.shape[0]):
        most = max(most, heads[row, 1])
    held, mixed, places = np.empty((most, STRIP)), np.empty((most, STRIP)), np.empty(most, np.int64)
    for row in range(heads.shape[0]):
        first, count, size, start, turns = heads[row, 0], heads[row, 1], heads[row, 2] * width, heads[row, 3], 1
        square = matrices[start : start + count * count].reshape((count, count))
        if transpose:
            square = square.T.copy()
        for axis in range(outer.shape[1]):
            turns *= outer[row, axis]
        for turn in range(turns):
            for line in range(count):
                place, rest = lines[first + line, 0], turn
                for axis in range(outer.shape[1] - 1, -1, -1):
                    place += rest % outer[row, axis] * lines[first + line, 1 + axis]
                    rest //= outer[row, axis]
                places[line] = place * width
            for strip in range(0, size, STRIP):
                length = min(STRIP, size - strip)
                before, after = held, mixed
                if count >= MANY:
                    before = held.ravel()[: count * length].reshape((count, length))
                    after = mixed.ravel()[: count * length].reshape((count, length))
                for line in range(count):
                    own, kept = flat[places[line] + strip : places[line] + strip + length], before[line]
                    for i in range(length):
                        kept[i] = own[i]
                if count >= MANY:
                    np.dot(square, before, after)
                else:
                    _multiply(square, before, after, length)
                for line in range(count):
                    own, kept = flat[places[line] + strip : places[line] + strip + length], after[line]
                    for i in range(length):
                        own[i] = kept[i]


def _multiply(square: Float, before: Float, after: Float, length: int) -> None:
    for line in range(square.shape[0]):
        own = after[line]
        for i in range(length):
            own[i] = 0.0
        for other in range(square.shape[0]):
            weight, kept = square[line, other], before[other]
            if weight != 0:
                for i in range(length):
                    own[i] += weight * kept[i]


def component_lines(contrasts: Sequence[int], steps: Integers) -> tuple[Integers, list[int], int]:
    """The steps of a component's tables along its outer axes, (tables, axes), these axes' lengths, and the inner one's.

    Parameters
    ----------
    contrasts : sequence of int
        Lengths of the axes of contrasts, in the order in which all tables have them.
    steps : ndarray of int, (tables, contrasts)
    """
    lengths: list[int] = []
    kept: list[int] = []
    for axis, length in enumerate(contrasts):
        if kept and (steps[:, kept[-1]] == length * steps[:, axis]).all():
            length *= lengths.pop()
            kept.pop()
        lengths.append(length)
        kept.append(axis)
    inner = lengths.pop() if kept and (steps[:, kept[-1]] == 1).all() else 1
    return steps[:, kept[: len(lengths)]], lengths, inner

"""Which rows of a file are read at once, and which of these are worked on at once, so that nothing is read twice.

A slice of a row group costs decoding all of it. So whole row groups are read, several of them where they are small; one
that is larger than may be held is cut into slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from constraint_builders.arrays import Index


@dataclass(frozen=True)
class AtOnce:
    """How many cells of a file may be in memory.

    Attributes
    ----------
    worked, held : int
        As arrays, and of one row group as it was decoded. A row may have more.
    """

    worked: int
    held: int


def read_windows(heights: Sequence[int], widths: Index, start: int, at_once: AtOnce) -> Iterator[tuple[int, int]]:
    """First rows and ends of what is read at once, one after another.

    Parameters
    ----------
    heights : sequence of int
        Rows of every row group of the file.
    widths : ndarray of int, (rows,)
        Cells of rows that follow one another.
    start : int
        The first of them.
    at_once : AtOnce
    """
    ends = np.cumsum(heights) - start
    bounds = [0, *(int(end) for end in ends if 0 < end < widths.size), widths.size]
    first = 0
    for begin, end in pairwise(bounds):
        if widths[first:end].sum() <= at_once.worked:
            continue  # one more row group
        if first < begin:
            yield start + first, start + begin
            first = begin
        if widths[first:end].sum() > at_once.worked:
            yield from ((start + first + a, start + first + b) for a, b in cuts(widths[first:end], at_once.held))
            first = end
    if first < widths.size:
        yield start + first, start + widths.size


def cuts(widths: Index, most: int) -> Iterator[tuple[int, int]]:
    """Runs of rows of at most so many cells, or of one row."""
    ends, first = np.cumsum(widths), 0
    while first < widths.size:
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield first, end
        first = end

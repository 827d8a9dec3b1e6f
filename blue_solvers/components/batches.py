"""Cutting geounits into batches."""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Index


def as_slice(rows: Index) -> slice | Index:
    """Consecutive rows as a slice, which copies nothing."""
    return slice(int(rows[0]), int(rows[-1]) + 1) if (np.diff(rows) == 1).all() else rows


def chunks(stop: int, size: int, start: int = 0) -> list[slice]:
    """Consecutive slices of equal size from `start` to `stop`."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def distinct(numbers: Index) -> tuple[Index, Index]:
    """Distinct numbers in order, and the place of every number among them; nothing is sorted that is in order."""
    steps = np.diff(numbers)
    if (steps >= 0).all():
        new = np.concatenate([np.ones(min(numbers.size, 1), dtype=np.intp), steps > 0])
        return numbers[new > 0], np.cumsum(new) - 1
    values, places = np.unique(numbers, return_inverse=True)
    return values, places


def one_or_all(entries: Index) -> slice | Index:
    """A single entry where all are the same."""
    if entries.size and (entries == entries[0]).all():
        return slice(int(entries[0]), int(entries[0]) + 1)
    return entries

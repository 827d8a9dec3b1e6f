"""Cutting geounits into batches."""

from __future__ import annotations

import numpy as np

from constraint_builders.arrays import Index


def chunks(stop: int, size: int, start: int = 0) -> list[slice]:
    """Consecutive slices of equal size from `start` to `stop`."""
    return [slice(first, min(first + size, stop)) for first in range(start, stop, size)]


def distinct(numbers: Index) -> tuple[Index, Index]:
    """Distinct numbers in order, and the place of every number among them; nothing is sorted that is in order."""
    if (numbers[1:] >= numbers[:-1]).all():
        new = np.concatenate([np.ones(min(numbers.size, 1), dtype=bool), numbers[1:] != numbers[:-1]])
        if new.all():
            return numbers, np.arange(numbers.size)
        places = np.cumsum(new, dtype=np.intp)
        places -= 1
        return numbers[new], places
    values, places = np.unique(numbers, return_inverse=True)
    return values, places


def starts_of(places: Index, count: int) -> Index:
    """Where each of `count` places begins in a list that is in order, and its end, (count + 1,)."""
    starts = np.zeros(count + 1, dtype=np.intp)
    np.cumsum(np.bincount(places, minlength=count), out=starts[1:])
    return starts


def one_or_all(entries: Index) -> slice | Index:
    """A single entry where all are the same."""
    if entries.size and (entries == entries[0]).all():
        return slice(int(entries[0]), int(entries[0]) + 1)
    return entries

"""Distinct whole numbers, by counting where they lie close together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Int32

APART = 4  # times as many numbers in their range: beyond, they are sorted


def distinct_numbers(numbers: NDArray[Any]) -> tuple[NDArray[Any], Int32]:
    """The distinct ones of some whole numbers, or truth values, in order, and the place of each among them.

    Nothing is sorted where the numbers lie close together.
    """
    if numbers.size and numbers.dtype.kind != "b":
        low, high = int(numbers.min()), int(numbers.max())
        if high - low <= APART * numbers.size:
            from_low = numbers if low == 0 else np.subtract(numbers, low, dtype=_wide(numbers.dtype))
            places = from_low.astype(np.int32)
            occurs = np.zeros(high - low + 1, dtype=bool)
            occurs[places] = True
            found = np.flatnonzero(occurs).astype(numbers.dtype) + numbers.dtype.type(low)
            if found.size == occurs.size:
                return found, places
            rank = np.cumsum(occurs, dtype=np.int32)
            rank -= 1
            return found, rank[places]
    found, inverse = np.unique(numbers, return_inverse=True)
    return found, inverse.astype(np.int32)


def _wide(kind: np.dtype[Any]) -> type[np.signedinteger[Any]] | np.dtype[Any]:
    """Whole numbers in which differences of such do not overflow."""
    return kind if kind.itemsize == 8 else np.int64

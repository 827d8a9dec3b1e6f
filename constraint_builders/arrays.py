"""Names of the arrays that everything is made of, rows of one without a copy, orders, and what is distinct."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy import sparse

Float = NDArray[np.float64]
Long = NDArray[np.longdouble]
Index = NDArray[np.intp]
Integers = NDArray[np.int64]
Int32 = NDArray[np.int32]
Flags = NDArray[np.bool_]
APART = 4  # times as many numbers in their range: beyond, they are sorted


def as_slice(rows: Index) -> slice | Index:
    """Consecutive rows, (k,), as a slice, which copies nothing; others as they are."""
    consecutive = rows.size and rows[-1] - rows[0] == rows.size - 1 and (rows[1:] > rows[:-1]).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, (...), in an array that may not be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def not_read_only(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers, (...), in an array of the type of those that may be written to, for loops that only read them.

    So one loop is compiled for both, where each has its own memory.
    """
    if values.flags.writeable:
        return values
    said = dict(values.__array_interface__, data=(values.ctypes.data, False))
    return np.asarray(SimpleNamespace(__array_interface__=said, owner=values))


def inverse_order(order: Index | slice, size: int) -> Index:
    """Where each of so many cells stands in an order of all of them, (size,)."""
    places = np.empty(size, dtype=np.intp)
    places[order] = np.arange(size)
    return places


def distinct_numbers(numbers: NDArray[Any]) -> tuple[NDArray[Any], Int32]:
    """The distinct ones of some whole numbers, or truth values, (n,), in order, and the place of each among them, (n,).

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


def kinds_of_rows(matrix: sparse.csr_array | sparse.csc_array) -> Index:
    """For every row, (n,), of a matrix, (n, k), the number of its kind: those of one hold the same.

    Of a matrix that is stored by columns, (k, n), for every column. Kinds are numbered as they first come; the entries
    of the matrix are put in order.
    """
    matrix.sort_indices()
    rows = matrix if matrix.format == "csr" else matrix.T
    keys = rows @ np.random.default_rng(0).standard_normal(rows.shape[1])  # the same of rows that hold the same
    first, kinds = np.unique(keys, return_index=True, return_inverse=True)[1:]
    like = rows[first[kinds]]
    if all(np.array_equal(getattr(rows, own), getattr(like, own)) for own in ("indptr", "indices", "data")):
        return np.argsort(np.argsort(first))[kinds]
    number: dict[bytes, int] = {}
    found = np.empty(matrix.indptr.size - 1, dtype=np.intp)
    for row, (start, stop) in enumerate(pairwise(matrix.indptr.tolist())):
        held = matrix.indices[start:stop].tobytes() + matrix.data[start:stop].tobytes()
        found[row] = number.setdefault(held, len(number))
    return found


def _wide(kind: np.dtype[Any]) -> type[np.signedinteger[Any]] | np.dtype[Any]:
    """Whole numbers in which differences of such do not overflow."""
    return kind if kind.itemsize == 8 else np.int64

"""Names of the arrays that everything is made of, and rows of one without a copy."""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Long = NDArray[np.longdouble]
Index = NDArray[np.intp]
Integers = NDArray[np.int64]
Int32 = NDArray[np.int32]
Flags = NDArray[np.bool_]


def as_slice(rows: Index) -> slice | Index:
    """Consecutive rows as a slice, which copies nothing."""
    consecutive = rows.size and rows[-1] - rows[0] == rows.size - 1 and (rows[1:] > rows[:-1]).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if consecutive else rows

"""What a description consists of, and when two are the same: of arrays too, which have no one answer to ``==``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse


class Described:
    """A description, of which what is worked out when asked for is no part: pickles and copies are as if never used."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }


def equal(first: Any, second: Any) -> bool:
    """Whether two values of a field are equal; NaN equals NaN."""
    if first is second:
        return True
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    if sparse.issparse(first) and sparse.issparse(second):
        return first.shape == second.shape and (first != second).nnz == 0
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(equal, first, second))
    return type(first) is type(second) and bool(np.all(first == second))

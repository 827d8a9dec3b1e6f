"""What a description consists of, and when two are the same: of arrays too, which have no one answer to ``==``."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

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


class Compared:
    """Equal where the attributes of `_same_in` are; hashed by those of `_hashed_by`, arrays by their shapes."""

    _same_in: ClassVar[tuple[str, ...]]
    _hashed_by: ClassVar[tuple[str, ...]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return self is other or all(equal(getattr(self, name), getattr(other, name)) for name in self._same_in)

    def __hash__(self) -> int:
        found = [getattr(self, name) for name in self._hashed_by]
        return hash(tuple(getattr(own, "shape", own) for own in found))


def equal(first: Any, second: Any) -> bool:
    """Whether two values of a field are equal; NaN equals NaN."""
    if first is second:
        return True
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    if sparse.issparse(first) and sparse.issparse(second):
        return first.shape == second.shape and (first != second).nnz == 0
    if isinstance(first, tuple) and isinstance(second, tuple) and any(hasattr(own, "dtype") for own in first[:2]):
        return len(first) == len(second) and all(map(equal, first, second))
    same = type(first) is type(second) and first == second  # of names too, millions of them perhaps
    return same if isinstance(same, bool) else bool(np.all(same))

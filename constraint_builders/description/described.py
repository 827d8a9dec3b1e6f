"""What a description consists of."""

from __future__ import annotations

from functools import cached_property
from typing import Any


class Described:
    """A description, of which what is worked out when asked for is no part: pickles and copies are as if never used."""

    def __getstate__(self) -> dict[str, Any]:
        kind = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(kind, name, None), cached_property)
        }

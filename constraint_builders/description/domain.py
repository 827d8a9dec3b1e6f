"""What tables count: every combination of a schema's levels, at every geounit of a spine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from constraint_builders.arrays import Index
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine


@dataclass(frozen=True)
class Domain:
    """The kinds and the places that tables are about.

    Attributes
    ----------
    schema : Schema
    spine : Spine
        With one geounit where a problem has none.
    """

    schema: Schema
    spine: Spine

    @cached_property
    def leaves(self) -> Index:
        """The geounits without children, of which detailed cells are kept apart."""
        return np.flatnonzero(self.spine.child_counts == 0)

    @property
    def size(self) -> int:
        """Number of detailed cells of all leaves."""
        return self.leaves.size * prod(self.schema.shape)

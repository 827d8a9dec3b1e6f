"""What tables count: every combination of a schema's levels, at every geounit of a spine or in every area."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from constraint_builders.arrays import Index
from constraint_builders.description.areas import Areas
from constraint_builders.description.schema import Schema
from constraint_builders.description.spine import Spine
from constraint_builders.description.spine_or_areas import Places


class OtherPlacesError(ValueError):
    """A tree of geounits is needed, and a problem has areas, or the other way round."""


@dataclass(frozen=True)
class Domain:
    """The kinds and the places that tables are about.

    Attributes
    ----------
    schema : Schema
    places : Spine or Areas
        A spine of one geounit where a problem has none.
    """

    schema: Schema
    places: Places

    @property
    def spine(self) -> Spine:
        """The tree of geounits.

        Raises
        ------
        OtherPlacesError
            For a problem of areas.
        """
        if not isinstance(self.places, Spine):
            raise OtherPlacesError(
                "a problem of areas has no spine: this needs a tree of geounits, Problem(..., spine=)"
            )
        return self.places

    @property
    def areas(self) -> Areas:
        """The areas.

        Raises
        ------
        OtherPlacesError
            For a problem of geounits.
        """
        if not isinstance(self.places, Areas):
            raise OtherPlacesError("a problem of geounits has no areas: this needs Problem(..., areas=)")
        return self.places

    @cached_property
    def leaves(self) -> Index:
        """The places that hold no others, of which detailed cells are kept apart."""
        if isinstance(self.places, Spine):
            return np.flatnonzero(self.places.child_counts == 0)
        return self.places.members[-1]

    @property
    def size(self) -> int:
        """Number of detailed cells of all leaves."""
        return self.leaves.size * prod(self.schema.shape)

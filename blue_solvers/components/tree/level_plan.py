"""The geounits of one geolevel, as a plan has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from constraint_builders.arrays import Flags, Float, Index
from constraint_builders.description.table import Table


@dataclass
class LevelPlan:
    """The geounits of one geolevel.

    Attributes
    ----------
    members : ndarray of int, (G,)
    tables : list of (block of the observed layout, Table)
    weights : list of ndarray (G,)
        Precision of each table in each geounit; 0 where exact or not measured.
    exact : list of ndarray of bool (G,)
    inner : ndarray of int
        Which members have children.
    zeros : ndarray of bool, (G, ...), or None
        Empty cells over the variables that tell them apart.
    first_class, class_count : int
        Its classes, one after the other.
    class_of : ndarray of int, (G,)
    leaf_classes, inner_classes : ndarray of int
        Classes of members without children, and with.
    parent_pair : ndarray of int, (G,)
        For every member its pair with its parent; -1 at the root.
    """

    members: Index
    tables: list[tuple[int, Table]]
    weights: list[Float]
    exact: list[Flags]
    inner: Index
    zeros: Flags | None
    first_class: int = 0
    class_count: int = 0
    class_of: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    leaf_classes: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    inner_classes: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    parent_pair: Index = field(default_factory=lambda: np.zeros(0, np.intp))

    @cached_property
    def has_exact(self) -> bool:
        """Whether anything is known exactly in any geounit."""
        return self.zeros is not None or any(flags.any() for flags in self.exact)

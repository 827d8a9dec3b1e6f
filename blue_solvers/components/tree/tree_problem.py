"""What the two passes read of a problem: a `Problem` has it, and so has the problem of a part of a tree."""

from __future__ import annotations

from typing import Protocol

from constraint_builders import Schema
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout
from constraint_builders.description.levelled_tree import LevelledTree
from constraint_builders.description.table import Table
from constraint_builders.description.zeros import EmptyCells


class TreeProblem(Protocol):
    """Tables at geounits, with one variance for every table of a geounit; see `Problem` for the attributes."""

    @property
    def schema(self) -> Schema | None: ...
    @property
    def spine(self) -> LevelledTree | None: ...
    @property
    def zeros(self) -> EmptyCells | None: ...
    @property
    def observed(self) -> Layout: ...
    @property
    def observed_tables(self) -> tuple[Table, ...]: ...
    @property
    def observed_levels(self) -> tuple[int, ...]: ...
    @property
    def geounit_variances(self) -> list[Float] | None: ...
    @property
    def desired(self) -> Layout: ...
    @property
    def desired_tables(self) -> tuple[Table, ...]: ...
    @property
    def desired_levels(self) -> tuple[int, ...]: ...

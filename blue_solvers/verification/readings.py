"""Single measurements that something is said of: one for each observed cell, or for each source that measured it."""

from __future__ import annotations

import numpy as np

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Name
from constraint_builders.description.source_values import SourceValues


class Readings:
    """What positions among N measurements mean: those of n observed cells, where sources are not told apart.

    Attributes
    ----------
    problem : Problem
    y : ndarray, (n,)
    sources : SourceValues or None
    """

    problem: Problem
    y: Float
    sources: SourceValues | None

    @property
    def values(self) -> Float:
        """What was measured, (N,)."""
        return self.y if self.sources is None else self.sources.values

    @property
    def variances(self) -> Float:
        """Of the noise in it, (N,)."""
        return self.problem.variances if self.sources is None else self.sources.variances

    def cell(self, position: int) -> int:
        """The cell of a measurement, as a position in the observed layout."""
        return position if self.sources is None else int(self.sources.cell[position])

    def source(self, position: int) -> str:
        """Who measured, where several did."""
        return "" if self.sources is None else self.sources.names[self.sources.source[position]]

    def describe(self, position: int) -> str:
        """Name a measurement for a message: its table, cell and source."""
        source = self.source(position)
        return self.problem.observed.describe(self.cell(position)) + (f", source {source!r}" if source else "")

    def of_table(self, name: Name) -> Index:
        """Positions of the measurements of an observed table."""
        cells = self.problem.observed.slice(name)
        if self.sources is None:
            return np.arange(cells.start, cells.stop)
        return np.flatnonzero((self.sources.cell >= cells.start) & (self.sources.cell < cells.stop))

    def over_cells(self, values: Float) -> Float:
        """Values of the measurements, (N,), added up for every observed cell, (n,)."""
        if self.sources is None:
            return values
        return np.bincount(self.sources.cell, values, self.y.size).astype(float)

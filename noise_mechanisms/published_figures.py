"""The figures that were published of a problem's cells, each by itself: several of one cell where sources copied it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from noise_mechanisms.laws import PublishedCount


@dataclass(frozen=True)
class PublishedFigures:
    """Figures, and the cells whose counts they were published of.

    Attributes
    ----------
    law : PublishedCount
    cell : ndarray of int, (k,)
        Positions in the observed layout; those of exact and unmeasured cells are left out.
    values : ndarray, (k,)
        The figures as they were published.
    """

    law: PublishedCount
    cell: Index
    values: Float

    @classmethod
    def of(cls, problem: Problem, y: Float) -> PublishedFigures:
        """Those of measurements, (n,), as they were published; of cells of several sources those of each.

        Raises
        ------
        ValueError
            If the noise of the problem has no such law, or is correlated.
        """
        law = problem.noise.law
        if not isinstance(law, PublishedCount):
            raise ValueError(
                f"the noise of this problem is {law!r}: declare what was rounded or perturbed by its law, such as "
                "Problem(schema, {'total': RandomRounding(3)})"
            )
        if problem.noise.covariance is not None:
            raise ValueError("figures that are published by themselves have noise that is not correlated")
        noisy, sources = ~(problem.exact | problem.unmeasured), problem.sources_of(y)
        if sources is None:
            cell = np.flatnonzero(noisy)
            return cls(law, cell, y[cell])
        kept = noisy[sources.cell] & (sources.variances > 0)
        return cls(law, sources.cell[kept], sources.values[kept])

    @classmethod
    def read(cls, problem: Problem, y: ArrayLike) -> tuple[Float, PublishedFigures]:
        """Measurements as a vector, (n,), and their figures, as `of`.

        Raises
        ------
        ValueError
            As `of`; or if y has another shape, or holds what no table can hold or no count leads to.
        """
        values = problem.observed.one_vector(y, "y")
        figures = cls.of(problem, values)
        problem.check_vector(values)
        return values, figures

    def limits(self, size: int) -> tuple[Float, Float]:
        """The least and largest count of every cell of a layout, (size,), that all its figures may be published of."""
        return self.law.limits_of_cells(self.cell, self.values, size)

    def log_probabilities(self, starts: Index, counts: Float) -> Float:
        """Of all figures of every cell, given counts of it, (N,): those of a cell begin at `starts`, (size + 1,)."""
        found = np.zeros(counts.size)
        sizes = np.diff(starts)[self.cell]
        which = np.repeat(np.arange(self.cell.size), sizes)
        place = starts[self.cell[which]] + np.arange(which.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        np.add.at(found, place, self.law.log_probability(self.values[which], counts[place]))
        return found

"""Figures that stand in several tables: measurements of their own, or copies of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc

from constraint_builders import Problem
from constraint_builders.arrays import Float
from noise_mechanisms.laws import PublishedCount
from noise_mechanisms.published_figures import PublishedFigures

SURE = 1e-6  # probability below which what was seen is no chance
COPIES, OWN, UNSURE = "copies of one measurement", "measurements of their own", "cannot be told"


@dataclass(frozen=True)
class RepeatedFigures:
    """How often figures of one cell that stand in several tables are the same.

    Attributes
    ----------
    law : PublishedCount
    pairs, agreeing : int
        Each figure but the first of a cell beside the one before, and how many of them are the same. Two zeros are no
        pair: of a count of 0 they are the same whoever published them.
    cells : int
        How many cells the pairs are of: where a remainder is 0 all figures of a cell agree, however many there are.
    """

    law: PublishedCount
    pairs: int
    agreeing: int
    cells: int

    @property
    def share(self) -> float:
        """Of the pairs how many agree; NaN without any."""
        return self.agreeing / self.pairs if self.pairs else float("nan")

    @property
    def verdict(self) -> str:
        """Which they are: copies always agree, and what was published by itself as often as the law says."""
        expected = self.law.agreement
        if not self.pairs or expected == 1:
            return UNSURE
        if self.agreeing == self.pairs:
            return COPIES if self.cells * np.log(expected) < np.log(SURE) else UNSURE
        return OWN if bdtrc(self.agreeing, self.pairs, expected) > SURE else UNSURE

    def __str__(self) -> str:
        return (
            f"{self.agreeing:,} of {self.pairs:,} repeated figures agree ({100 * self.share:.1f} %; published by "
            f"themselves {100 * self.law.agreement:.1f} % would): {self.verdict}"
        )


def repeated_figures(problem: Problem, y: ArrayLike) -> RepeatedFigures:
    """Tell whether figures that stand in several tables were published by themselves, or once.

    Parameters
    ----------
    problem : Problem
        With the law of the figures, of several sources, as `read_tables` makes it of a column ``source``.
    y : array_like, (n,)
        The values that were read with it.

    Returns
    -------
    RepeatedFigures

    Raises
    ------
    ValueError
        If the noise is of no such law.

    Examples
    --------
    >>> import polars as pl
    >>> from constraint_builders import read_tables
    >>> from noise_mechanisms.laws import RandomRounding
    >>> one = pl.DataFrame({"a": ["x", "y"], "value": [3.0, 6.0], "source": ["first"] * 2})
    >>> other = one.with_columns(value=pl.Series([3.0, 3.0]), source=pl.lit("second"))
    >>> print(repeated_figures(*read_tables(pl.concat([one, other]), noise=RandomRounding(3))))
    1 of 2 repeated figures agree (50.0 %; published by themselves 70.4 % would): measurements of their own
    """
    figures = PublishedFigures.of(problem, problem.observed.flat(y, "y"))
    order = np.argsort(figures.cell, kind="stable")
    cell, values = figures.cell[order], figures.values[order]
    pair = (cell[1:] == cell[:-1]) & ((values[1:] != 0) | (values[:-1] != 0))
    agreeing, cells = pair & (values[1:] == values[:-1]), np.unique(cell[1:][pair])
    return RepeatedFigures(figures.law, int(pair.sum()), int(agreeing.sum()), cells.size)


def merged_copies(problem: Problem, y: ArrayLike) -> tuple[Problem, Float]:
    """The same problem and values where figures that stand in several tables are one measurement.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,)
        As `repeated_figures` takes them.

    Returns
    -------
    problem : Problem
        Every cell with the law's variance, without sources.
    y : ndarray, (n,)
        The figures as they were published.

    Raises
    ------
    ValueError
        If two figures of one cell differ: they are no copies.
    """
    values = problem.observed.flat(y, "y")
    figures = PublishedFigures.of(problem, values)
    found, variances = values.copy(), np.array(problem.variances)
    found[figures.cell] = figures.values
    differ = figures.values != found[figures.cell]
    if differ.any():
        cell = int(figures.cell[differ][0])
        raise ValueError(
            f"{problem.observed.describe(cell)} is {figures.values[differ][0]:g} in one table and {found[cell]:g} in "
            "another: these are no copies of one measurement"
        )
    variances[figures.cell] = figures.law.variance
    return problem.replace(sources=None).with_variances(variances), found

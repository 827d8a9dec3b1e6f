"""How lots of cells fit their noise, those of a table or of a geounit, and cells by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import Self

import numpy as np

from blue_solvers.verification.probabilities import LEAST_CHECKED, log_tail, of_chi_square
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import parse_table
from constraint_builders.description.tails import Tails

MOST_BY_STEPS = 1.0  # squares that whole numbers may lack: many have as many levels as real ones


@dataclass(frozen=True)
class Residual:
    """A measured cell and what the others say of it.

    Attributes
    ----------
    geolevel, geocode, table : str
    cell : int
        Its number in C order of the table.
    value, expected : float
        What was measured, and what all other measurements predict.
    residual : float
        Studentised.
    excess : float
        Excess kurtosis of its table's noise.
    """

    geolevel: str
    geocode: str
    table: str
    cell: int
    value: float
    expected: float
    residual: float
    excess: float = 0.0

    def labels(self, schema: Schema) -> str:
        """What the cell is called, such as ``sex=female, age=3``; empty of a total."""
        own = parse_table(schema, self.table).in_schema_order()
        place = np.unravel_index(self.cell, own.shape) if own.shape else ()
        return ", ".join(
            f"{factor}={schema.labels_of(factor)[i]}" for factor, i in zip(own.factors, place, strict=True)
        )

    @property
    def rank(self) -> float:
        """By which the least probable is first."""
        return float(log_tail(self.residual, self.excess))


class LotFit:
    """All cells of a lot together.

    Attributes
    ----------
    statistic, expectation : float
        Weighted squares, and what they are expected to be.
    heavy : float
        What they are expected to be, each times the excess kurtosis of its noise.
    """

    statistic: float
    expectation: float
    heavy: float

    @property
    def excess(self) -> float:
        """Excess kurtosis of the noise, on average."""
        return self.heavy / max(self.expectation, LEAST_CHECKED)

    @property
    def z(self) -> float:
        """How many standard deviations the statistic is off, at least."""
        deviation = float(np.sqrt(2 * self.expectation + self.heavy))
        return (self.statistic - self.expectation) / deviation if self.expectation > LEAST_CHECKED else 0.0


@dataclass(frozen=True)
class GeounitFit(LotFit):
    """Of a geounit."""

    statistic: float
    expectation: float
    geolevel: str
    geocode: str
    heavy: float = 0.0


@dataclass(frozen=True)
class TableFit(LotFit):
    """Of a table at a geolevel: sums over its cells, and what is largest of them.

    Attributes
    ----------
    checked, noisy : int
        How many cells others check too, and how many were measured with noise.
    fixed, by_steps : float
        How many squares may be missing: of figures that may have no noise or were rounded, and since they are whole.
    light : float
        What squares are expected to be, times `Tails.by_proxy`.
    most : float
        The largest redundancy: in no residual does the square of this noise's weight exceed it.
    """

    statistic: float = 0.0
    expectation: float = 0.0
    checked: int = 0
    noisy: int = 0
    heavy: float = 0.0
    fixed: float = 0.0
    by_steps: float = 0.0
    light: float = 0.0
    most: float = 1.0

    @classmethod
    def of(cls, excess: float, tails: Tails, y: Float, squares: Float, redundancy: Float, precision: Float) -> Self:
        """Of measured cells, (...), with such excess kurtosis."""
        expectation, most = float(redundancy.sum()), float(redundancy.max(initial=0.0))
        checked = int(np.count_nonzero(redundancy > LEAST_CHECKED))
        noisy = int(np.count_nonzero(np.broadcast_to(precision, y.shape)))
        fixed = 0.0 if tails.fixed is None else float(redundancy[y == tails.fixed].sum())
        by_steps = float((redundancy * precision).sum()) * tails.step**2 / 12 if tails.step else 0.0
        if tails.step > 1:  # what was rounded may agree more often than noise, however many figures there are
            fixed, by_steps = fixed + by_steps, 0.0
        of_laws = excess * expectation, fixed, by_steps, tails.by_proxy * expectation
        return cls(float(squares.sum()), expectation, checked, noisy, *of_laws, most)

    def __add__(self, other: Self) -> Self:
        found = [*map(add, vars(self).values(), vars(other).values())]
        found[-1] = max(self.most, other.most)
        return type(self)(*found)

    @property
    def missing(self) -> float:
        """How many squares may be missing."""
        return self.fixed + min(self.by_steps, MOST_BY_STEPS)

    @property
    def by_proxy(self) -> float:
        """As `Tails` have it."""
        return self.light / max(self.expectation, LEAST_CHECKED)

    def p_value(self, most: float) -> float:
        """Two-sided, beside tables with redundancies up to `most`: never too small, since no cell varies more."""
        if self.expectation <= LEAST_CHECKED:
            return 1.0
        return of_chi_square(self.statistic, self.expectation, self.excess * most, self.missing, self.by_proxy)

"""What linear combinations of measured cells, that are known exactly, say of the cells of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blue_solvers.verification.weighed_noise import ROUNDING
from constraint_builders.arrays import Float, Index

EXTENDED = 2 * float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True)
class TiedCells:
    """The cells of a table that combinations speak of.

    Attributes
    ----------
    row, geounit, cell : ndarray of int, (entries,)
        Which combination, and where; by geounit.
    weight : ndarray, (entries,)
    multipliers : ndarray, (k,)
        Of the combinations.
    """

    row: Index
    geounit: Index
    cell: Index
    weight: Float
    multipliers: Float

    @classmethod
    def of(cls, share: sparse.csr_array, cells: int, multipliers: Float) -> TiedCells | None:
        """From the combinations' columns of a table, (k, geounits * cells); None where they say nothing of it."""
        entries = share.tocoo()
        row, column = entries.coords
        if not entries.nnz:
            return None
        order = np.argsort(column, kind="stable")
        geounit, cell = np.divmod(column[order], cells)
        return cls(row[order], geounit, cell, entries.data[order], multipliers)

    def among(self, here: Index) -> tuple[Index, tuple[Index, Index], Float]:
        """Of some geounits: which combination, the place among these geounits and the cell, and the weight."""
        order = np.argsort(here)
        found = np.minimum(np.searchsorted(here, self.geounit, sorter=order), here.size - 1)
        chosen = np.flatnonzero(here[order[found]] == self.geounit)
        place = order[found][chosen]
        return self.row[chosen], (place, self.cell[chosen]), self.weight[chosen]

    def pull(self, q: Float, variance: Float, here: Index) -> float:
        """Take the multipliers off weighted residuals of some geounits; gives the squared rounding of that, weighed."""
        row, cells, weight = self.among(here)
        pulled = np.zeros_like(q)
        np.add.at(pulled, cells, weight * self.multipliers[row])
        sizes = np.zeros_like(q)
        np.add.at(sizes, cells, abs(weight * self.multipliers[row]))
        noise = np.where(np.isfinite(variance), variance, 0.0)  # the others were not measured, or are known exactly
        q -= np.where(noise > 0, pulled, 0.0)
        rounding = ROUNDING * (self.multipliers.size + 4) * np.where(sizes > 0, sizes + abs(q), 0.0)
        return float(np.sum(rounding**2 * noise))

    def sums(self, here: Index, x: Float, off: Float | None) -> list[list[float]]:
        """Combinations of the figures of some geounits: high and low half, what they may be off by, and their size."""
        row, cells, weight = self.among(here)
        terms = weight.astype(np.longdouble) * x[cells]
        slack = 0.0 if off is None else abs(weight) * off[cells]
        each = np.stack([terms, slack + (row.size + 4) * EXTENDED * abs(terms), abs(terms)], axis=1)
        found = np.zeros((self.multipliers.size, 3), dtype=np.longdouble)
        np.add.at(found, row, each)
        return [[*_halves(value), float(slack), float(size)] for value, slack, size in found]


def added(one: list[list[float]], two: list[list[float]]) -> list[list[float]]:
    """Shares of combinations, put together."""
    if not one or not two:
        return one or two
    found = []
    for own, other in zip(one, two, strict=True):
        value = sum((np.longdouble(half) for half in (*own[:2], *other[:2])), np.longdouble(0))
        size = own[3] + other[3]
        found.append([*_halves(value), own[2] + other[2] + EXTENDED * size, size])
    return found


def _halves(value: np.longdouble) -> tuple[float, float]:
    high = float(value)
    return high, float(value - np.longdouble(high))

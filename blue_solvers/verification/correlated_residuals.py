"""Residuals of measurements whose noise is correlated: what others say of one, and how far sums of squares may be off.

With K the inverse of the covariance and P the estimate as a matrix, a measurement m differs from what all others
predict, by their estimates and by the noise that it shares with them, by

    (K e)_m / (K (1 - P))_mm,

and of an error in it the share 1 - P_mm shows in its residual. Without correlations both are told by variances alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from blue_solvers.verification.weighed_noise import WeighedNoise, reciprocal
from constraint_builders.arrays import Float, Index

BLOCK = 64  # measurements whose columns of P are held at once


@dataclass(frozen=True)
class CorrelatedResiduals:
    """Residuals e = y - x of measurements with such noise.

    Attributes
    ----------
    noise : WeighedNoise
    e : ndarray, (n,)
    apply : callable or None
        P times (n, K), where it is known.
    """

    noise: WeighedNoise
    e: Float
    apply: Callable[[Float], Float] | None

    def from_others(self, m: int) -> float:
        """By how much a measurement differs from what all others predict; NaN where P is not known."""
        if self.apply is None:
            return np.nan
        unit = np.zeros(self.e.size)
        unit[m] = 1.0
        own = self.noise.weighted(unit - self.apply(unit[:, None])[:, 0])[0][m]
        return float(self._weighted[m] / own)

    @cached_property
    def _weighted(self) -> Float:
        """K e, (n,)."""
        return self.noise.weighted(self.e)[0]

    def shown(self) -> Float:
        """Which share of an error in a measurement shows in its residual, (n,).

        Raises
        ------
        ValueError
            If P is not known.
        """
        if self.apply is None:
            raise ValueError(
                "noise is correlated, and the estimate is not known as a matrix: ask est.goodness_of_fit()"
            )
        found = np.empty(self.e.size)
        for start in range(0, found.size, BLOCK):
            cells = np.arange(start, min(start + BLOCK, found.size))
            units = np.zeros((found.size, cells.size))
            units[cells, cells - start] = 1.0
            found[cells] = 1 - np.asarray(self.apply(units))[cells, cells - start]
        return found

    def deviations(self, number: Index, expectation: Float) -> Float:
        """Standard deviations of the lots' weighted squares, (lots,), at most.

        `number`, (n,), says in which lot a measurement is; `expectation` is what the squares are expected to be. The
        variance is twice the sum of squared eigenvalues, whose sum is the expectation, and none of which is above the
        largest of the lot's correlations.
        """
        return np.sqrt(2 * expectation * np.minimum(self._largest_eigenvalues(number, expectation.size), expectation))

    def _largest_eigenvalues(self, number: Index, count: int) -> Float:
        """Bounds of those of every lot's correlations, (lots,): the largest sum of a row; infinite if not known."""
        noise, inverse = self.noise.correlated, reciprocal(self.noise.sd)
        entries = None if noise is None else noise.entries()
        if noise is not None and noise.is_shared:
            shared, of_lots = abs(noise.sources) * inverse[:, None], np.zeros((count, noise.sources.shape[1]))
            np.add.at(of_lots, number, shared)
            own = np.where(self.noise.noisy, noise.own.variances, 0.0) * inverse**2
            rows = own + (shared * of_lots[number]).sum(axis=1)
        elif entries is not None:
            cells = entries.tocoo()
            within = number[cells.row] == number[cells.col]
            weights = np.where(within, abs(cells.data) * inverse[cells.row] * inverse[cells.col], 0.0)
            rows = np.bincount(cells.row, weights, inverse.size)
        else:
            return np.full(count, np.inf)
        found = np.zeros(count)
        np.maximum.at(found, number, rows)
        return found

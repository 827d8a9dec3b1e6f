"""Residuals of data that are drawn with the declared noise, where that is not Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blue_solvers.verification.weighed_noise import WeighedNoise, reciprocal
from constraint_builders.arrays import Float, Index


@dataclass(frozen=True)
class ResidualReplicates:
    """Residuals of data that were drawn with the declared noise.

    Attributes
    ----------
    totals : ndarray, (draws,)
        Weighted squares of all residuals.
    tables : ndarray, (draws, tables)
        Those of every table.
    largest : ndarray, (draws,)
        Largest studentised residual.
    """

    totals: Float
    tables: Float
    largest: Float


def replicated(
    noise: WeighedNoise,
    table: Index,
    weight: Float,
    replicate: Callable[[np.random.Generator], Float],
    draws: int,
    rng: np.random.Generator,
) -> ResidualReplicates:
    """Draw; `table` is the number of every measurement's table, (N,)."""
    precision, count = reciprocal(noise.sd**2), int(table.max(initial=-1)) + 1
    totals, tables, largest = [], [], []
    for _ in range(draws):
        e = np.where(noise.noisy, replicate(rng), 0.0)
        totals.append(float(e @ noise.weighted(e)[0]))
        tables.append(np.bincount(table, e**2 * precision, count))
        largest.append(float(np.nanmax(abs(e * weight), initial=0.0)))
    return ResidualReplicates(np.array(totals), np.array(tables), np.array(largest))


def share_beyond(values: Float, bound: float) -> float:
    """The share of replicates, (draws,), with the real data among them, that are not below a bound."""
    return float((1 + (values >= bound).sum()) / (1 + values.size))

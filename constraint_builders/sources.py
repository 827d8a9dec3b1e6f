"""Several measurements of the same cells, combined into one that says as much."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from constraint_builders.description.layout import Float
from constraint_builders.description.variances import checked_variances

TOLERANCE = 1e-9  # relative: by which exact values may differ that were rounded on their way


def combine_sources(values: Sequence[ArrayLike], variances: Sequence[ArrayLike]) -> tuple[Float, Float]:
    """Combine independent measurements of the same cells: means weighted by inverse variances, and their variances.

    Every best linear unbiased estimate from the combination is the one from all sources. A value known exactly
    (variance 0) is the combination; one that was not measured (``inf``) says nothing.

    Parameters
    ----------
    values : sequence of array_like
        One array for every source, all of one shape; NaN where not measured.
    variances : sequence of array_like
        Of each a number or an array of that shape.

    Returns
    -------
    values, variances : ndarray
        NaN and ``inf`` where no source measured.

    Raises
    ------
    ValueError
        If shapes differ, a variance is negative or NaN, a measured value is not finite, or exact values differ.

    Examples
    --------
    >>> combine_sources([[10.0, 7.0], [16.0, np.nan]], [[1.0, 2.0], [2.0, np.inf]])
    (array([12.,  7.]), array([0.66666667, 2.        ]))
    """
    if not values or len(values) != len(variances):
        raise ValueError(f"give values and variances of the same sources: got {len(values)} and {len(variances)}")
    y = np.stack([np.asarray(own, dtype=np.float64) for own in values])
    spread = [np.broadcast_to(np.asarray(own, dtype=np.float64), y.shape[1:]) for own in variances]
    v = np.stack([checked_variances(own, f"variance of source {i}") for i, own in enumerate(spread, 1)])
    wrong = np.argwhere(~np.isfinite(y) & np.isfinite(v))
    if wrong.size:
        source, *cell = wrong[0].tolist()
        value = y[source, *cell]
        raise ValueError(f"source {source + 1}, cell {tuple(cell)}: the value is {value}: give a number")
    return _combined(np.where(np.isfinite(v), y, 0.0), v)


def _combined(y: Float, v: Float) -> tuple[Float, Float]:
    """Combine (sources, *shape) values, 0 where not measured, and their variances."""
    known = v == 0
    exact = np.take_along_axis(y, known.argmax(axis=0)[None], axis=0)[0]
    wrong = np.argwhere(known & (abs(y - exact) > TOLERANCE * abs(exact)))
    if wrong.size:
        source, *cell = wrong[0].tolist()
        both = f"{exact[*cell]} and {y[source, *cell]}"
        raise ValueError(f"cell {tuple(cell)}: two sources know it exactly, as {both}: correct one of them")
    least, weights = v.min(axis=0), np.zeros_like(v)
    np.divide(least, v, out=weights, where=np.isfinite(v) & (least > 0))
    measured = weights.any(axis=0)
    total = np.where(measured, weights.sum(axis=0), 1.0)
    mean = np.where(measured, (weights * y).sum(axis=0) / total, np.nan)
    return np.where(known.any(axis=0), exact, mean), least / total

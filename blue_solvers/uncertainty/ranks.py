"""Ranks of estimates, with intervals from the errors of all differences."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.quantiles import normal_multiple, read_level, takes_confidence_level
from constraint_builders.arrays import Index
from constraint_builders.description.reals import real_array, refuse_no_covariance

ROUNDING = 1e-12  # of two estimates: by less than that they do not differ


@takes_confidence_level
def rank_intervals(
    estimate: ArrayLike, covariance: ArrayLike, confidence_level: float = 0.95
) -> tuple[Index, Index, Index]:
    """Ranks from the largest, 1, down, each with an interval that holds the true rank.

    A true rank is one more than the number of truly larger quantities. Each one's n - 1 differences from the others
    hold together with the stated probability or more (Bonferroni): those that are surely larger come before it, those
    that are surely smaller after it. Estimates that are the same but for rounding have one rank.

    Parameters
    ----------
    estimate : array_like, (n,)
    covariance : array_like, (n, n)
        In squared units of the estimates.
    confidence_level : float
        Of each interval by itself.

    Returns
    -------
    rank, first, last : ndarray of int, (n,)

    Raises
    ------
    ValueError
        If shapes differ, a number is not finite, the matrix is no covariance, or the level lies outside (0, 1).

    Examples
    --------
    >>> rank, first, last = rank_intervals([5.0, 40.0, 41.0], [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    >>> rank.tolist(), first.tolist(), last.tolist()
    ([3, 2, 1], [3, 1, 1], [3, 2, 2])
    """
    x, V = real_array(estimate, "estimate"), real_array(covariance, "covariance")
    if x.ndim != 1 or V.shape != (x.size, x.size):
        raise ValueError(f"give n estimates and their (n, n) covariance: got {x.shape} and {V.shape}")
    if not (np.isfinite(x).all() and np.isfinite(V).all()):
        raise ValueError("estimate or covariance holds NaN or infinite numbers: give finite ones")
    refuse_no_covariance(V, "covariance")
    confidence_level = read_level(confidence_level)
    z = normal_multiple(1 - (1 - confidence_level) / max(x.size - 1, 1))
    larger = x[:, None] - x[None, :]
    variances = V.diagonal()
    error = np.sqrt(np.maximum(variances[:, None] + variances[None, :] - V - V.T, 0))
    rounding = ROUNDING * (abs(x)[:, None] + abs(x)[None, :])
    surely = larger > z * error + rounding  # the one of the row than that of the column
    return 1 + (larger > rounding).sum(axis=0), 1 + surely.sum(axis=0), x.size - surely.sum(axis=1)

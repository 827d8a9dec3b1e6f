"""Intervals for ratios of estimates, after Fieller (1954): none is invented where the denominator may be 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.quantiles import normal_multiple, read_level, takes_confidence_level
from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array, refuse_no_covariance


@takes_confidence_level
def ratio_intervals(
    numerator: ArrayLike, denominator: ArrayLike, covariance: ArrayLike, confidence_level: float = 0.95
) -> tuple[Float, Float, Float]:
    """Fieller intervals of ratios a / b of estimates with normal errors.

    The ratios t for which a - t b is no further from 0 than its standard error allows,

        (a - t b)^2 <= z^2 (V_aa - 2 t V_ab + t^2 V_bb),

    have the stated coverage exactly. They are an interval where b is further from 0 than z of its standard errors.

    Parameters
    ----------
    numerator, denominator : array_like, (n,)
    covariance : array_like, (n, 2, 2)
        Of each numerator with its denominator, in squared units of both.
    confidence_level : float

    Returns
    -------
    ratio, lower, upper : ndarray, (n,)
        Infinite bounds where the ratios above are no interval; a ratio is NaN where the denominator is 0.

    Raises
    ------
    ValueError
        If shapes differ, a number is not finite, a matrix is no covariance, or the level lies outside (0, 1).

    Examples
    --------
    >>> ratio, lower, upper = ratio_intervals([30.0, 30.0], [60.0, 2.0], [[[4.0, 0.0], [0.0, 9.0]]] * 2)
    >>> [np.round(bound, 4).tolist() for bound in (ratio, lower, upper)]
    [[0.5, 15.0], [0.4226, -inf], [0.5871, inf]]
    """
    a, b, V = (
        real_array(x, name)
        for x, name in ((numerator, "numerator"), (denominator, "denominator"), (covariance, "covariance"))
    )
    if a.ndim != 1 or b.shape != a.shape or V.shape != (a.size, 2, 2):
        raise ValueError(
            f"give n numerators, n denominators and (n, 2, 2) covariances: got {a.shape}, {b.shape}, {V.shape}"
        )
    if not all(np.isfinite(x).all() for x in (a, b, V)):
        raise ValueError("numerator, denominator or covariance holds NaN or infinite numbers: give finite ones")
    refuse_no_covariance(V, "covariance")
    vaa, vab, vbb = V[:, 0, 0], V[:, 0, 1], V[:, 1, 1]
    z2 = normal_multiple(read_level(confidence_level)) ** 2
    ratio, lower, upper = np.full(a.size, np.nan), np.full(a.size, -np.inf), np.full(a.size, np.inf)
    np.divide(a, b, out=ratio, where=b != 0)
    known = b**2 > z2 * vbb
    r, slope = ratio[known], (b**2 - z2 * vbb)[known]
    of_difference = np.maximum(vaa - 2 * ratio * vab + ratio**2 * vbb, 0)[known]
    spread = z2 * ((b**2)[known] * of_difference - z2 * (vaa * vbb - vab**2)[known])
    half = np.sqrt(np.maximum(spread, 0)) / slope
    centre = r + z2 * (r * vbb[known] - vab[known]) / slope
    lower[known], upper[known] = np.minimum(centre - half, r), np.maximum(centre + half, r)  # to the last bit
    return ratio, lower, upper

"""How probable statistics and residuals are that are as far from what is expected."""

from __future__ import annotations

import numpy as np
import scipy  # which takes its parts when they are named: `special` costs more than all of this package


def of_chi_square(statistic: float, degrees: float) -> float:
    """The probability, two-sided, of a statistic as far from what is expected."""
    tails = (of(degrees, statistic) for of in (scipy.special.chdtrc, scipy.special.chdtr))
    return min(1.0, 2 * float(min(tails)))


def of_largest(residual: float, checked: int) -> float:
    """The probability of a residual as large among so many; Sidak's, never too small."""
    with np.errstate(divide="ignore"):  # of a residual of 0, which every other is as large as
        return float(-np.expm1(checked * np.log1p(-2 * scipy.special.ndtr(-abs(residual)))))

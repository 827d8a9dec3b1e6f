"""What the tests of uncertainty share."""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6


def check_coverage(covered: np.ndarray, level: float, most: float | None = None) -> None:
    """Refuse coverage that is not `level`, or not between it and `most`.

    Coverage is a binomial proportion over independent replicates, for each of several regions by itself. If it is
    right, a test fails with probability at most `FALSE_ALARM` when its seed is chosen; with the seed fixed it repeats
    exactly.

    Parameters
    ----------
    covered : ndarray of bool, (regions, replicates) or (replicates,)
    level : float
    most : float, optional
        For methods that may cover more often than they say.
    """
    covered = np.atleast_2d(covered)
    counts, trials = covered.sum(axis=1), covered.shape[1]
    alarm = FALSE_ALARM / len(counts) / 2
    assert (counts >= stats.binom.ppf(alarm, trials, level)).all(), counts / trials
    assert (counts <= stats.binom.isf(alarm, trials, level if most is None else most)).all(), counts / trials

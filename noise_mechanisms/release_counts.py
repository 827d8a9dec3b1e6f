"""Counts with noise of release grade, for publication: OpenDP's mechanisms, one draw for every cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders import Problem
from noise_mechanisms.add_noise import LARGEST_WHOLE
from noise_mechanisms.laws import kind_of, release


def release_counts(problem: Problem, truth: ArrayLike) -> NDArray[np.float64]:
    """Measure true counts once, for publication: every cell with its own draw of the problem's law and its variance.

    What `add_noise` simulates. All randomness is OpenDP's: there is no seed, and no two calls agree. What the tables
    together cost is what `noise_mechanisms.accounting` adds up.

    Parameters
    ----------
    problem : Problem
        Its `noise` is the law, its `variances` the size.
    truth : array_like, (n,)
        Confidential counts over the observed layout.

    Returns
    -------
    ndarray, (n,)
        Exact cells as they are, cells that are not measured NaN.

    Raises
    ------
    ImportError
        If OpenDP is not installed (extra ``release``), or older than 0.14.2: its samplers were biased.
    ValueError
        If the noise is correlated; truth has another length or does not add up (that is looked at up to a million
        cells); a measured count is not finite or, for noise of whole numbers, not whole or above 2^53.
    """
    noise, size = problem.noise, problem.observed.size
    if noise.covariance is not None:
        raise ValueError("release-grade noise is drawn for every cell by itself: the problem's noise is correlated")
    values = problem.observed.flat(truth, "truth")
    if values.shape != (size,):
        raise ValueError(f"truth must have shape ({size},): got {values.shape}")
    measured = ~problem.unmeasured
    wrong = measured & ~np.isfinite(values)
    if kind_of(noise.law).discrete:
        wrong |= measured & ((values != np.rint(values)) | (abs(values) > LARGEST_WHOLE))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"truth: {problem.observed.describe(first)} is {values[first]:g}: noise of the law {noise.law!r} is added "
            f"to {'whole numbers of at most 2^53' if kind_of(noise.law).discrete else 'finite numbers'}"
        )
    problem.check_truth(values)
    released = np.full(size, np.nan)
    released[measured] = release(noise.law, noise.variances[measured], values[measured])
    return released

"""Noisy measurements of known counts, simulation only: seeded noise in floating point protects nobody."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders import Problem
from constraint_builders.description.reals import whole_number
from noise_mechanisms.laws import draw, kind_of

LARGEST_WHOLE = 2.0**53

Rng = np.random.Generator | int | None


def add_noise(problem: Problem, truth: ArrayLike, rng: Rng = None) -> NDArray[np.float64]:
    """Measure true counts once, simulation only: each observed cell with independent noise of the problem's law.

    The noise is drawn by a seeded generator in floating point. It promises no privacy, whatever its variance; what is
    published takes `release_sample` of a law in `noise_mechanisms.laws`.

    Parameters
    ----------
    problem : Problem
        Its `noise` is the law, its `variances` (or `covariance`, for Gaussian noise) the size.
    truth : array_like, (n,)
        True counts over the observed layout, ``problem.truth`` or ``problem.marginal_matrix() @ counts``.
    rng : Generator, int or None
        Source of randomness, or its seed.

    Returns
    -------
    ndarray, (n,)
        Truth plus noise; exact cells as they are, cells that were not measured NaN.

    Raises
    ------
    ValueError
        If truth has another length, is not finite, does not add up (that is looked at up to a million cells), or is too
        large for noise of whole numbers; or correlated noise is not Gaussian or known only as an operator.
    """
    values = problem.observed.flat(truth, "truth")
    if values.shape != (problem.observed.size,):
        raise ValueError(f"truth must have shape ({problem.observed.size},): got {values.shape}")
    if not np.isfinite(values[~problem.unmeasured]).all():
        raise ValueError("truth holds NaN or infinite counts: give finite numbers")
    if kind_of(problem.noise.law).discrete:
        large = np.flatnonzero(~problem.unmeasured & (abs(values) > LARGEST_WHOLE))
        if large.size:
            raise ValueError(
                f"truth: {problem.observed.describe(int(large[0]))} is {values[large[0]]:g}: whole numbers above 2^53 "
                "are not exact in float64, and noise of 1 would be lost"
            )
    problem.check_truth(values)
    noisy = values + draw_noise(problem, 1, rng)[:, 0]
    noisy[problem.unmeasured] = np.nan
    return noisy


def draw_noise(problem: Problem, columns: int, rng: Rng = None) -> NDArray[np.float64]:
    """Independent draws of a problem's noise, (n, columns), simulation only; 0 where a cell is exact or not measured.

    It promises no privacy, as `add_noise`.

    Raises
    ------
    ValueError
        If correlated noise is not Gaussian or known only as an operator.
    """
    columns, generator = whole_number(columns, "columns", 0), np.random.default_rng(rng)
    noise = problem.noise
    if noise.covariance is None:
        return draw(noise.law, np.where(problem.unmeasured, 0.0, noise.variances), generator, columns)
    if noise.law != "gaussian":
        raise ValueError(f"correlated noise is drawn for the law 'gaussian' only: the problem's is {noise.law!r}")
    return noise.gaussian(columns, generator)

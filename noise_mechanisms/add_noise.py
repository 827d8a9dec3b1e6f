"""Counts with noise: for simulation, not differentially private, and of release grade, by OpenDP, for publication."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constraint_builders import Problem
from constraint_builders.description.reals import random_generator, whole_number
from noise_mechanisms.laws.base_law import LARGEST_WHOLE
from noise_mechanisms.laws.named_laws import draw, kind_of, release
from noise_mechanisms.laws.published_counts import PublishedCount

Rng = np.random.Generator | int | None


def add_noise(problem: Problem, truth: ArrayLike, rng: Rng = None) -> NDArray[np.float64]:
    """Measure true counts once, simulation only: each observed cell with independent noise of the problem's law.

    Rounded and perturbed counts are published of the true ones, by themselves.

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
    law = problem.noise.law
    if isinstance(law, PublishedCount):
        values = _true_counts(problem, truth, whole=True)
        noisy = np.where(problem.exact | problem.unmeasured, values, 0.0)
        measured = ~(problem.exact | problem.unmeasured)
        noisy[measured] = law.publish(values[measured], rng)
    else:
        noisy = _true_counts(problem, truth) + draw_noise(problem, 1, rng)[:, 0]
    noisy[problem.unmeasured] = np.nan
    return noisy


def draw_noise(problem: Problem, columns: int, rng: Rng = None) -> NDArray[np.float64]:
    """Independent draws of a problem's noise, (n, columns), simulation only; 0 where a cell is exact or not measured.

    It promises no privacy, as `add_noise`. Of a law with a `mean` that is taken off. Where several sources measured a
    cell each has noise of the law, of which their combination has the mean.

    Parameters
    ----------
    problem : Problem
    columns : int
    rng : Generator, int or None

    Returns
    -------
    ndarray, (n, columns)
        In units of the counts.

    Raises
    ------
    ValueError
        If correlated noise is not Gaussian or known only as an operator.
    """
    columns, generator = whole_number(columns, "columns", 0), random_generator(rng)
    noise = problem.noise
    if noise.covariance is None:
        own = None if noise.law == "gaussian" else problem.sources
        sources = None if own is None else problem.sources_of(own.combined(own.values, problem.observed.size))
        variances = np.where(problem.unmeasured, 0.0, noise.variances) if sources is None else sources.variances
        drawn = draw(noise.law, variances, generator, columns)
        if isinstance(noise.law, PublishedCount) and noise.law.mean:
            drawn[variances > 0] -= noise.law.mean
        return drawn if sources is None else sources.combined(drawn, problem.observed.size)
    if noise.law != "gaussian":
        raise ValueError(f"correlated noise is drawn for the law 'gaussian' only: the problem's is {noise.law!r}")
    return noise.gaussian(columns, generator)


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
    noise, measured = problem.noise, ~problem.unmeasured
    if noise.covariance is not None:
        raise ValueError("release-grade noise is drawn for every cell by itself: the problem's noise is correlated")
    values = _true_counts(problem, truth, whole=True)
    released = np.full(values.shape, np.nan)
    released[measured] = release(noise.law, noise.variances[measured], values[measured])
    return released


def _true_counts(problem: Problem, truth: ArrayLike, whole: bool = False) -> NDArray[np.float64]:
    """Counts, (n,), that the problem's noise can be added to; `whole` where only whole ones can."""
    values = problem.observed.one_vector(truth, "truth")
    wrong, needed = ~np.isfinite(values), "finite numbers"
    if kind_of(problem.noise.law).discrete:
        wrong |= (abs(values) > LARGEST_WHOLE) | (whole & (values != np.rint(values)))
        needed = f"{'whole ' if whole else ''}numbers of at most 2^53, beyond which noise of 1 would be lost in float64"
    why = "truth: {} is {:g}: noise of the law {!r} is added to {}"
    problem.observed.refuse(wrong & ~problem.unmeasured, why, values, problem.noise.law, needed)
    problem.check_truth(values)
    return values

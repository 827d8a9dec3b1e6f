"""Confidence intervals for every desired count (section 5 of SEA BLUE)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.operator import BlueOperator
from blue_solvers.quantiles import normal_multiple, read_level, t_multiple, takes_confidence_level
from blue_solvers.uncertainty.functionals import as_operator, estimate
from blue_solvers.uncertainty.monte_carlo import Progress, Replicates, SecondMoments, Seed, order_statistics, read_draws
from blue_solvers.verification.weighed_noise import rounding_of
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_array

METHODS = ("z", "t", "distribution_free")
# What a bound may be off a whole number and count as that number: the rounding of an estimate.
ROUNDING = 1e-9
RELATIVE_ROUNDING = 1e-14


@takes_confidence_level
def intervals(
    P: BlueOperator | Problem,
    y: ArrayLike,
    confidence_level: float = 0.95,
    method: str = "z",
    draws: int | None = None,
    rng: Seed = None,
    integer: bool = False,
    progress: Progress | None = None,
) -> tuple[Float, Float]:
    """Confidence interval of every desired count, each by itself at the stated level.

    Parameters
    ----------
    P : BlueOperator or Problem
        Any solver's operator; a linear estimate that is not the BLUE gets its own, wider, intervals.
    y : array_like, (n,) or (n, K)
        Noisy counts over the observed layout.
    confidence_level : float
    method : {"z", "t", "distribution_free"}
        ``"z"`` from exact variances (Proposition 24); exact for Gaussian noise. ``"t"`` from the mean square of
        simulated errors (Proposition 25); exact for Gaussian noise, whatever `draws`. ``"distribution_free"`` from an
        order statistic of simulated errors (Proposition 26); covers with the stated probability or more for every law
        of the noise.
    draws : int, optional
        Simulated errors, for the last two, which need it; 199 make intervals 1 % wider than ``"z"`` on average.
        Memory stays bounded whatever it is.
    rng : Generator, int or None
        Source of randomness, or its seed.
    integer : bool
        Whether counts are known to be whole and not negative: the bounds are refined to such (Remark 28).
    progress : callable, optional
        Called after every batch of replicates with those done, and all of them.

    Returns
    -------
    lower, upper : ndarray, (m,) or (m, K)
        In units of the counts. An interval that holds no whole number of 0 or more comes back empty, lower > upper; it
        fails to cover whether refined or not.

    Raises
    ------
    ValueError
        For an unknown method, a level outside (0, 1), draws where none or too few are given, an rng that is none, an
        unreadable y, or one whose exact values contradict one another; of whole counts where weights of areas, or of
        nodes, leave sums that are not, or below 0.

    Examples
    --------
    >>> from constraint_builders import gallery
    >>> lower, upper = intervals(gallery.toy(), [6, 9, 17, 29], integer=True)
    >>> lower, upper
    (array([ 4.,  7., 15., 29.]), array([ 6.,  9., 17., 31.]))
    """
    P = as_operator(P)
    if integer:
        _refuse_other_sums(P.problem)
    half = half_widths(P, confidence_level, method, draws, rng, progress)
    centre = estimate(P, y)
    half = half if centre.ndim == 1 else half[:, None]
    if method != "z":  # simulated errors are rounded as noise is, that of the estimate as counts are
        half = half + rounding_of(centre, real_array(y, "y")[~P.problem.unmeasured])
    lower, upper = centre - half, centre + half
    if integer:
        known = ~np.isnan(centre)
        lower[known], upper[known] = refine_to_integers(lower[known], upper[known])
    return lower, upper


@takes_confidence_level
def half_widths(
    P: BlueOperator,
    confidence_level: float = 0.95,
    method: str = "z",
    draws: int | None = None,
    rng: Seed = None,
    progress: Progress | None = None,
) -> Float:
    """Half the width of the interval of every desired count, (m,); parameters and errors are those of `intervals`.

    Parameters
    ----------
    P, level, method, draws, rng, progress
        As for `intervals`.

    Returns
    -------
    ndarray, (m,)
        In units of the counts.

    Raises
    ------
    ValueError
        As `intervals`.
    """
    confidence_level = read_level(confidence_level)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(map(repr, METHODS))}: got {method!r}")
    if method == "z":
        if draws is not None:
            raise ValueError("method 'z' simulates nothing: leave draws out, or use method='t' or 'distribution_free'")
        deviations = np.sqrt(np.maximum(P.variances(), 0))  # 0 may come out as -1e-20
        return normal_multiple(confidence_level) * deviations
    if draws is None:
        raise ValueError(f"method {method!r} simulates errors: say how many, draws=199 for instance")
    draws = read_draws(draws)
    replicates = Replicates(P, rng)
    if method == "t":
        moments = replicates.accumulate(SecondMoments(), draws, progress)
        return t_multiple(draws, confidence_level) * np.sqrt(moments.variances)
    return order_statistics(replicates, P.shape[0], confidence_level, draws, progress)


@takes_confidence_level
def normal_intervals(estimate: ArrayLike, std_errors: ArrayLike, confidence_level: float = 0.95) -> tuple[Float, Float]:
    """Normal intervals around estimates whose standard errors are at hand.

    Parameters
    ----------
    estimate, std_errors : array_like, of one shape
    confidence_level : float

    Returns
    -------
    lower, upper : ndarray

    Raises
    ------
    ValueError
        If the level lies outside (0, 1), shapes differ, or a standard error is negative, or NaN where its estimate is
        not.
    """
    centre, errors = real_array(estimate, "estimate"), real_array(std_errors, "std_errors")
    if centre.shape != errors.shape:
        raise ValueError(f"estimate and std_errors must have one shape: got {centre.shape} and {errors.shape}")
    if not ((errors >= 0) | (np.isnan(errors) & np.isnan(centre))).all():
        raise ValueError("std_errors holds NaN or negative numbers: give the standard deviation of every estimate")
    half = normal_multiple(read_level(confidence_level)) * errors
    return centre - half, centre + half


def refine_to_integers(lower: ArrayLike, upper: ArrayLike) -> tuple[Float, Float]:
    """Shrink intervals of counts to whole numbers of 0 or more, which costs no coverage (Remark 28).

    Parameters
    ----------
    lower, upper : array_like, of one shape

    Returns
    -------
    lower, upper : ndarray
        A bound within rounding error of a whole number counts as that number.

    Raises
    ------
    ValueError
        If a bound is NaN, or the shapes differ.

    Examples
    --------
    >>> refine_to_integers([-1.5], [12.7])
    (array([0.]), array([12.]))
    """
    low, high = real_array(lower, "lower"), real_array(upper, "upper")
    if low.shape != high.shape:
        raise ValueError(f"lower and upper must have one shape: got {low.shape} and {high.shape}")
    if np.isnan(low).any() or np.isnan(high).any():
        raise ValueError("lower or upper holds NaN: give numbers, or infinite bounds where there are none")
    return np.maximum(np.ceil(low - _slack(low)), 0.0), np.floor(high + _slack(high))


def _refuse_other_sums(problem: Problem) -> None:
    """`ValueError` where an area, or a node, weighs counts so that its sum need not be whole, or not below 0."""
    if not problem.has_weights or (problem.summing is not None and problem.desired is not problem.observed):
        return
    levels = (0,) if problem.areas is None else dict.fromkeys(problem.desired_levels)
    weights = np.concatenate([problem.leaves_of(level).data for level in levels])
    other = (weights < 0) | (weights != np.rint(weights))
    if other.any():
        raise ValueError(
            f"integer=True: an area, or a node, weighs counts by {weights[other][0]:g}, whose sum may be no whole "
            "number of 0 or more: leave it out, or cut intervals by refine_intervals"
        )


def _slack(bound: Float) -> Float:
    """By how much rounding may have moved bounds, of any shape, of counts of this size."""
    return ROUNDING + RELATIVE_ROUNDING * abs(bound)

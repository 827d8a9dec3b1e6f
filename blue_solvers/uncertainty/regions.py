"""Joint confidence regions for a chosen set of counts, or of other functionals, of an estimate.

The error e of the chosen functionals is linear in the noise N, e = V' N with V = P' W, whatever method P is, and
errors of any number can be simulated without looking at the data. Two arguments give the stated level:

- For Gaussian noise e is Gaussian with mean zero and covariance C = V' Sigma V, which is known: `confidence_ellipsoid`
  and `simultaneous_band`.
- For every law of the noise, let d be a fixed function of an error. The real e_0 and simulated e_1, ..., e_m are
  independent and of one law, so d(e_0), ..., d(e_m) are exchangeable, and d(e_0) is at most the r-th smallest of the
  others with probability r / (m + 1) or more. With r = ceil(level (m + 1)) the set of values whose error e satisfies
  d(e) <= d_(r) covers the truth with probability `level` or more. It matters that d does not depend on e_1, ..., e_m;
  here it depends on C alone. The largest studentised error, d(e) = max |e_k| / sqrt(C_kk), gives
  `distribution_free_band`; Mahalanobis depth, d(e) = e' C^+ e, gives `distribution_free_ellipsoid`.

Functionals that the constraints tie together have a singular C: a region then lies in the affine space of consistent
values, and values off it are outside.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from blue_solvers.operator import BlueOperator
from blue_solvers.over_layouts import read_weights
from blue_solvers.quantiles import chi_square_quantile, f_quantile, read_level, takes_confidence_level
from blue_solvers.uncertainty.functionals import Functionals, as_operator, estimate, observed_weights
from blue_solvers.uncertainty.monte_carlo import LargestErrors, Progress, Replicates, Seed, order_statistic, read_draws
from blue_solvers.uncertainty.whitening import Whitening
from blue_solvers.verification.weighed_noise import rounding_of
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import random_generator, real_array, whole_number
from constraint_builders.estimability import why_undetermined

SIMULATIONS = 99_999


@dataclass(frozen=True)
class Ellipsoid:
    """The values v with (v - centre)' shape^+ (v - centre) <= squared_radius, in the range of the shape.

    Attributes
    ----------
    centre : ndarray, (K,)
        The estimate.
    whitening : Whitening
        Of the shape.
    squared_radius : float
    confidence_level : float
    rounding : ndarray, (K,)
        How far rounding may have moved the estimate, and values that were worked out as it was.
    """

    centre: Float
    whitening: Whitening
    squared_radius: float
    confidence_level: float
    rounding: Float

    @property
    def level(self) -> float:
        """The former name of `confidence_level`, with a warning."""
        warnings.warn("Ellipsoid.level is now Ellipsoid.confidence_level", DeprecationWarning, stacklevel=2)
        return self.confidence_level

    @property
    def shape(self) -> Float:
        """Covariance of the estimate, exact or simulated, (K, K), in squared units of the functionals."""
        factor = self.whitening.scales[:, None] * self.whitening.factor
        return factor @ factor.T

    @property
    def rank(self) -> int:
        """Dimension of the region."""
        return self.whitening.rank

    @property
    def half_widths(self) -> Float:
        """How far the region reaches from the centre along every axis, (K,)."""
        return np.sqrt(self.squared_radius * self.shape.diagonal())

    def contains(self, values: ArrayLike) -> NDArray[np.bool_]:
        """Whether values of the functionals, (K,) or (K, N), lie in the region: one bool, or (N,) of them.

        Raises
        ------
        ValueError
            If the values are not finite numbers of this shape.
        """
        points, size = real_array(values, "values"), self.centre.size
        if points.ndim not in (1, 2) or points.shape[0] != size:
            raise ValueError(f"values must have shape ({size},) or ({size}, N): got {points.shape}")
        if not np.isfinite(points).all():
            raise ValueError("values hold NaN or infinite numbers: give finite ones")
        errors = points.reshape(size, -1) - self.centre[:, None]
        near = self.whitening.squared_lengths(errors) <= self.squared_radius
        inside = near & self.whitening.is_consistent(errors, self.rounding)
        return inside[0] if points.ndim == 1 else inside


@takes_confidence_level
def confidence_ellipsoid(
    P: BlueOperator | Problem,
    y: ArrayLike,
    W: Any,
    confidence_level: float = 0.95,
    draws: int | None = None,
    rng: Seed = None,
) -> Ellipsoid:
    """Confidence ellipsoid for Gaussian noise, exact at the stated level.

    Parameters
    ----------
    P : BlueOperator or Problem
    y : array_like, (n,)
        Noisy counts over the observed layout.
    W : array_like or sparse array, (m, K)
        Functionals over the desired layout, one in every column; `cell_weights` makes those of cells.
    confidence_level : float
    draws : int, optional
        Estimate the covariance from so many simulated errors instead of working it out. Their mean is known to be
        zero, so that with S = mean of e e' the statistic e' S^-1 e is Hotelling's T^2 with `draws` degrees of
        freedom, and (draws - r + 1) / (draws r) of it has the F law with r and draws - r + 1, r being the rank.
    rng : Generator, int or None
        Source of randomness, or its seed, of the draws.

    Returns
    -------
    Ellipsoid
        Its squared radius is a quantile of chi-square with as many degrees of freedom as the covariance has rank, or
        with `draws` of Hotelling's T^2.

    Raises
    ------
    ValueError
        If level, W or y are no such things, exact values contradict one another, W weighs a cell that is not
        estimable, or there are fewer draws than the rank.
    """
    P, W, confidence_level = _read(P, W, confidence_level)
    centre, rounding = _centre(P, y, W)
    whitening = Whitening.of_covariance(P.functional_covariance(W), _sizes(W))
    rank = whitening.rank
    if draws is None:
        return Ellipsoid(
            centre, whitening, chi_square_quantile(rank, confidence_level) if rank else 0.0, confidence_level, rounding
        )
    draws = read_draws(draws)
    if draws < rank:
        raise ValueError(f"{draws} draws are too few for the covariance of {rank} counts: give {rank} or more")
    moments = np.zeros((rank, rank))
    for errors in Replicates(P, rng, observed_weights(P, W)).columns(0, draws):
        z = whitening.whiten(errors)
        moments += z @ z.T / draws
    simulated = whitening.with_moments(moments)
    if simulated is None:
        raise ValueError(
            f"{draws} simulated errors of {P.problem.noise.law!r} noise do not span the {rank} dimensions of the "
            "counts: give more draws, or leave them out for the exact covariance"
        )
    scale = draws * rank / (draws - rank + 1)
    radius = scale * f_quantile(rank, draws - rank + 1, confidence_level) if rank else 0.0
    return Ellipsoid(centre, simulated, radius, confidence_level, rounding)


@takes_confidence_level
def simultaneous_band(
    P: BlueOperator | Problem,
    y: ArrayLike,
    W: Any,
    confidence_level: float = 0.95,
    simulations: int = SIMULATIONS,
    rng: Seed = None,
) -> tuple[Float, Float]:
    """Intervals for several functionals that all cover at once with the stated probability, for Gaussian noise.

    Each is its estimate plus or minus c standard deviations, c being the quantile of max |t| over the functionals.
    That has no closed form for correlated t: it is taken from simulations of the exact Gaussian law of the errors, by
    the order statistic of rank ceil(confidence_level (simulations + 1)), which keeps the level exact for any number.

    Parameters
    ----------
    P, y, W, confidence_level
        As for `confidence_ellipsoid`.
    simulations : int
        More make c less random: its relative error is about 1 / (3 sqrt(simulations)) at level 0.95.
    rng : Generator, int or None
        Source of randomness, or its seed.

    Returns
    -------
    lower, upper : ndarray, (K,)

    Raises
    ------
    ValueError
        If level, W, y or simulations are no such things, as for `confidence_ellipsoid`.
    """
    P, W, confidence_level = _read(P, W, confidence_level)
    simulations = whole_number(simulations, "simulations", 1)
    centre, rounding = _centre(P, y, W)
    found = Functionals(centre, P.functional_covariance(W))
    largest = LargestErrors(simulations + 1 - order_statistic(confidence_level, simulations))
    generator, whitening = random_generator(rng), Whitening.of_covariance(found.covariance, _sizes(W))
    block = max(1, 2**20 // max(W.shape[1], 1))
    while largest.count < simulations:
        width = min(block, simulations - largest.count)
        t = whitening.factor @ generator.standard_normal((whitening.rank, width))
        largest.add(abs(t).max(axis=0, initial=0.0)[None])
    return _band(found, rounding, float(largest.smallest[0]))


@takes_confidence_level
def distribution_free_band(
    P: BlueOperator | Problem,
    y: ArrayLike,
    W: Any,
    confidence_level: float = 0.95,
    *,
    draws: int,
    rng: Seed = None,
    progress: Progress | None = None,
) -> tuple[Float, Float]:
    """Intervals for several functionals that all cover at once, for every law of the noise.

    The order statistic of rank ceil(confidence_level (draws + 1)) of the largest studentised error, max |e_k| / sd_k
    with the exact standard deviations sd_k, over simulated errors of the problem's own law; the module says why it
    covers.

    Parameters
    ----------
    P, y, W, confidence_level
        As for `confidence_ellipsoid`.
    draws : int
        Simulated errors, at least confidence_level / (1 - confidence_level).
    rng : Generator, int or None
        Source of randomness, or its seed.
    progress : callable, optional
        Called after every batch of replicates with those done, and all of them.

    Returns
    -------
    lower, upper : ndarray, (K,)

    Raises
    ------
    ValueError
        If there are too few draws, or level, W or y are no such things.
    """
    P, W, confidence_level = _read(P, W, confidence_level)
    draws = read_draws(draws)
    centre, rounding = _centre(P, y, W)
    found = Functionals(centre, P.functional_covariance(W))
    scales = Whitening.of_covariance(found.covariance, _sizes(W)).scales[:, None]
    multiple = _depth_bound(P, W, confidence_level, draws, rng, progress, lambda e: abs(e / scales).max(axis=0))
    return _band(found, rounding, multiple)


@takes_confidence_level
def distribution_free_ellipsoid(
    P: BlueOperator | Problem,
    y: ArrayLike,
    W: Any,
    confidence_level: float = 0.95,
    *,
    draws: int,
    rng: Seed = None,
    progress: Progress | None = None,
) -> Ellipsoid:
    """Ellipsoid that covers for every law of the noise, from the order statistics of Mahalanobis depth.

    The exact covariance shapes it, and the order statistic of rank ceil(confidence_level (draws + 1)) of the squared
    Mahalanobis length of simulated errors is its squared radius; the module says why it covers. The parameters are
    those of `distribution_free_band`.

    Parameters
    ----------
    P, y, W, confidence_level, draws, rng, progress
        As for `distribution_free_band`.

    Returns
    -------
    Ellipsoid

    References
    ----------
    Yeh and Singh, Balanced confidence regions based on Tukey's depth and the bootstrap, 1997.
    """
    P, W, confidence_level = _read(P, W, confidence_level)
    draws = read_draws(draws)
    whitening = Whitening.of_covariance(P.functional_covariance(W), _sizes(W))
    radius = _depth_bound(P, W, confidence_level, draws, rng, progress, whitening.squared_lengths)
    centre, rounding = _centre(P, y, W)
    return Ellipsoid(
        centre, whitening, (np.sqrt(radius) + whitening.longest(rounding)) ** 2, confidence_level, rounding
    )


def _depth_bound(
    P: BlueOperator,
    W: sparse.csc_array,
    confidence_level: float,
    draws: int,
    rng: Seed,
    progress: Progress | None,
    depth: Callable[[Float], Float],
) -> float:
    """The order statistic of rank ceil(confidence_level (draws + 1)) of the depth of simulated errors of W, (m, K)."""
    largest = LargestErrors(draws + 1 - order_statistic(confidence_level, draws))
    for errors in Replicates(P, rng, observed_weights(P, W)).columns(0, draws):
        largest.add(depth(errors)[None])
        if progress is not None:
            progress(largest.count, draws)
    return float(largest.smallest[0])


def _band(found: Functionals, rounding: Float, multiple: float) -> tuple[Float, Float]:
    """Intervals of so many standard errors and rounding, (K,), around estimates, (K,)."""
    half = multiple * found.std_errors + rounding
    return found.estimate - half, found.estimate + half


def _read(P: BlueOperator | Problem, W: Any, confidence_level: float) -> tuple[BlueOperator, sparse.csc_array, float]:
    confidence_level = read_level(confidence_level)
    P = as_operator(P)
    W = read_weights(P.problem.desired, W)
    lost = None if P.problem.undetermined is None else (abs(W).sum(axis=1) > 0) & P.problem.undetermined
    if lost is not None and lost.any():
        raise ValueError(f"W weighs {why_undetermined(P.problem, int(lost.argmax()))}: leave out what it is in")
    return P, W, confidence_level


def _centre(P: BlueOperator, y: ArrayLike, W: sparse.csc_array) -> tuple[Float, Float]:
    """Estimates of functionals, (K,), and how far rounding may have moved them: all counts together make each."""
    found, counts = estimate(P, y), P.problem.observed.flat(y, "y")[~P.problem.unmeasured]
    if found.ndim != 1:
        raise ValueError(f"a region is around one estimate: y must have shape ({P.shape[1]},)")
    return W.T @ found, rounding_of(found, counts) * _sizes(W)


def _sizes(W: sparse.csc_array) -> Float:
    """What functionals, (m, K), weigh in all, (K,)."""
    return np.asarray(abs(W).sum(axis=0)).ravel()

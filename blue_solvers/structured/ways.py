"""Two ways to solve Q D z = r for z in the range of an orthogonal projection Q, and which of them is done sooner.

On the estimate: conjugate gradients with Q D Q. On its multipliers: with R = I - Q and E the inverse of D,

    R E w = R E r, w in the range of R,    z = Q E (r - w),

by conjugate gradients with R E R. Both take one Q and one D or E a step, or two Q and half the steps
(`softened_steps`), and both have eigenvalues between the least and the greatest of D or of its inverses. Few are as
extreme: Q D Q averages what it can of D, R E R of E. So where few cells are known much better than the others of their
table the multipliers are found sooner, and where few are known much worse the estimate is.

An error is as large as what is left shows, by the theorem of Prager and Synge. With z* the solution,

    |z - z*| in D  <=  |r - Q D z| in E,        |z - z*| in D  <=  |z + E (w - r)| in D,

where |v| in D is sqrt(v' D v), for any z in the range of Q and any w in that of R. The first is at most |r - Q D z|
over the root of the least eigenvalue of D, which serves where E is not to be had. So sizes are given in that unit,
times that root.

References
----------
Prager and Synge, Approximations in elasticity based on the concept of function space, 1947.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blue_solvers.normal_equations.krylov import Product, conjugate_gradients
from blue_solvers.structured.scaled_precision import ScaledPrecision
from blue_solvers.structured.softened_steps import SoftenedSteps
from constraint_builders.arrays import Float

FIRST_STEPS = 8  # of each way: they tell which is the better, but for near ties
MORE_STEPS = ((2.0, 40), (1.3, 100))  # where rates are nearer than this factor, and many steps are ahead
SMALL_RATIO = 10.0  # of precisions, at which both ways take some thirty steps
CLEARLY = 1.2  # of rates at large ratios, whose beginnings flatter the multipliers of a deep spine
LARGE_RATIO = 1_000.0  # at which either may take a thousand
LARGEST_RATIO = 1e8  # at which multipliers lose digits that the estimate keeps
SAFELY = 0.9  # of a goal: what is left, worked out afresh, is a little more than iterations say
DONE = 1e-10  # of what there was at the start


@dataclass(frozen=True)
class Found:
    """What a way found.

    Attributes
    ----------
    Z : ndarray, (m, K)
        In the range of Q, but for rounding.
    steps : int
        Of the slowest column.
    converged : bool
        Whether every column came as far as was asked.
    W : ndarray, (m, K), or None
        Multipliers, in the range of R but for rounding, where they were sought.
    """

    Z: Float
    steps: int
    converged: bool
    W: Float | None = None


class Way(Protocol):
    """Solves Q D Z = R, each column on its own."""

    def __call__(
        self, R: Float, goal: Float, most: int, raw: Float | None = None, told: Callable[[Float], None] | None = ...
    ) -> Found:
        """Solve until errors are bounded by `goal`, in the unit of `sizes_in`.

        Parameters
        ----------
        R : ndarray, (m, K)
            In the range of Q.
        goal : ndarray, (K,)
        most : int
            Iterations.
        raw : ndarray, (m, K), optional
            What R is the projection of: multipliers are then sought from Q E `raw`, not from Q E R.
        told : callable, optional
            Given the bounds of the columns that are open, at the start and after every step.
        """


def sizes_in(precision: ScaledPrecision, R: Float, whole: bool) -> Float:
    """Of every column of residuals the bound on the error that it shows, times the root of the least eigenvalue of D.

    Parameters
    ----------
    precision : ScaledPrecision
    R : ndarray, (m, K)
    whole : bool
        Whether R is over all cells that D is over.
    """
    if precision.inverse is None or not whole:
        return np.linalg.norm(R, axis=0)
    return _sizes(R, precision.inverse(R), precision)


def gaps_in(precision: ScaledPrecision, Z: Float, W: Float, R: Float) -> Float:
    """What multipliers show instead, in the same unit: the size of Z + E (W - R) in D; infinite where E is not known.

    Parameters
    ----------
    precision : ScaledPrecision
    Z, W, R : ndarray, (m, K)
        In the ranges of Q and of the rest, and the right-hand side.
    """
    if precision.inverse is None:
        return np.full(Z.shape[1], np.inf)
    open_ = Z + precision.inverse(W - R)
    return _sizes(open_, precision.product(open_), precision)


def on_estimate(
    project: Product, weigh: Product, precision: ScaledPrecision, whole: bool, softened: SoftenedSteps | None = None
) -> Way:
    """By conjugate gradients with Q D Q, `weigh` being the product with D; by `softened` ones where they are given."""

    def solve(
        R: Float, goal: Float, most: int, raw: Float | None = None, told: Callable[[Float], None] | None = None
    ) -> Found:
        def sizes(left: Float, _: object) -> Float:
            found = sizes_in(precision, left, whole)
            if told is not None:
                told(found)
            return found

        if softened is not None:
            return Found(*softened(R, goal, most, told))
        Z, steps, converged = conjugate_gradients(lambda Z: project(weigh(Z)), R, lambda R: R, sizes, goal, most)
        return Found(Z, steps, converged)

    return solve


def on_multipliers(
    project: Product, precision: ScaledPrecision, inverse: Product, softened: SoftenedSteps | None = None
) -> Way:
    """By conjugate gradients with R E R, for a precision whose inverse is known; by `softened` ones likewise."""

    def rest(U: Float) -> Float:
        return U - project(U)

    def solve(
        R: Float, goal: Float, most: int, raw: Float | None = None, told: Callable[[Float], None] | None = None
    ) -> Found:
        def sizes(left: Float, _: object) -> Float:
            found = _sizes(left, precision.product(left), precision)
            if told is not None:
                told(found)
            return found

        before = np.zeros_like(R) if raw is None else R - raw
        start = inverse(R - before)
        if softened is not None:
            W, steps, converged = softened(rest(start), SAFELY * goal, most, told)
        else:
            W, steps, converged = conjugate_gradients(
                lambda W: rest(inverse(W)), rest(start), lambda R: R, sizes, SAFELY * goal, most
            )
        return Found(project(start - inverse(W)), steps, converged, before + W)

    return solve


def multipliers_are_sooner(
    estimate: Way, multipliers: Way, R: Float, ratio: float | None, projections: tuple[int, int] = (1, 1)
) -> bool:
    """Whether fewer projections on the multipliers solve a problem, from a trial of both.

    How fast they are depends on how precisions are spread and on what Q averages, which no ratio tells. A few steps
    tell it but where both ways begin alike and slow down later, at large ratios alone.

    Parameters
    ----------
    R : ndarray, (m, 1)
        Some right-hand side, in the range of Q.
    ratio : float or None
        Of the largest precision to the smallest, in units of the structured problem's, where it is known.
    projections : tuple of int
        That a step of each way takes.
    """
    ways = tuple(zip((estimate, multipliers), projections, strict=True))
    if (ratio is not None and not SMALL_RATIO < ratio <= LARGEST_RATIO) or not R.any():
        return False
    first, second = (_decades(way, R, 0, FIRST_STEPS) / each for way, each in ways)
    if ratio is not None and ratio >= LARGE_RATIO:
        for near, stop in MORE_STEPS:
            if max(first, second) >= near * min(first, second):
                break
            first, second = (_decades(way, R, stop // (2 * each), stop // each) / each for way, each in ways)
        return second > CLEARLY * first
    return second > first


def _decades(way: Way, R: Float, start: int, stop: int) -> float:
    """By how much a step lowers the bound, in logarithms, from step `start` to `stop` or to where it is done."""
    bounds: list[float] = []
    goal = np.zeros(1)

    def told(sizes: Float) -> None:
        bounds.append(float(sizes[0]))
        goal[0] = DONE * bounds[0]

    way(R, goal, stop, told=told)
    reached = np.minimum.accumulate(bounds)
    if reached[-1] <= goal[0]:
        return np.inf if len(reached) <= start + 1 else float(np.log(reached[start] / goal[0])) / (len(reached) - start)
    return float(np.log(reached[min(start, len(reached) - 1)] / reached[-1])) / (stop - start)


def _sizes(R: Float, weighted: Float, precision: ScaledPrecision) -> Float:
    squares = np.einsum("ij,ij->j", R, weighted)
    return np.sqrt(precision.least * np.maximum(squares, 0.0))

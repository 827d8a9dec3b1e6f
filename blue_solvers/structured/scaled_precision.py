"""The precision of the noise in the scale of the nearest structured problem: D = s Sigma^-1 s.

s are the standard deviations of the structured problem, zero in cells that it does not move. D is diagonal for
uncorrelated noise; for correlated noise it takes the solution of a system in Sigma, by a sparse factorisation or by the
covariance operator's own method ``solve``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.structured.nearest import variance_ratio
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.noise import Noise

POWER_STEPS = 30  # of a random start: the largest eigenvalue to a factor of 2, with any realistic number of cells
SHARE_FOUND = 0.5


@dataclass(frozen=True)
class ScaledPrecision:
    """D, symmetric and positive semidefinite.

    Attributes
    ----------
    product : callable
        D Z for (n, K), a new array.
    inverse : callable or None
        E Z, D E Z being Z in cells that the structured problem moves and E Z zero in the others; None where some of
        these were not measured, and where only products with D can be trusted.
    least : float
        What its eigenvalues are at least, but for cells that were not measured.
    certain : bool
        Whether that is proved, and every cell that the structured problem moves was measured.
    ratio : float or None
        Of its largest eigenvalue to its smallest, where that is known.
    spread : str
        What makes iterations slow, in words.
    diagonal : ndarray, (n, 1), or None
        D itself where noise is uncorrelated and `inverse` is known.
    """

    product: Callable[[Float], Float]
    inverse: Callable[[Float], Float] | None
    least: float
    certain: bool
    ratio: float | None
    spread: str
    diagonal: Float | None = None


def scaled_precision(problem: Problem, deviations: Float) -> ScaledPrecision:
    """D for standard deviations s of the structured problem, (n,).

    Raises
    ------
    UnsupportedProblemError
        If the covariance is an operator without a method ``solve``.
    MemoryError
        If the factor of a sparse covariance does not fit.
    """
    if problem.covariance is None:
        return _uncorrelated(problem, deviations)
    entries = problem.noise.entries()
    if entries is not None:
        return _by_factor(entries, deviations)
    solve = problem.noise.solve
    if solve is None:
        raise UnsupportedProblemError("its covariance is an operator without a method solve(V), its inverse times V")
    return _by_solves(problem.noise, solve, deviations)


def _uncorrelated(problem: Problem, deviations: Float) -> ScaledPrecision:
    used = (deviations > 0) & ~problem.unmeasured
    ratios = np.zeros((used.size, 1))
    ratios[used, 0] = deviations[used] ** 2 / problem.variances[used]
    least, greatest = float(ratios[used].min(initial=1.0)), float(ratios[used].max(initial=1.0))
    within = variance_ratio(problem)
    spread = f"variances within a table being in a ratio of up to {min(within, greatest / least):.3g}"
    certain = bool(used[deviations > 0].all())
    inverses = np.divide(1.0, ratios, out=np.zeros_like(ratios), where=ratios > 0)
    return ScaledPrecision(
        lambda Z: ratios * Z,
        (lambda Z: inverses * Z) if certain else None,
        least,
        certain,
        greatest / least,
        spread,
        ratios if certain else None,
    )


def _by_factor(covariance: sparse.csr_array, deviations: Float) -> ScaledPrecision:
    """A matrix has no eigenvalue above its largest row sum of absolute values, of s^-1 Sigma s^-1 here."""
    own = np.sqrt(covariance.diagonal())
    unscaled = sparse.diags_array(1 / own)
    factor = factorise(sparse.csr_array(unscaled @ covariance @ unscaled))
    scale = (deviations / own)[:, None]
    sums = abs(covariance) @ (1 / deviations) / deviations
    divisor = deviations[:, None]
    return ScaledPrecision(
        lambda Z: scale * factor.solve(scale * Z),
        lambda Z: (covariance @ (Z / divisor)) / divisor,
        1 / float(sums.max()),
        True,
        None,
        "the noise being correlated",
    )


def _by_solves(noise: Noise, solve: Callable[[Float], Float], deviations: Float) -> ScaledPrecision:
    scale = deviations[:, None]
    largest = _largest_eigenvalue(lambda Z: (noise @ (Z / scale)) / scale, deviations.size)
    return ScaledPrecision(
        lambda Z: scale * solve(scale * Z),
        None,
        SHARE_FOUND / largest,
        False,
        None,
        "the noise being correlated",
    )


def _largest_eigenvalue(product: Callable[[Float], Float], size: int) -> float:
    """Rayleigh quotient after some steps of the power method: a lower bound."""
    z = np.random.default_rng(0).standard_normal((size, 1))
    for _ in range(POWER_STEPS):
        z = product(z)
        z /= np.linalg.norm(z)
    return float(np.vdot(z, product(z)))

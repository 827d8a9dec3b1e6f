"""Standard errors of figures from below, where counts are too many to list.

For any direction z of counts that changes nothing that is known exactly, a figure's variance is at least
z_i^2 / (z' M' Sigma^-1 M z), z_i what z makes of it. Where nothing is known exactly one cell of a leaf is such a
direction for every figure that it is in, and the mean of what these say holds. Elsewhere random ones are, less what
of them changes what is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.least_multipliers import Sums, least_multipliers, multipliers_of
from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise, reciprocal
from constraint_builders.arrays import Float

DIRECTIONS = 8
FIXED = 1e-9  # of what a direction moves: less is rounding, the figure is known exactly
MARGIN = 0.9
CLEAN = 1e-10  # of what a direction moves: what it may change of what is known exactly
CLEANINGS = 3


def least_standard_errors(sums: Sums, noise: WeighedNoise, free: NDArray[np.bool_], known: sparse.csr_array) -> Float:
    """Of every figure, (figures,); 0 where it may be known exactly."""
    precision, spread = reciprocal(noise.least) ** 2, _spread(sums, noise, free)
    if not known.shape[0]:
        squares = sums.figures_of(spread, power=2)
        return MARGIN * np.sqrt(squares / np.maximum(sums.figures_of(np.ones(free.shape), power=0), 1))
    rng, found = np.random.default_rng(0), np.zeros(sums.figures)
    for _ in range(DIRECTIONS):
        drawn = np.sqrt(spread) * rng.standard_normal(free.shape)
        moved, whole = sums.figures_of(_keeping(sums, known, spread, drawn)), sums.figures_of(abs(drawn), power=1)
        own = moved[: precision.size]
        if (abs(known @ own) > CLEAN * (abs(known) @ whole[: own.size])).any():
            raise NotCertifiedError("no directions were found that leave what is known exactly as it is")
        size = float(np.sqrt(precision @ own**2))
        if size > 0:
            found = np.maximum(found, np.where(abs(moved) > FIXED * whole, MARGIN * abs(moved) / size, 0.0))
    return found


def moved_to_known(
    sums: Sums, noise: WeighedNoise, free: NDArray[np.bool_], known: sparse.csr_array, off: Float
) -> Float:
    """By how much figures move, (figures,), where cells are moved until what is known is no longer `off`, (k,)."""
    moved, spread, left = np.zeros(sums.figures), _spread(sums, noise, free), off
    for _ in range(CLEANINGS):
        cells = spread * sums.shares_of(known.T @ multipliers_of(sums, known, spread, left))
        tried = moved + sums.figures_of(cells)
        closer = off - known @ tried[: known.shape[1]]
        if np.linalg.norm(closer) >= np.linalg.norm(left):
            break
        moved, left = tried, closer
    return abs(moved)


def _spread(sums: Sums, noise: WeighedNoise, free: NDArray[np.bool_]) -> Float:
    """Of every free cell its variance, were all others known, (leaves, cells)."""
    information = sums.with_others(sums.shares_of(reciprocal(noise.least) ** 2, power=2))
    return np.divide(1.0, information, out=np.zeros_like(information), where=free & (information > 0))


def _keeping(sums: Sums, known: sparse.csr_array, spread: Float, z: Float) -> Float:
    """A direction less what of it changes what is known exactly."""
    changed = np.inf
    for _ in range(CLEANINGS):
        along = np.divide(z, spread, out=np.zeros_like(z), where=spread > 0)
        less = z - spread * sums.shares_of(known.T @ least_multipliers(sums, known, spread, along))
        left = float(np.linalg.norm(known @ sums.figures_of(less)[: known.shape[1]]))
        if left >= changed:
            break
        z, changed = less, left
    return z

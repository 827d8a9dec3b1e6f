"""Multipliers of what is known exactly that leave the least, and directions that change none of it, by iterations."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.verification.time_limit import require_time
from constraint_builders.arrays import Float

MOST_STEPS = 500
TO = 1e-14  # of what is left, iterations go on
GROWN = 1e8  # times the least that was left, squared


class Sums(Protocol):
    """Figures as sums of leaves' cells, and the transpose."""

    figures: int

    def figures_of(self, cells: NDArray, power: int | None = None) -> NDArray:
        """(leaves, cells) to (figures,); with powers of the weights' sizes instead of these."""

    def shares_of(self, figures: NDArray, power: int | None = None) -> NDArray:
        """(figures,) to (leaves, cells)."""

    def with_others(self, amounts: Float) -> Float:
        """Of a count in every cell what all cells have that it is in, at most, (leaves, cells) likewise."""


def least_multipliers(sums: Sums, known: sparse.csr_array, weights: Float, left: Float) -> Float:
    """For which left - M' known' multipliers is least, cells weighted by `weights`, (leaves, cells).

    As near as iterations come: a certificate holds with any.
    """
    return multipliers_of(sums, known, weights, known @ sums.figures_of(weights * left)[: known.shape[1]])


def multipliers_of(sums: Sums, known: sparse.csr_array, weights: Float, amounts: Float) -> Float:
    """For which moving all cells by weights M' known' multipliers changes what is known by these amounts, (k,)."""

    def product(multipliers: Float) -> Float:
        return known @ sums.figures_of(weights * sums.shares_of(known.T @ multipliers))[: known.shape[1]]

    squares = abs(known).power(2) @ sums.figures_of(weights, power=2)[: known.shape[1]]
    scale = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))
    size = known.shape[0]
    found, left_over = np.zeros(size), scale * amounts
    step, square = left_over, float(left_over @ left_over)
    goal, nearest, best = TO**2 * square, square, found
    for _ in range(MOST_STEPS):
        require_time()
        image = scale * product(scale * step)
        curvature = float(step @ image)
        if square <= goal or curvature <= 0:
            break
        found, left_over = found + square / curvature * step, left_over - square / curvature * image
        before, square = square, float(left_over @ left_over)
        step = left_over + square / before * step
        if square < nearest:  # rounding out of the range of the equations would grow without end
            nearest, best = square, found
        elif square > GROWN * nearest:
            break
    return scale * best

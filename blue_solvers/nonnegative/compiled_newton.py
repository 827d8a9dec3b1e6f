"""The Newton steps of small programmes, compiled by numba (the extra ``fast``).

The same method as `blue_solvers.nonnegative.newton.minimise_in_numpy`, which is its reference in the tests, with a
dense Cholesky factorisation. It pays where a programme is so small that calls into numpy cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from blue_solvers.nonnegative.programme import Programme, Solution
from blue_solvers.nonnegative.tolerances import (
    ACCEPTED,
    AS_STEEP,
    FLATTENED,
    LARGEST_SHIFT,
    LEAST_SHIFT,
    MAX_HALVINGS,
    MAX_STEPS,
    RELAXED,
    SUFFICIENT_DECREASE,
    TARGET,
)
from constraint_builders.arrays import Float

try:
    import numba

    AVAILABLE = True
except ImportError:
    AVAILABLE = False


def _compiled(function: Callable) -> Callable:
    """Compile a function where numba is installed; elsewhere nothing calls it."""
    return numba.njit(cache=True)(function) if AVAILABLE else function


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Index = NDArray[np.int32]

EPSILON = 2.220446049250313e-16


def minimise(p: Programme, start: Float) -> tuple[Solution, float]:
    """Solve a programme whose cell weights are all positive; also its largest residual, in counts.

    Parameters
    ----------
    p : Programme
    start : ndarray, (m,)
        First multipliers.

    Returns
    -------
    Solution
    float
    """
    cells, multipliers, steps, error = _minimise(
        p.M.indptr, p.M.indices, p.M.data, p.target, p.weight, p.lower, p.upper, p.answer, p.variance, p.radius, start
    )
    return Solution(cells, multipliers, steps), error


@_compiled
def _evaluate(
    indptr: Index, indices: Index, data: Float, target: Float, weight: Float, lower: Float, upper: Float,
    answer: Float, variance: Float, radius: Float, multipliers: Float, cells: Float, free: Float, residual: Float,
    slope: Float,
) -> tuple[float, float]:  # fmt: skip
    """Fill cells, free (1 or 0), residual and slope; return the dual function and its rounding."""
    value = 0.0
    size = 0.0
    for i in range(answer.size):
        wanted = variance[i] * multipliers[i]
        deviation = min(max(wanted, -radius[i]), radius[i])
        slope[i] = variance[i] if abs(wanted) < radius[i] else 0.0
        residual[i] = -answer[i] - deviation
        term = multipliers[i] * (answer[i] + deviation)
        if variance[i] > 0:
            term -= deviation * deviation / (2 * variance[i])
        value += term
        size += abs(term)
    for j in range(target.size):
        pull = 0.0
        for k in range(indptr[j], indptr[j + 1]):
            pull += data[k] * multipliers[indices[k]]
        unbounded = target[j] - pull / weight[j]
        free[j] = 1.0 if lower[j] < unbounded < upper[j] else 0.0
        cell = min(max(unbounded, lower[j]), upper[j])
        cells[j] = cell
        term = 0.5 * weight[j] * (cell - target[j]) ** 2 + pull * cell
        value -= term
        size += abs(term)
        if cell != 0.0:
            for k in range(indptr[j], indptr[j + 1]):
                residual[indices[k]] += data[k] * cell
    return value, 10 * EPSILON * size


@_compiled
def _assemble(
    indptr: Index, indices: Index, data: Float, weight: Float, free: Float, slope: Float, residual: Float,
    shift: float, unmet: float, guard: Float, matrix: Float,
) -> None:  # fmt: skip
    """Fill the lower triangle of the Newton matrix; see `newton_systems.NewtonSystem.added_diagonal`."""
    matrix[:] = 0.0
    for j in range(weight.size):
        if free[j] != 0.0:
            for k in range(indptr[j], indptr[j + 1]):
                scaled = data[k] / weight[j]
                row = indices[k]
                for other in range(indptr[j], k + 1):
                    matrix[row, indices[other]] += scaled * data[other]
    for i in range(slope.size):
        matrix[i, i] += slope[i]
        if matrix[i, i] > 0:
            matrix[i, i] *= 1 + (LEAST_SHIFT if slope[i] > 0 else shift)
        else:
            matrix[i, i] = guard[i]
            if abs(residual[i]) > unmet:
                guard[i] *= RELAXED


@_compiled
def _solve_cholesky(matrix: Float, right: Float, solution: Float) -> None:
    """Solve a symmetric positive definite system from its lower triangle, which is overwritten by the factor."""
    size = right.size
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = np.sqrt(max(total, LEAST_SHIFT * matrix[i, i])) if i == j else total / matrix[j, j]
    for i in range(size):
        total = right[i]
        for k in range(i):
            total -= matrix[i, k] * solution[k]
        solution[i] = total / matrix[i, i]
    for i in range(size - 1, -1, -1):
        solution[i] /= matrix[i, i]
        for k in range(i):
            solution[k] -= matrix[i, k] * solution[i]


@_compiled
def _minimise(
    indptr: Index, indices: Index, data: Float, target: Float, weight: Float, lower: Float, upper: Float,
    answer: Float, variance: Float, radius: Float, start: Float,
) -> tuple[Float, Float, int, float]:  # fmt: skip
    rows, count = answer.size, target.size
    cells, free = np.empty(count), np.empty(count)
    residual, slope, direction, trial = np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows)
    matrix, guard = np.empty((rows, rows)), np.zeros(rows)
    for j in range(count):
        if upper[j] > lower[j]:
            for k in range(indptr[j], indptr[j + 1]):
                guard[indices[k]] += data[k] * data[k] / weight[j]
    scale = 1.0
    for i in range(rows):
        guard[i] = guard[i] if guard[i] > 0 else 1.0
        scale = max(scale, abs(answer[i]))
    for j in range(count):
        scale = max(scale, abs(target[j]))
    multipliers = start.copy()
    value, rounding = _evaluate(
        indptr, indices, data, target, weight, lower, upper, answer, variance, radius, multipliers, cells, free,
        residual, slope,
    )  # fmt: skip
    error = np.abs(residual).max() if rows else 0.0
    best_error, best_cells, best_multipliers = error, cells.copy(), multipliers.copy()
    steps = 0
    while error > TARGET * scale and steps < MAX_STEPS:
        shift = min(LARGEST_SHIFT, max(LEAST_SHIFT, error / scale))
        _assemble(indptr, indices, data, weight, free, slope, residual, shift, ACCEPTED * scale, guard, matrix)
        _solve_cholesky(matrix, residual, direction)
        steepness = residual @ direction
        low, high, length = 0.0, np.inf, 1.0
        new_value, new_rounding = value, rounding
        for _ in range(MAX_HALVINGS):
            for i in range(rows):
                trial[i] = multipliers[i] + length * direction[i]
            new_value, new_rounding = _evaluate(
                indptr, indices, data, target, weight, lower, upper, answer, variance, radius, trial, cells, free,
                residual, slope,
            )  # fmt: skip
            trial_slope = -(residual @ direction)
            decreased = new_value <= value - SUFFICIENT_DECREASE * length * steepness
            flattened = new_value <= value + rounding and trial_slope <= FLATTENED * steepness
            steep = trial_slope <= -AS_STEEP * steepness and error > ACCEPTED * scale
            if (decreased or flattened) and not steep:
                break
            if trial_slope < 0:
                low = length
            else:
                high = length
            length = 0.5 * (low + high) if high < np.inf else 2 * low
        multipliers[:] = trial
        value, rounding, previous = new_value, new_rounding, error
        error = np.abs(residual).max()
        steps += 1
        if error < best_error:
            best_error = error
            best_cells[:] = cells
            best_multipliers[:] = multipliers
        if previous <= ACCEPTED * scale and error > 0.5 * previous:
            break
    return best_cells, best_multipliers, steps, best_error

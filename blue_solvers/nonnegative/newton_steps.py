"""The Newton steps, in numpy for programmes of any size, and as a loop to be compiled for small ones.

The loop pays where a programme is so small that calls into numpy cost more than the arithmetic.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.dual_state import State
from blue_solvers.nonnegative.newton_systems import newton_system
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
from constraint_builders.arrays import Float, Int32
from constraint_builders.compiled import compiled

EPSILON = 2.220446049250313e-16


def minimise_small(p: Programme, start: Float) -> tuple[Solution, float]:
    """`minimise_in_numpy` by whatever is fastest for few rows."""
    cells, multipliers, steps, error = minimise_arrays.fastest()(
        p.M.indptr, p.M.indices, p.M.data, p.target, p.weight, p.lower, p.upper, p.answer, p.variance, p.radius, start
    )
    return Solution(cells, multipliers, steps), error


def evaluate(p: Programme, multipliers: Float) -> State:
    """The dual function of a programme whose cell weights are all positive."""
    pull = p.M.T @ multipliers
    unbounded = p.target - pull / p.weight
    cells = np.clip(unbounded, p.lower, p.upper)
    wanted = p.variance * multipliers
    deviation = np.clip(wanted, -p.radius, p.radius)
    square = np.divide(deviation**2, 2 * p.variance, out=np.zeros_like(deviation), where=p.variance > 0)
    of_cells = 0.5 * p.weight * (cells - p.target) ** 2 + pull * cells
    of_rows = multipliers * (p.answer + deviation) - square
    return State(
        multipliers,
        cells,
        (p.lower < unbounded) & (unbounded < p.upper),
        p.M @ cells - p.answer - deviation,
        np.where(abs(wanted) < p.radius, p.variance, 0.0),
        float(of_rows.sum() - of_cells.sum()),
        float(10 * np.finfo(float).eps * (abs(of_rows).sum() + abs(of_cells).sum())),
    )


def minimise_in_numpy(p: Programme, start: Float) -> tuple[Solution, float]:
    """Solve a programme of any size whose cell weights are all positive; also its largest residual, in counts."""
    state = best = evaluate(p, start)
    system = newton_system(p)
    steps = 0
    while state.error > TARGET * p.scale and steps < MAX_STEPS:
        previous = state
        state = _line_search(p, state, system.solve(state))
        steps += 1
        best = state if state.error < best.error else best
        if previous.error <= ACCEPTED * p.scale and state.error > 0.5 * previous.error:
            break
    return Solution(best.cells, best.multipliers, steps), best.error


def _line_search(p: Programme, state: State, direction: Float) -> State:
    """The first acceptable point along a direction: by bisection on the slope of the dual function.

    Where the function stays as steep the step is doubled: rows held exactly are flat while their cells sit on bounds.
    """
    slope = -float(state.residual @ direction)
    low, high, length = 0.0, np.inf, 1.0
    trial = state
    for _ in range(MAX_HALVINGS):
        trial = evaluate(p, state.multipliers + length * direction)
        trial_slope = -float(trial.residual @ direction)
        decreased = trial.value <= state.value + SUFFICIENT_DECREASE * length * slope
        flattened = trial.value <= state.value + state.rounding and trial_slope <= FLATTENED * abs(slope)
        steep = trial_slope <= AS_STEEP * slope and state.error > ACCEPTED * p.scale
        if (decreased or flattened) and not steep:
            break
        low, high = (length, high) if trial_slope < 0 else (low, length)
        length = 0.5 * (low + high) if high < np.inf else 2 * low
    return trial


def minimise_arrays_in_numpy(
    indptr: Int32, indices: Int32, data: Float, target: Float, weight: Float, lower: Float, upper: Float,
    answer: Float, variance: Float, radius: Float, start: Float,
) -> tuple[Float, Float, int, float]:  # fmt: skip
    """`minimise_in_numpy` of a programme in arrays: the cells, the multipliers, the steps and the largest residual."""
    M = sparse.csc_array((data, indices, indptr), shape=(answer.size, target.size))
    programme = Programme(M, target, weight, lower, upper, answer, variance, radius)
    solution, error = minimise_in_numpy(programme, start)
    return solution.cells, solution.multipliers, solution.iterations, error


def _evaluate(
    indptr: Int32, indices: Int32, data: Float, target: Float, weight: Float, lower: Float, upper: Float,
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


def _assemble(
    indptr: Int32, indices: Int32, data: Float, weight: Float, free: Float, slope: Float, residual: Float,
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


@compiled(reference=minimise_arrays_in_numpy)
def minimise_arrays(
    indptr: Int32, indices: Int32, data: Float, target: Float, weight: Float, lower: Float, upper: Float,
    answer: Float, variance: Float, radius: Float, start: Float,
) -> tuple[Float, Float, int, float]:  # fmt: skip
    """See `minimise_arrays_in_numpy`; with a dense Cholesky factorisation."""
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

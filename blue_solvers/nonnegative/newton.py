"""Dual semismooth Newton: one multiplier for every coarse row, the cells eliminated.

For multipliers ``lam`` the cells are ``x = clip(target - M' lam / weight, lower, upper)`` and the rows
``z = clip(answer + variance lam, answer - radius, answer + radius)``. The dual function is convex, once differentiable
and piecewise quadratic, with gradient ``-(M x - z)``. A full Newton step is a weighted least-squares (BLUE) solve with
the cells that sit on a bound removed; it is damped by a line search on the dual function.

References
----------
Li, Sun and Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso problems", SIAM J.
Optim. 28 (2018), for the method; Hager and Zhang, SIAM J. Optim. 16 (2005), for the approximate Wolfe conditions.
"""

from __future__ import annotations

import numpy as np

from blue_solvers.nonnegative import compiled_newton as kernels
from blue_solvers.nonnegative.dual_state import State
from blue_solvers.nonnegative.newton_systems import newton_system
from blue_solvers.nonnegative.programme import NotConvergedError, Programme, Solution
from blue_solvers.nonnegative.tolerances import (
    ACCEPTED,
    AS_STEEP,
    FLATTENED,
    MAX_HALVINGS,
    MAX_STEPS,
    SUFFICIENT_DECREASE,
    TARGET,
)
from constraint_builders.arrays import Float

KERNEL_ROWS = 96


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


def minimise(p: Programme, start: Float | None = None) -> Solution:
    """Solve a programme whose cell weights are all positive.

    Programmes of few rows run in the compiled kernel where numba is installed, with the same steps.

    Parameters
    ----------
    p : Programme
    start : ndarray, (m,), optional
        First multipliers, by default zero.

    Returns
    -------
    Solution

    Raises
    ------
    NotConvergedError
        If the residual stays above 1e-9 of the largest count, as it does when no cells within their bounds meet the
        exact rows.
    """
    multipliers = np.zeros(p.answer.size) if start is None else start
    compiled = kernels.AVAILABLE and p.answer.size <= KERNEL_ROWS
    solution, error = (kernels.minimise if compiled else minimise_in_numpy)(p, multipliers)
    if not error <= ACCEPTED * p.scale:
        raise NotConvergedError(
            f"no fit after {solution.iterations} Newton steps: rows are off by {error:.3g}. If some tables are known "
            "exactly, check that non-negative cells can meet them all; otherwise please report the problem"
        )
    return solution


def minimise_in_numpy(p: Programme, start: Float) -> tuple[Solution, float]:
    """`minimise` at any size, the reference of the compiled kernel; also the largest residual, in counts."""
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

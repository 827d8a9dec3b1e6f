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

from blue_solvers.nonnegative.newton_steps import minimise_in_numpy, minimise_small
from blue_solvers.nonnegative.programme import NotConvergedError, Programme, Solution
from blue_solvers.nonnegative.tolerances import ACCEPTED
from constraint_builders.arrays import Float

SMALL = 96  # rows


def minimise(p: Programme, start: Float | None = None) -> Solution:
    """Solve a programme whose cell weights are all positive.

    Programmes of few rows run in compiled code where numba is installed, with the same steps.

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
    solution, error = (minimise_small if p.answer.size <= SMALL else minimise_in_numpy)(p, multipliers)
    if not error <= ACCEPTED * p.scale:
        raise NotConvergedError(
            f"no fit after {solution.iterations} Newton steps: rows are off by {error:.3g}. If some tables are known "
            "exactly, check that non-negative cells can meet them all; otherwise please report the problem"
        )
    return solution

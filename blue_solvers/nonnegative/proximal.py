"""Programmes in which some cells have no weight of their own: a proximal point method around the Newton steps.

Where nothing measures a cell by itself the least squares may have many solutions. Each round adds a small quadratic
that ties such cells to where they were. The sums that were measured come out as in every solution; the cells come out
as one of the solutions.

References
----------
Rockafellar, "Monotone operators and the proximal point algorithm", SIAM J. Control Optim. 14 (1976).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blue_solvers.nonnegative.newton import minimise
from blue_solvers.nonnegative.programme import NotConvergedError, Programme, Solution, kkt_residual

ACCURACY = 1e-11  # KKT residual at which the rounds end, relative to the largest count
ACCEPTED = 1e-8
MAX_ROUNDS = 60
FIRST_TIE, LAST_TIE = 1e-1, 1e-5  # relative to the curvature that the rows bring


def solve(p: Programme) -> Solution:
    """Solve any programme.

    Parameters
    ----------
    p : Programme

    Returns
    -------
    Solution
        Its iterations are Newton steps, of all rounds together.

    Raises
    ------
    NotConvergedError
        If no cells within their bounds meet the exact rows, or the rounds do not end.
    """
    untied = (p.weight == 0) & (p.lower < p.upper)
    if not untied.any():
        return minimise(p)
    curvature = float(p.curvature.max()) or 1.0
    center, multipliers, steps = np.clip(p.target, p.lower, p.upper), None, 0
    for round_number in range(MAX_ROUNDS):
        tie = curvature * max(FIRST_TIE * 0.1**round_number, LAST_TIE)
        tied = replace(p, weight=np.where(p.weight == 0, tie, p.weight), target=np.where(untied, center, p.target))
        found = minimise(tied, multipliers)
        center, multipliers, steps = found.cells, found.multipliers, steps + found.iterations
        solution = Solution(center, multipliers, steps)
        error = kkt_residual(p, solution)
        if error <= ACCURACY * p.scale:
            return solution
    if error > ACCEPTED * p.scale:
        raise NotConvergedError(
            f"no fit after {MAX_ROUNDS} proximal rounds: the optimality conditions are off by {error:.3g} counts. "
            "Measure the detailed table too, if only with a large variance"
        )
    return solution

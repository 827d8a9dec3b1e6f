"""The fit of measurements to their noise, with the estimate that it needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.contract import Solver
from blue_solvers.operator import estimate
from blue_solvers.solvers import SolverName
from blue_solvers.verification import Fit
from constraint_builders import Problem


def fit_test(
    problem: Problem,
    y: ArrayLike,
    solver: SolverName | Solver = "auto",
    draws: int = 200,
    rng: np.random.Generator | int | None = None,
) -> Fit:
    """Estimate, and test the measurements against the noise that they claim.

    Parameters
    ----------
    problem : Problem
    y : array_like, (n,)
    solver : str or Solver
    draws : int
        Replicates of noise that is not Gaussian.
    rng : Generator or int, optional
        What they are drawn from.

    Returns
    -------
    Fit

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0})
    >>> fit = fit_test(problem, [9.0, 1.0, 2.0])
    >>> fit.degrees_of_freedom, round(fit.statistic, 6)
    (1, 12.0)
    """
    return estimate(problem, y, solver, certify=False).fit(draws, rng)

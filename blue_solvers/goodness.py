"""The fit of measurements to their noise, with the estimate that it needs, and what it comes to in a word."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.contract import Solver
from blue_solvers.operator import estimate
from blue_solvers.solvers import SolverName
from blue_solvers.verification import Fit, FitOfParts
from blue_solvers.verification.fit_of_parts import Verdict as Verdict
from blue_solvers.verification.probabilities import DOUBTFUL
from constraint_builders import Problem

MISFIT = "DOES NOT FIT the noise that is declared"
LOOSE = "nothing ties the numbers together, so that nothing checks them"
NOT_TESTED = "the fit was not tested when it was estimated"


def doubt_of(fit: FitOfParts | None, noticed: str = "") -> str:
    """What is doubtful about what a result was estimated from, by the fit that is stored with it; or "".

    `noticed` is what was when the files were read.
    """
    if fit is None:
        said = NOT_TESTED
    elif not fit.degrees_of_freedom:
        said = LOOSE
    else:
        said = "" if fit.fits else MISFIT
    return "; ".join(filter(None, (said, noticed)))


def explained(fit: Fit) -> str:
    """What the verdict on a fit means, and what else than wrong variances may be behind it."""
    word, law = fit.parts.verdict, fit.problem.noise.law
    if fit.tails.fixed not in fit.values:
        return word.explained
    if word == Verdict.FITS and fit.p_value < DOUBTFUL:
        return f"{Verdict.TOO_CLOSE.explained}, as many small counts do: 0 is published as it is by {law!r}"
    by_rounding = word == Verdict.CONTRADICTORY and not getattr(law, "is_random", True)
    return word.explained + f", as many small counts do: {law!r} makes most of them smaller" * by_rounding


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
    return estimate(problem, y, solver, certify=False).goodness_of_fit(draws, rng)

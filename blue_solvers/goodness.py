"""The fit of measurements to their noise, with the estimate that it needs, and what it comes to in a word."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.contract import Solver
from blue_solvers.estimates import Estimate
from blue_solvers.operator import estimate
from blue_solvers.solvers import SolverName
from blue_solvers.verification import Fit, FitOfParts
from blue_solvers.verification.fit_of_parts import DOUBTFUL
from blue_solvers.verification.probabilities import Outlier, of_chi_square, of_largest
from constraint_builders import Problem
from noise_mechanisms.laws import PublishedCount, kind_of
from noise_mechanisms.laws.named_laws import excess_kurtosis

FEW_DEGREES = 50  # up to which sums of whole numbers are far from normal
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


class Verdict(StrEnum):
    """What a fit comes to."""

    FITS = "as declared"
    TOO_CLOSE = "too close"
    CONTRADICTORY = "contradictory"
    UNTESTED = "cannot be tested"

    @property
    def explained(self) -> str:
        """The end of a sentence about the measurements."""
        return {
            Verdict.FITS: "values agree with the variances that they claim",
            Verdict.TOO_CLOSE: "values differ by less than their variances claim",
            Verdict.CONTRADICTORY: "values differ by more than their variances allow",
            Verdict.UNTESTED: "no measurement checks another",
        }[self]


def verdict(fit: Fit) -> Verdict:
    """Whether all residuals together are improbable, or of Gaussian noise the largest of them is.

    Where a law publishes 0 as it is, its variance is an average over counts: a statistic that is too small for that
    fits where it is not below what is expected if every 0 among the figures is a count of 0, without noise.
    """
    if not fit.degrees_of_freedom:
        return Verdict.UNTESTED
    if judged_p_value(fit) < DOUBTFUL:
        if fit.statistic >= fit.degrees_of_freedom:
            return Verdict.CONTRADICTORY
        return Verdict.FITS if fit.statistic >= _without_zeros(fit) else Verdict.TOO_CLOSE
    gaussian = kind_of(fit.problem.noise.law).family == "gaussian"
    alone = min((_alone(fit, own) for own in fit.outliers(1)), default=1.0) if gaussian else 1.0
    return Verdict.CONTRADICTORY if alone < DOUBTFUL else Verdict.FITS


def _alone(fit: Fit, worst: Outlier) -> float:
    """The probability of the largest residual: by replicates, or beyond all of these by the kurtosis of the law."""
    size = abs(worst.residual)
    if fit.replicates is not None and size <= fit.replicates.largest.max():
        return worst.probability
    by_law = of_largest(size, fit.checked, _excess(fit))
    return by_law if fit.replicates is None else min(worst.probability, by_law)


def judged_p_value(fit: Fit) -> float:
    """The p-value by which a fit is judged, which is shown: without replicates by the kurtosis of the law."""
    if fit.replicates is not None or fit.problem.noise.covariance is not None:
        return fit.p_value_beyond
    return of_chi_square(fit.statistic, fit.degrees_of_freedom, _excess(fit))


def _excess(fit: Fit) -> float:
    """The largest excess kurtosis of the noise."""
    return excess_kurtosis(fit.problem.noise.law, fit.variances)


def _without_zeros(fit: Fit) -> float:
    """What the statistic is expected to be if figures of 0 have no noise; infinite where the law gives them some."""
    law = fit.problem.noise.law
    if not isinstance(law, PublishedCount) or law.variance_at(0.0):
        return np.inf
    return float(fit.redundancy[fit.published != 0].sum())


def shown_fit(est: Estimate) -> Fit:
    """The fit of an estimate as it is shown: of few figures that a law published by replicates.

    Of few with other noise than Gaussian where chi-square finds what is improbable.
    """
    fit, noise = est.goodness_of_fit(draws=0), est.problem.noise
    if noise.law == "gaussian" or noise.covariance is not None or not 0 < fit.degrees_of_freedom <= FEW_DEGREES:
        return fit
    if isinstance(noise.law, str) and fit.p_value >= DOUBTFUL and verdict(fit) == Verdict.FITS:
        return fit
    return est.goodness_of_fit(rng=0)  # of whole numbers it is often exactly 0


def explained(fit: Fit) -> str:
    """What the verdict on a fit means, and what else than wrong variances may be behind it."""
    word, law = verdict(fit), fit.problem.noise.law
    if word == Verdict.FITS and judged_p_value(fit) < DOUBTFUL and fit.statistic < fit.degrees_of_freedom:
        return f"{Verdict.TOO_CLOSE.explained}, as many small counts do: 0 is published as it is by {law!r}"
    return word.explained


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

"""Whether measurements agree with the variances that they claim: what the command says of it, in one line."""

from __future__ import annotations

import numpy as np

from blue_solvers.estimates import Estimate
from blue_solvers.verification.goodness_of_fit import DOUBTFUL


def fit_line(est: Estimate) -> str | None:
    """Compare measurements with their best estimates.

    Parameters
    ----------
    est : Estimate

    Returns
    -------
    str or None
        Chi-square, its degrees of freedom, and the largest residual with its cell. None where no measurement checks
        another, or the estimate is not the best one.
    """
    if not est.operator.info.exact:
        return None
    fit = est.fit(draws=0)
    largest = fit.outliers(1)
    if not fit.degrees_of_freedom or not largest:
        return None
    degrees = f"{fit.degrees_of_freedom:,} degree{'s' * (fit.degrees_of_freedom != 1)} of freedom"
    agreement = f"chi-square {fit.statistic:,.4g} on {degrees}, p = {fit.p_value:.2g}"
    layout, worst = est.problem.observed, largest[0]
    start, shape = layout.slice(worst.table).start, layout.shape(worst.table)
    cell = layout.describe(start + int(np.ravel_multi_index(worst.cell, shape)) if shape else start)
    line = f"{agreement}; largest residual {worst.residual:+.3g} standard errors: {cell}"
    if fit.p_value >= DOUBTFUL:
        return line
    if fit.statistic < fit.degrees_of_freedom:
        return f"TOO CLOSE, values differ by less than their variances claim: {line}"
    return f"CONTRADICTORY, values differ by more than their variances allow: {line}"

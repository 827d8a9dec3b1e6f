"""Whether measurements agree with the variances that they claim: what the command says of it, in one line.

Residuals r = y - x of the best estimate have variances v - Var(x) under the claimed variances v, and the sum of r^2 / v
has a chi-square law of sum (1 - Var(x) / v) degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from blue_solvers.contract import Float
from blue_solvers.operator import BlueOperator, blue

UNCHECKED = 1e-9  # relative: a cell whose estimate is this nearly its measurement is checked by no other
DOUBTFUL = 1e-4  # the probability of so large a chi-square below which measurements count as contradictory


@dataclass(frozen=True)
class FitLine:
    """What is printed.

    Attributes
    ----------
    statistic, degrees : float
        Chi-square, and its degrees of freedom.
    p_value : float
        Probability of so much or more under the claimed variances, for normal noise.
    largest : float
        The largest residual in its own standard errors.
    cell : str
        Where it is.
    """

    statistic: float
    degrees: int
    p_value: float
    largest: float
    cell: str

    def __str__(self) -> str:
        freedom = f"{self.degrees:,} degree{'s' * (self.degrees != 1)} of freedom"
        agreement = f"chi-square {self.statistic:,.4g} on {freedom}, p = {self.p_value:.2g}"
        line = f"{agreement}; largest residual {self.largest:+.3g} standard errors: {self.cell}"
        if self.p_value >= DOUBTFUL:
            return line
        return f"CONTRADICTORY, values differ by more than their variances allow: {line}"


def fit_line(P: BlueOperator, y: Float) -> FitLine | None:
    """Compare measurements with their best estimates.

    Parameters
    ----------
    P : BlueOperator
        Of uncorrelated noise.
    y : ndarray, (n,)

    Returns
    -------
    FitLine or None
        None where no measurement checks another, or P is not the best estimate.
    """
    problem = P.problem
    if problem.covariance is not None or not P.info.exact:
        return None
    if problem.desired is not problem.observed or problem.assumed.size:
        P = blue((problem.determined if problem.assumed.size else problem).observing(), P.solver)
    noisy = np.flatnonzero(~problem.unmeasured & ~problem.exact)
    values = np.where(problem.unmeasured, 0.0, y)
    v, residual = problem.variances[noisy], (values - P @ values - P.offset)[noisy]
    freedom = 1 - P.variances()[noisy] / v
    degrees = round(float(freedom.sum()))
    checked = np.flatnonzero(freedom > UNCHECKED)
    if not degrees or not checked.size:
        return None
    statistic = float((residual**2 / v).sum())
    studentised = residual[checked] / np.sqrt(v[checked] * freedom[checked])
    worst = int(abs(studentised).argmax())
    cell = problem.observed.describe(int(noisy[checked[worst]]))
    return FitLine(statistic, degrees, float(chdtrc(degrees, statistic)), float(studentised[worst]), cell)

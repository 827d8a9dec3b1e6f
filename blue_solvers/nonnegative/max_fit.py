"""Max fitting: the smallest largest deviation first, least squares among what attains it."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.nonnegative.bounded_sums import program_within, solved
from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.fit import NonnegativeFit, fit_columns, judged_within
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.reals import real_number

SIMPLEX_CELLS = 2000  # up to which the simplex method is faster than the interior point method


def max_fit(problem: Problem, y: ArrayLike, slack: float = 0.01) -> NonnegativeFit:
    """Fit non-negative cells whose largest deviation from the measurements is as small as can be.

    Finds ``t``, the smallest possible ``max_i abs(y_i - (M x)_i) / std_i`` over ``x >= 0``, by linear programming; then
    the weighted least-squares cells with no deviation above ``(t + slack) std_i``.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.
    y : array_like, (n,) or (n, K)
        Measurements over ``problem.observed``, in counts.
    slack : float
        In standard deviations; 0.01 is what the paper's code uses.

    Returns
    -------
    NonnegativeFit

    Raises
    ------
    ValueError
        If `y` does not fit the problem, the noise is correlated, an exact value or `slack` is negative.
    NotConvergedError
        If no non-negative cells meet the values known exactly.

    References
    ----------
    "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, section 4.
    """
    slack = real_number(slack, "slack")
    if not 0 <= slack < np.inf:
        raise ValueError(f"slack must be 0 or more standard deviations: got {slack!r}")
    return fit_columns(problem, y, "max", partial(_max_fit, slack=slack))


def _max_fit(model: FittingModel, y: Float, slack: float) -> Certified:
    """The fit of one vector, (n,)."""
    model.refuse_impossible_exact(y)
    nearest, std = model.M @ _least_largest_deviation(model, y), np.sqrt(model.problem.variances)
    noisy = np.flatnonzero(model.measured & (std > 0))
    reach = float((abs(nearest - y)[noisy] / std[noisy]).max(initial=0.0)) + slack
    noisy = noisy[np.diff(model.M.indptr)[noisy] > 0]
    low, high = np.full(y.size, -np.inf), np.full(y.size, np.inf)
    spread = reach * std[noisy]
    low[noisy] = np.minimum(y[noisy] - spread, nearest[noisy])  # no rounding excludes these
    high[noisy] = np.maximum(y[noisy] + spread, nearest[noisy])
    program = program_within(model, y, Ranges(low, high), signed=False)
    return judged_within(model, y, solved(program, model.problem.is_tabular))


def _least_largest_deviation(model: FittingModel, y: Float) -> Float:
    """Non-negative cells, (cells,), with the smallest largest deviation in standard deviations; one of many.

    The tolerances of the linear program are absolute: rows are in standard deviations, cells in the median of these.
    """
    noisy = np.flatnonzero(model.measured & ~model.problem.exact)
    std = np.sqrt(model.problem.variances[noisy])
    unit = float(np.median(std)) if noisy.size else 1.0
    rows = sparse.diags_array(unit / std) @ model.M[noisy]
    least, given, exact = sparse.csr_array(-np.ones((noisy.size, 1))), y[noisy] / std, model.exact_rows
    result = scipy.optimize.linprog(
        np.append(np.zeros(model.M.shape[1]), 1.0),
        A_ub=sparse.block_array([[rows, least], [-rows, least]], format="csr"),
        b_ub=np.concatenate([given, -given]),
        A_eq=sparse.hstack([exact, sparse.csr_array((exact.shape[0], 1))], format="csr") if exact.shape[0] else None,
        b_eq=model.exact_answers(y) / unit if exact.shape[0] else None,
        method="highs-ds" if model.M.shape[1] <= SIMPLEX_CELLS else "highs-ipm",
    )
    if result.x is None:
        raise NotConvergedError(f"no non-negative cells meet what is known exactly: HiGHS says {result.message!r}")
    return np.maximum(unit * result.x[:-1], 0.0)

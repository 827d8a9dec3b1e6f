"""Weighted least squares over the detailed cells: with any sign (the BLUE), and non-negative."""

from __future__ import annotations

from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from blue_solvers.nonnegative.bounded_sums import fitted, read_bounds
from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.fit import NonnegativeFit, fit_columns, judged, judged_within
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.solving import solve
from constraint_builders import Problem
from constraint_builders.arrays import Float


def ols(problem: Problem, y: ArrayLike, bounds: Any = None) -> NonnegativeFit:
    """Fit cells of any sign by weighted least squares: the BLUE, the baseline of the non-negative methods.

    Minimises ``sum_i (y_i - (M x)_i)^2 / variance_i`` subject to what is known exactly, and to bounds.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.
    y : array_like, (n,) or (n, K)
        Measurements over ``problem.observed``, in counts.
    bounds : (lower, upper), optional
        Between which observed cells are to be, single ones and sums, measured or not: each a number, an array (n,) or a
        mapping of tables; of any sign, ``-inf`` and ``inf`` where there is none.

    Returns
    -------
    NonnegativeFit
        Without bounds its sums equal ``blue(problem) @ y``. Where no table determines every cell, the cells are one
        solution of many.

    Raises
    ------
    ValueError
        If `y` or bounds do not fit the problem, the noise is correlated, or an exact value is outside of its bounds.
    NotConvergedError
        If values known exactly and bounds contradict one another.

    Examples
    --------
    >>> import numpy as np
    >>> from constraint_builders import Problem, Schema
    >>> problem = Problem(Schema({"age": 3}), {"total": 1.0, "age": 1.0})
    >>> y = problem.vector({"total": 4.0, "age": [5.0, -1.0, -3.0]})
    >>> ols(problem, y, bounds=(-2.0, {"total": 3.0, "age": [np.inf, np.inf, 0.0]})).observed
    array([ 3. ,  5.5, -0.5, -2. ])
    """
    if bounds is None:
        return fit_columns(problem, y, "ols", partial(least_squares_of, signed=True))
    of_columns = partial(fitted, bounds=read_bounds(problem.observed, bounds))
    return fit_columns(problem, y, "bounded", judged_within, of_columns)


def nnls(problem: Problem, y: ArrayLike) -> NonnegativeFit:
    """Fit non-negative cells by weighted least squares.

    Minimises ``sum_i (y_i - (M x)_i)^2 / variance_i`` over ``x >= 0`` subject to what is known exactly.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.
    y : array_like, (n,) or (n, K)
        Measurements over ``problem.observed``, in counts.

    Returns
    -------
    NonnegativeFit
        Where no table measures the cells themselves its sums are unique, its cells one solution of many.

    Raises
    ------
    ValueError
        If `y` does not fit the problem, the noise is correlated, or an exact value is negative.
    NotConvergedError
        If no non-negative cells meet the values known exactly.

    References
    ----------
    "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", NeurIPS 2021, section 4.

    Examples
    --------
    >>> from constraint_builders import Problem, Schema
    >>> problem = Problem(Schema({"age": 3}), {"total": 1.0, "age": 1.0})
    >>> nnls(problem, problem.vector({"total": 4.0, "age": [5.0, -1.0, -3.0]})).detail
    array([4.5, 0. , 0. ])
    """
    return fit_columns(problem, y, "nnls", partial(least_squares_of, signed=False))


def least_squares_of(model: FittingModel, y: Float, signed: bool) -> Certified:
    """The fit of one vector, (n,), with cells of any sign or not negative."""
    program = model.program(y, signed)
    return judged(model, y, program, solve(program))

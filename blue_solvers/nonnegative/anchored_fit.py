"""Anchored fitting, a method of our own: the sum held at its unbiased estimate, the excess taken from small cells.

Non-negative least squares adds up to too much wherever many cells are near zero: what was cut off below stays in.
Holding the sum at its BLUE takes the excess out again. Taken evenly it would come from large cells too, which have no
such bias; so the weights of cells are lowered by how small their fitted values are, in proportion to the excess. Where
nothing was cut off there is no excess, and the fit is that of non-negative least squares, which is then the BLUE.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.nonnegative.duality_gap import Certified
from blue_solvers.nonnegative.fit import NonnegativeFit, fit_columns, judged
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram
from blue_solvers.nonnegative.solving import possible_sums, solve
from constraint_builders import Problem
from constraint_builders.arrays import Float

SMALL = 2.0  # standard deviations of its own noise at which a cell gives half of what an empty one gives
MOST = 9.0  # to which the excess, in standard deviations of a cell's noise, is cut off


def anchored_fit(problem: Problem, y: ArrayLike) -> NonnegativeFit:
    """Fit non-negative cells whose sum is its unbiased estimate, or the nearest that there can be.

    Least squares over ``x >= 0`` with the sum held at the BLUE's; at 0 where that is negative, and at the nearest sum
    that what is known exactly allows. The weight of a cell that was measured by itself, perhaps more than once, with
    standard deviation ``s`` in all, is divided by ``1 + min(9, e / s) / (1 + (v / 2s)^2)``: ``v`` is its value and
    ``e`` the excess of the sum in the non-negative least-squares fit, 0 at least.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.
    y : array_like, (n,) or (n, K)
        Measurements over ``problem.observed``, in counts.

    Returns
    -------
    NonnegativeFit
        Its KKT residual is that of the last least squares; its margin residual counts the sum as held.

    Raises
    ------
    ValueError
        If `y` does not fit the problem, the noise is correlated, an exact value is negative, or the sum is not
        estimable.
    NotConvergedError
        If no non-negative cells meet the values known exactly.

    References
    ----------
    Our own; measured in docs/microdata.md against the methods of "An Uncertainty Principle is a Price of
    Privacy-Preserving Microdata", NeurIPS 2021.
    """
    return fit_columns(problem, y, "anchored", _anchored_fit)


def _anchored_fit(model: FittingModel, y: Float) -> Certified:
    """The fit of one vector of measurements, (n,)."""
    if not model.determines_sum:
        raise ValueError(
            "anchored fitting holds the sum of all cells at its unbiased estimate, and nothing that was measured "
            "determines it: use nnls or max_fit"
        )
    unbiased = solve(model.program(y, signed=True)).cells
    program = model.program(y)
    first = solve(program).cells
    total = max(0.0, float(unbiased.sum()))
    excess = max(0.0, float(first.sum()) - total)
    leniency = _leniency(model, first, excess)
    inflation = np.ones(y.size)
    inflation[model.alone] = leniency[model.cells_alone]
    further = np.append(inflation[model.sum_rows], np.ones(program.variance.size - model.sum_rows.size))
    lenient = replace(program, weight=program.weight / leniency, variance=program.variance * further)
    try:
        held = _with_total(lenient, total)
        found = solve(held)
    except NotConvergedError:  # what is known exactly may leave no cells of this sum
        held = _with_total(lenient, float(np.clip(total, *possible_sums(program))))
        found = solve(held)
    return judged(model, y, held, found, inflation)


def _leniency(model: FittingModel, cells: Float, excess: float) -> Float:
    """What the weight of every cell is divided by, (d,)."""
    noisy = (model.cell_variances > 0) & np.isfinite(model.cell_variances)
    variances = model.problem.variances[model.alone]
    precision = model.M.data[model.M.indptr[model.alone]] ** 2 / np.where(variances > 0, variances, np.inf)
    std = np.where(noisy, np.bincount(model.cells_alone, precision, cells.size), 1.0) ** -0.5
    smallness = 1 / (1 + (cells / (SMALL * std)) ** 2)
    return np.where(noisy, 1 + np.minimum(MOST, excess / std) * smallness, 1.0)


def _with_total(program: QuadraticProgram, total: float) -> QuadraticProgram:
    """Hold the sum of all cells as well."""
    upper = program.upper if total > 0 else np.minimum(program.upper, np.maximum(program.lower, 0.0))
    return replace(program, upper=upper).with_rows(np.ones(program.target.size), total, 0.0)

"""Which counts are possible, given figures that were each rounded or perturbed within bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy import sparse

from blue_solvers.nonnegative.cell_bounds import Ranges, propagated
from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError
from constraint_builders import Problem
from constraint_builders.arrays import Float
from noise_mechanisms.published_figures import PublishedFigures

_WHOLE = 1e-6  # by which a bound may miss a whole number
_SECONDS = 60.0  # for one bound of whole counts
INFEASIBLE, UNBOUNDED, OTHER = 2, 3, 4  # of scipy.optimize.milp
NONE = "no non-negative counts lead to all of these figures: correct them, or declare another law"


def possible_counts(
    problem: Problem, y: ArrayLike, cells: Sequence[int] | ArrayLike | None = None, whole: bool = False
) -> tuple[Float, Float]:
    """The least and the largest that counts may be: no table of counts outside leads to the figures.

    Every figure y that was published of a count n says that n lies between the `limits` of its law, of random rounding
    to base b that y - b < n < y + b. By linear programming over the detailed cells all figures say it together.

    Parameters
    ----------
    problem : Problem
        With the law of the figures; exact values, zeros and equalities hold too.
    y : array_like, (n,)
        The figures as they were published.
    cells : sequence of int, (K,), optional
        Positions in the desired layout, by default all; two programs each.
    whole : bool
        Whether only whole counts may be what sums are made of, by integer programming: narrower, and for small
        problems.

    Returns
    -------
    lower, upper : ndarray, (K,)
        Whole numbers; ``inf`` where nothing bounds a count.

    Raises
    ------
    ValueError
        If no counts lead to these figures; the noise is of no such law, or correlated; y does not fit the problem;
        areas have weights that are not whole.
    NotConvergedError
        If a bound of whole counts is not found within a minute.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> from noise_mechanisms.laws import RandomRounding
    >>> law = RandomRounding(3)
    >>> problem = Problem(Schema({"sex": 2}), {"total": law, "sex": law})
    >>> possible_counts(problem, [12, 3, 3])
    (array([10.,  5.,  5.]), array([10.,  5.,  5.]))
    """
    (values, figures), model = PublishedFigures.read(problem, y), FittingModel.of(problem)
    if (model.M.data != np.rint(model.M.data)).any():
        raise ValueError(
            "areas have weights that are not whole, and figures are published of whole counts: give others"
        )
    rows = np.flatnonzero(model.measured)
    limits = [np.where(problem.exact, values, own)[rows] for own in figures.limits(values.size)]
    equations, right = model.equations
    M = sparse.csc_array(sparse.vstack([model.M[rows], equations]))
    low, high = (np.concatenate([own, right]) for own in limits)
    positions = problem.desired.positions(np.arange(problem.desired.size) if cells is None else cells)
    wanted = sparse.csr_array(model.cells.to_desired()[positions])
    box = propagated(M, Ranges(np.zeros(M.shape[1]), np.full(M.shape[1], np.inf)), low, high, _WHOLE)
    if (low > high).any() or (box.low > box.high + _WHOLE).any():
        raise ValueError(NONE)
    least = partial(_least, constraints=scipy.optimize.LinearConstraint(M, low, high), box=box, whole=whole)
    least(np.zeros(M.shape[1]))  # refuses figures that no counts lead to, where every cell is known too
    found = np.array([_ends(wanted[[k]], box, least) for k in range(positions.size)]).reshape(-1, 2)
    return np.ceil(found[:, 0] - _WHOLE) + 0.0, np.floor(found[:, 1] + _WHOLE) + 0.0


def _ends(sums: sparse.csr_array, box: Ranges, least: Callable[[Float], float]) -> tuple[float, float]:
    """The least and the largest of a sum of cells, (1, d), that a box holds, by what gives the least."""
    known = (box.high - box.low)[sums.indices] <= _WHOLE / max(1.0, float(abs(sums.data).sum()))
    if known.all():
        value = float(sums.data @ box.low[sums.indices])
        return value, value
    weights = sums.toarray()[0]
    return least(weights), -least(-weights)


def _least(weights: Float, constraints: scipy.optimize.LinearConstraint, box: Ranges, whole: bool) -> float:
    """The least weighted sum, by weights (d,), of cells in a box under constraints; -inf where nothing bounds it."""
    if not weights.size:  # all cells are structural zeros
        if (constraints.lb > 0).any() or (constraints.ub < 0).any():
            raise ValueError(NONE)
        return 0.0
    solved = scipy.optimize.milp(
        weights,
        integrality=np.full(weights.size, int(whole)),
        bounds=scipy.optimize.Bounds(box.low, np.maximum(box.low, box.high)),
        constraints=constraints,
        options={"time_limit": _SECONDS},
    )
    if solved.status == INFEASIBLE:
        raise ValueError(NONE)
    if solved.status == UNBOUNDED:
        return -np.inf
    if solved.status == OTHER and whole and _least(weights, constraints, box, whole=False) == -np.inf:
        return -np.inf  # it cannot tell unbounded from infeasible, and there are counts: what is real tells
    if not solved.success:
        raise NotConvergedError(f"a bound was not found within {_SECONDS:g} s: {solved.message}")
    return float(solved.fun)

"""Which counts are possible, given figures that were each rounded or perturbed within bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
INFEASIBLE = 2  # of scipy.optimize.milp
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
        Whole numbers, but where weights of areas are none; ``inf`` where nothing bounds a count.

    Raises
    ------
    ValueError
        If no counts lead to these figures; the noise is of no such law, or correlated; y does not fit the problem.
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
    values = problem.observed.vector(y) if isinstance(y, Mapping) else problem.observed.flat(y, "y")
    if values.shape != (problem.observed.size,):
        raise ValueError(f"y must have shape ({problem.observed.size},): got {values.shape}")
    problem.check_vector(values)
    figures, model = PublishedFigures.of(problem, values), FittingModel.of(problem)
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
    found = np.array([_ends(wanted[[k]], M, (low, high), box, whole) for k in range(positions.size)]).reshape(-1, 2)
    broken = abs(wanted - wanted.rint()).sum(axis=1) > 0
    ends = np.stack([np.ceil(found[:, 0] - _WHOLE), np.floor(found[:, 1] + _WHOLE)], axis=1)
    found = np.where(broken[:, None], found, ends)
    return found[:, 0] + 0.0, found[:, 1] + 0.0


def _ends(
    sums: sparse.csr_array, M: sparse.csc_array, limits: tuple[Float, Float], box: Ranges, whole: bool
) -> tuple[float, float]:
    """The least and the largest of a sum of cells, (1, d), while M x, (m,), lies between limits and x in a box."""
    least, most = (float(sums.data @ own[sums.indices]) for own in (box.low, box.high))
    if most - least <= _WHOLE:
        return least, most
    weights, ends = sums.toarray()[0], list[float]()
    for sign in (1.0, -1.0):
        solved = scipy.optimize.milp(
            sign * weights,
            integrality=np.full(weights.size, int(whole)),
            bounds=scipy.optimize.Bounds(box.low, np.maximum(box.low, box.high)),
            constraints=scipy.optimize.LinearConstraint(M, *limits),
            options={"time_limit": _SECONDS},
        )
        if solved.status == INFEASIBLE:
            raise ValueError(NONE)
        if solved.status == 3:
            ends.append(sign * -np.inf)
        elif solved.x is None or not solved.success:
            raise NotConvergedError(f"a bound was not found within {_SECONDS:g} s: {solved.message}")
        else:
            ends.append(sign * float(solved.fun))
    return ends[0], ends[1]

"""What counts are worth by the noise that they leave, ready for chains."""

from __future__ import annotations

import numpy as np

from blue_solvers.nonnegative.model import FittingModel
from blue_solvers.nonnegative.posterior.metropolis import OUTSIDE, Misfit
from constraint_builders import Problem
from constraint_builders.arrays import Float, Integers
from noise_mechanisms.laws import PublishedCount, kind_of
from noise_mechanisms.published_figures import PublishedFigures

_WHOLE = 1e-9


def misfit_of(model: FittingModel, y: Float, rows: Integers) -> Misfit:
    """Of the noise at y, (n,): its log density is quadratic or piecewise linear, with a weight for each row, or listed.

    The lists are those of figures published of counts: of the counts that each may be of.
    """
    problem, law = model.problem, model.problem.noise.law
    kind, variances, published = kind_of(law), problem.variances[rows], isinstance(law, PublishedCount)
    if kind.family is None and not published:
        raise ValueError(f"noise of the law {kind.name!r} has no family: the posterior needs Gaussian or Laplace noise")
    broken = np.flatnonzero(abs(y[rows] - np.rint(y[rows])) > _WHOLE * np.maximum(1.0, abs(y[rows])))
    if kind.discrete and broken.size and not published:
        row = int(rows[broken[0]])
        raise ValueError(
            f"{problem.observed.describe(row)} is {y[row]:g}: noise of the law {kind.name!r} leaves whole numbers whole"
        )
    weights = model.M[rows].data
    if kind.discrete and (weights != np.rint(weights)).any():
        raise ValueError(
            f"areas have weights that are not whole, and noise of the law {kind.name!r} leaves their sums as broken as "
            "they are: multiply the weights and what was measured until they are whole"
        )
    if isinstance(law, PublishedCount):
        return _listed(problem, y, rows)
    distinct, place = np.unique(variances, return_inverse=True)
    parameters = np.array([_parameter(kind.from_variance(float(variance))) for variance in distinct])
    nothing = np.zeros(1, dtype=np.intp), np.zeros(0), np.zeros(0)
    return Misfit((1 / parameters)[place], kind.family == "gaussian", *nothing)


def _listed(problem: Problem, y: Float, rows: Integers) -> Misfit:
    """Of figures, centred in y, (n,), what every count that they may be of is worth."""
    figures = PublishedFigures.of(problem, problem.noise.published(y))
    low, high = figures.limits(y.size)
    wrong = np.flatnonzero((low > high)[rows])
    if wrong.size:
        where = problem.observed.describe(int(rows[wrong[0]]))
        raise ValueError(f"{where}: there is no count that all of its figures may be published of")
    sizes = np.zeros(y.size, dtype=np.intp)
    sizes[rows] = high[rows] - low[rows] + 1
    starts = np.append(0, np.cumsum(sizes))
    cell = np.repeat(np.arange(y.size), sizes)
    logs = figures.log_probabilities(starts, low[cell] + np.arange(cell.size) - starts[cell])
    listed = np.where(np.isfinite(logs), -logs, OUTSIDE)
    return Misfit(1 / problem.variances[rows], True, np.append(starts[rows], starts[-1]), (low - y)[rows], listed)


def _parameter(law: object) -> float:
    """sigma2 of a law of the Gaussian family, the scale of one of Laplace's."""
    return float(getattr(law, "sigma2", None) or law.scale)  # type: ignore[attr-defined]

"""Fitted cells judged by the problem's own matrix, apart from the program that they were found with."""

from __future__ import annotations

import numpy as np

from blue_solvers.nonnegative.model import ROUNDING, FittingModel
from blue_solvers.nonnegative.quadratic_program import NotConvergedError
from constraint_builders.arrays import Float

EPSILON = float(np.finfo(float).eps)
AGREE = 1e-9  # of 1 and the objective


def require_own_objective(
    model: FittingModel, y: Float, cells: Float, claimed: float, variances: Float, missed: float = 0.0
) -> None:
    """Refuse cells whose weighted squares are not what was claimed.

    Parameters
    ----------
    model : FittingModel
    y : ndarray, (n,)
    cells : ndarray, (d,)
    claimed : float
        Half the sum of squared deviations in standard deviations.
    variances : ndarray, (n,)
        That the deviations are measured by; 0 and ``inf`` for measurements that do not count.
    missed : float
        How far sums of the cells may be from those that the squares were worked out from, in counts.

    Raises
    ------
    NotConvergedError
        If M @ cells has other squares than these, by more than rounding.
    """
    kept = (variances > 0) & np.isfinite(variances)
    deviation = abs(model.M @ cells - y)[kept]
    rounding = missed + 4 * EPSILON * (model.sizes @ abs(cells) + abs(y))[kept]
    own = float(0.5 * (deviation**2 / variances[kept]).sum())
    slack = AGREE * (1 + own) + float(((deviation + rounding) * rounding / variances[kept]).sum())
    if not abs(own - claimed) <= slack:
        raise NotConvergedError(
            f"the fitted cells have an objective of {own:.6g}, and not the {claimed:.6g} that they were found with: "
            "please report the problem"
        )


def missed_exactly(model: FittingModel, y: Float, cells: Float) -> float:
    """How far cells, (cells,), are from what is known exactly, in counts; refused if by more than rounding."""
    answers = model.exact_answers(y)
    return require_met(model.exact_rows @ cells, answers, cells)


def require_met(sums: Float, answers: Float, cells: Float) -> float:
    """The largest difference of sums of cells, (d,), from what they are held at, (k,), in counts.

    Raises
    ------
    NotConvergedError
        If it is more than rounding.
    """
    missed = float(abs(sums - answers).max(initial=0.0))
    if missed > ROUNDING * max(1.0, float(abs(answers).max(initial=0.0)), float(abs(cells).max(initial=0.0))):
        raise NotConvergedError(
            f"the fitted cells miss what is known exactly or held by {missed:.3g} counts: correct the exact values or, "
            "if cells can meet them, please report the problem"
        )
    return missed

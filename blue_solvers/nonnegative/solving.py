"""From a program to certified cells: the fast way first, the exact one where its proof falls short."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.nonnegative import active_set
from blue_solvers.nonnegative.cell_bounds import tightened
from blue_solvers.nonnegative.duality_gap import SHARP, Certified, certify
from blue_solvers.nonnegative.proximal import approach
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram
from constraint_builders.arrays import Float

ACCEPTED = 1e-8  # of 1 and the objective: sums are within 1.4e-4 of their standard errors
ROUNDING = 1e-12  # of the largest count
MEETS = 1e-9  # of the largest count: how well rows known exactly are met, and the conditions of the optimum


@one_blas_thread()
def solve(p: QuadraticProgram) -> Certified:
    """Solve any program.

    Parameters
    ----------
    p : QuadraticProgram

    Returns
    -------
    Certified
        Its iterations are Newton steps, of all rounds together, and steps of the active-set method.

    Raises
    ------
    NotConvergedError
        If no cells within their bounds meet the exact rows, or no way leads to cells that are proved to be near the
        optimum.
    """
    p, found, failure = tightened(p), None, ""
    try:
        found = approach(p)
    except (RuntimeError, np.linalg.LinAlgError) as error:  # singular systems among them
        failure = str(error)
    found = _polished(p, found)
    if found is None or not is_within(found, ACCEPTED, p):
        feasible_cells(p)  # refuses what has no solution, by name
        raise NotConvergedError(failure if found is None else _why(found))
    return found


@one_blas_thread()
def attempt(p: QuadraticProgram) -> Certified | None:
    """What `solve` finds where Newton steps lead somewhere; None elsewhere, quickly."""
    try:
        p = tightened(p)
        found = _polished(p, approach(p))
    except (RuntimeError, np.linalg.LinAlgError):
        return None
    return found if found is not None and is_within(found, ACCEPTED, p) else None


def _polished(p: QuadraticProgram, found: Certified | None) -> Certified | None:
    """The same, or of few cells what the active-set method makes of them if that is better."""
    if (
        found is not None
        and found.margin_residual <= ROUNDING * p.scale
        and is_within(found, SHARP, p)
        and found.kkt_residual <= MEETS * p.scale
    ):
        return found
    if active_set.fits_in(p):
        start = feasible_cells(p) if found is None or found.margin_residual > MEETS * p.scale else found.cells
        polished = certify(p, active_set.polish(p, start))
        found = min(polished, found or polished, key=lambda one: one.gap)
    return found


def _why(found: Certified) -> str:
    return (
        f"no fit that is proved: of an objective of {found.objective:.6g} the optimum may be lower by {found.gap:.3g}, "
        f"what is known exactly is missed by {found.margin_residual:.3g} counts. Measure the detailed table too, if "
        "only with a large variance"
    )


def is_within(found: Certified, share: float, p: QuadraticProgram) -> bool:
    """Whether a certificate is as good as this, and what is known exactly is met."""
    allowed = share * (1 + found.objective) + 2 * found.rounding
    return found.gap <= allowed and found.margin_residual <= MEETS * p.scale


def feasible_cells(p: QuadraticProgram) -> Float:
    """Some cells within their bounds that meet what is known exactly.

    Raises
    ------
    NotConvergedError
        If there are none.
    """
    result = _linear(p, 0.0)
    if result.x is None:
        raise NotConvergedError(
            f"no {p.kind} meet what is known exactly: correct the exact values, or give one a variance above 0 (HiGHS "
            f"says {result.message!r})"
        )
    return np.clip(result.x * p.scale, p.lower, p.upper)


def possible_sums(p: QuadraticProgram) -> tuple[float, float]:
    """The least and the largest sum of such cells; infinite where nothing bounds it."""
    least, most = (_linear(p, cost) for cost in (1.0, -1.0))
    return (
        -np.inf if least.x is None else float(least.fun) * p.scale,
        np.inf if most.x is None else -float(most.fun) * p.scale,
    )


def _linear(p: QuadraticProgram, cost: float) -> Any:
    """The linear program that minimises ``cost * sum``, in units of the largest count: tolerances are absolute."""
    exact = np.flatnonzero(p.variance == 0)
    return scipy.optimize.linprog(
        np.full(p.target.size, cost),
        A_eq=p.M.tocsr()[exact] if exact.size else None,
        b_eq=p.answer[exact] / p.scale if exact.size else None,
        bounds=np.column_stack([p.lower, p.upper]) / p.scale,
        method="highs",
    )

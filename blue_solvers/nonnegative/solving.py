"""From a program to certified cells: the fast way first, the exact one where its proof falls short."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from scipy.sparse.linalg import lsqr

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.nonnegative import active_set
from blue_solvers.nonnegative.cell_bounds import tightened
from blue_solvers.nonnegative.duality_gap import SHARP, Certified, certify
from blue_solvers.nonnegative.proximal import approach
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, Solution
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
    p = tightened(p)
    found, failure = _fast(p)
    found = _polished(p, found)
    if found is None or not is_within(found, ACCEPTED, p):
        feasible_cells(p)  # refuses what has no solution, by name
        raise NotConvergedError(_why(found, failure))
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
        polished = [certify(p, one) for one in active_set.polish(p, start)]
        found = min([*polished, *([] if found is None else [found])], key=lambda one: one.gap)
    return None if found is None else _nearer(p, found)


def _why(found: Certified | None, failure: Exception | None) -> str:
    if found is None:
        return str(failure)
    return (
        f"no fit that is proved: of an objective of {found.objective:.6g} the optimum may be lower by {found.gap:.3g}, "
        f"what is known exactly is missed by {found.margin_residual:.3g} counts. Measure the detailed table too, if "
        "only with a large variance"
    )


def is_within(found: Certified, share: float, p: QuadraticProgram) -> bool:
    """Whether a certificate is as good as this, and what is known exactly is met."""
    allowed = share * (1 + found.objective) + 2 * found.rounding
    return found.gap <= allowed and found.margin_residual <= MEETS * p.scale


def _fast(p: QuadraticProgram) -> tuple[Certified | None, Exception | None]:
    """What the Newton steps find, or why they find nothing: singular systems among the reasons."""
    try:
        return approach(p), None
    except (RuntimeError, np.linalg.LinAlgError) as failure:
        return None, failure


def _nearer(p: QuadraticProgram, found: Certified) -> Certified:
    """The same cells moved onto what is known exactly, by as little as the free ones need; if they miss it."""
    if found.margin_residual <= ROUNDING * p.scale:
        return found
    exact = np.flatnonzero(p.variance == 0)
    free = np.flatnonzero((p.lower < found.cells) & (found.cells < p.upper))
    rows = p.M.tocsr()[exact]
    change = lsqr(rows[:, free], p.answer[exact] - rows @ found.cells, atol=1e-15, btol=1e-15)[0]
    cells = found.cells.copy()
    cells[free] += change
    moved = certify(p, Solution(np.clip(cells, p.lower, p.upper), found.multipliers, found.iterations))
    return moved if moved.margin_residual < found.margin_residual and moved.gap <= 2 * found.gap else found


def feasible_cells(p: QuadraticProgram) -> Float:
    """Some cells within their bounds that meet what is known exactly.

    Raises
    ------
    NotConvergedError
        If there are none.
    """
    for unit in (p.scale, 1.0):  # tolerances are absolute: either unit may lose what the other finds
        result = _linear(p, 0.0, unit)
        if result.x is not None:
            break
    else:
        raise NotConvergedError(
            f"no {p.kind} meet what is known exactly: correct the exact values, or give one a variance above 0 (HiGHS "
            f"says {result.message!r})"
        )
    return np.clip(result.x * unit, p.lower, p.upper)


def possible_sums(p: QuadraticProgram) -> tuple[float, float]:
    """The least and the largest sum of such cells; infinite where nothing bounds it."""
    least, most = (_linear(p, cost, p.scale) for cost in (1.0, -1.0))
    return (
        -np.inf if least.x is None else float(least.fun) * p.scale,
        np.inf if most.x is None else -float(most.fun) * p.scale,
    )


def _linear(p: QuadraticProgram, cost: float, unit: float) -> Any:
    """The linear program that minimises ``cost * sum``, in units of so many counts."""
    exact = np.flatnonzero(p.variance == 0)
    return scipy.optimize.linprog(
        np.full(p.target.size, cost),
        A_eq=p.M.tocsr()[exact] if exact.size else None,
        b_eq=p.answer[exact] / unit if exact.size else None,
        bounds=np.column_stack([p.lower, p.upper]) / unit,
        method="highs",
    )

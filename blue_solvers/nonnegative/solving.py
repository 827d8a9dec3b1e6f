"""From a program to certified cells: the fast way first, the exact one where its proof falls short.

The fast way are Newton steps; where some cells have no weight of their own, a proximal point method around them. Where
nothing measures a cell by itself the least squares may have many solutions. Each round adds a small quadratic that ties
such cells to where they were. The sums that were measured come out as in every solution; the cells come out as one of
the solutions. A tie far below the curvature that a cell's vaguest row brings lets the rounds converge at once, however
many decades the precisions span; the first rounds tie harder, so that each starts near its solution.

References
----------
Rockafellar, "Monotone operators and the proximal point algorithm", SIAM J. Control Optim. 14 (1976).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.nonnegative import active_set
from blue_solvers.nonnegative.cell_bounds import tightened
from blue_solvers.nonnegative.duality_gap import SHARP, Certified, certify
from blue_solvers.nonnegative.newton import MAX_STEPS, minimise
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, Solution, kkt_residual
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


ACCURACY = 1e-11  # KKT residual at which the rounds end, relative to the largest count
MAX_ROUNDS = 60
FIRST_STEPS = 3 * MAX_STEPS  # of the first round, without which there are no others
LATER_STEPS = 60  # of the others, which start near their ends: of 1,800 that ended none took more
STALLED = 2  # rounds that halve neither before the rounds end
FIRST_TIE, LAST_TIE = 1e-1, 1e-5  # relative to the largest curvature that the rows bring
LAST_OF_MANY = 1e-3  # of many cells, whose rounding weaker ties magnify: proofs were a hundred times looser
VAGUEST = 1e-1  # relative to the least that a row brings to the cell


def approach(p: QuadraticProgram) -> Certified:
    """Solve a program by Newton steps, in rounds where cells have no weight.

    Parameters
    ----------
    p : QuadraticProgram

    Returns
    -------
    Certified
        The best of all rounds; its iterations are Newton steps, of all rounds together.

    Raises
    ------
    NotConvergedError
        If no cells within their bounds meet the exact rows, or the Newton steps of the first round do not end.
    """
    untied = (p.weight == 0) & (p.lower < p.upper)
    if not untied.any():
        return certify(p, minimise(p))
    best: Certified | None = None
    stalled = 0
    for solution, weakest in _rounds(p, untied):
        if not weakest and kkt_residual(p, solution) > ACCURACY * p.scale:
            continue  # far from the end: not worth a proof
        certified = certify(p, solution)
        better = best is None or certified.gap < best.gap / 2 or certified.kkt_residual < best.kkt_residual / 2
        stalled = 0 if better else stalled + 1
        best = certified if best is None or _excess(p, certified) < _excess(p, best) else best
        if _excess(p, best) <= 1 or (stalled >= STALLED and weakest):
            break
    return certify(p, solution) if best is None else best


def _rounds(p: QuadraticProgram, untied: NDArray[np.bool_]) -> Iterator[tuple[Solution, bool]]:
    """What the Newton steps of every round end at, and whether the ties of `untied`, (cells,), are weakest.

    Where ties become so weak that rounding ends the steps, the rounds go on with the weakest that they did not end.
    """
    curvature = float(p.curvature.max()) or 1.0
    weakest = LAST_TIE if active_set.fits_in(p) else LAST_OF_MANY
    last = np.minimum(weakest * curvature, VAGUEST * _vaguest(p))
    center, multipliers, steps = np.clip(p.target, p.lower, p.upper), None, 0
    before, is_last = last, False
    for number in range(MAX_ROUNDS):
        tie = np.maximum(curvature * FIRST_TIE * 0.1**number, last)
        tied = replace(p, weight=np.where(p.weight == 0, tie, p.weight), target=np.where(untied, center, p.target))
        try:
            found = minimise(tied, multipliers, LATER_STEPS if number else FIRST_STEPS)
        except NotConvergedError:
            if not number:
                raise
            if is_last:
                return
            last, is_last = before, True
            continue
        before, center, multipliers, steps = tie, found.cells, found.multipliers, steps + found.iterations
        yield Solution(center, multipliers, steps), bool((tie == last).all())


def _excess(p: QuadraticProgram, found: Certified) -> float:
    """How many times what the rounds end at: of the gap or of the KKT residual, whichever is more."""
    return max(found.gap / (SHARP * (1 + found.objective)), found.kkt_residual / (ACCURACY * p.scale))


def _vaguest(p: QuadraticProgram) -> Float:
    """The least curvature that a row with a variance brings to every cell, (d,); infinite where none does."""
    precision = np.divide(1.0, p.variance, out=np.full_like(p.variance, np.inf), where=p.variance > 0)
    cells = np.repeat(np.arange(p.weight.size), np.diff(p.M.indptr))
    least = np.full(p.weight.size, np.inf)
    np.minimum.at(least, cells, p.M.data**2 * precision[p.M.indices])
    return least

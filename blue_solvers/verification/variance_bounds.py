"""Variances between two proved numbers: the certificate of a column of the covariance.

Of cell i the column k of all cells' covariances with it is the estimate from y = Sigma e_i of a problem in which all
that is known exactly is 0. If no combination of the counts behind a claimed column is further than b of its standard
errors from that, then of the variance v itself

    |k_i - v| <= b sqrt(v),    so that sqrt(v) lies between (sqrt(b^2 + 4 k_i) - b) / 2 and (sqrt(b^2 + 4 k_i) + b) / 2.

A cell that is summed from several measured ones takes their sum instead of e_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.verification.certificate import Certifier
from blue_solvers.verification.closed_form import variances_between
from blue_solvers.verification.matrices import FreeCounts, Listed, can_be_listed
from blue_solvers.verification.problem_places import Claim
from blue_solvers.verification.weighed_noise import EXACT_TO, ROUNDING, NotCertifiedError, WeighedNoise, numbers_over
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index, inverse_order
from constraint_builders.schema_order import in_schema_order

CLOSED_FORM, BY_COUNTS = (
    "tables have variances in closed form, of one place and on a spine",
    "all that measurements leave free of counts",
)
KNOWN = "it is known exactly: it follows from what is"
PROVED = 1e-7  # of a variance: what is left open of one that is called proved


@dataclass(frozen=True)
class VarianceBounds:
    """What is proved of the variances of some cells.

    Attributes
    ----------
    cells : ndarray of int, (K,)
        Positions in the desired layout.
    lower, upper : ndarray, (K,)
        The variance is between these; 0 and ``inf`` where nothing is proved.
    reasons : tuple of str
        Of every cell what proves it, or why nothing does.
    """

    cells: Index
    lower: Float
    upper: Float
    reasons: tuple[str, ...]

    @property
    def proved(self) -> np.ndarray:
        """Which are known to 1e-7 of themselves; a variance that is 0 if the upper bound is.

        Returns
        -------
        ndarray of bool, (K,)
        """
        return np.isfinite(self.upper) & (self.upper - self.lower <= PROVED * self.upper)

    def __str__(self) -> str:
        found = self.proved
        open_ = "" if found.all() else f"; not of cell {self.cells[~found][0]}: {self.reasons[int(np.argmin(found))]}"
        return f"proved of {np.count_nonzero(found):,} of {found.size:,} variances to {PROVED:g} of themselves{open_}"


def bounds_at_once(problem: Problem, cells: Sequence[int] | ArrayLike) -> VarianceBounds | None:
    """What is proved of variances without any column of the covariance; None where not all of them are proved.

    Those of plain tables have a closed form, also on a spine; of few counts a basis of what is free says all.

    Parameters
    ----------
    problem : Problem
    cells : sequence of int, (K,)
        Positions in the desired layout.

    Returns
    -------
    VarianceBounds or None
    """
    chosen, order = problem.desired.positions(cells), in_schema_order(problem)
    if problem.undetermined is not None:
        return None
    for proof, reason in ((variances_between, CLOSED_FORM), (_listed_variances, BY_COUNTS)):
        try:
            both = proof(order.problem)
        except NotCertifiedError:
            continue
        place = inverse_order(order.desired, problem.desired.size)[chosen]
        lower, upper = (own[place] for own in both)
        reasons = (reason,) * upper.size if upper.all() else tuple(KNOWN if most == 0 else reason for most in upper)
        found = VarianceBounds(chosen, lower, upper, reasons)
        if found.proved.all():
            return found
    return None


@one_blas_thread()
def _listed_variances(problem: Problem) -> tuple[Float, Float]:
    """Bounds of the variances of all desired cells, (m,) each, of counts that can be listed."""
    made, first = list[Claim](), 0
    if problem.is_tabular:
        tables = zip(problem.desired_levels, problem.desired_tables, strict=True)
        made, first = [Claim(i, *own, np.zeros(0)) for i, own in enumerate(tables)], problem.observed.size
    if not can_be_listed(problem, made):
        raise NotCertifiedError("its counts are too many to list")
    listed = Listed(problem, np.zeros(problem.observed.size), made)
    return FreeCounts(listed, WeighedNoise.of(problem)).variances(first + np.arange(problem.desired.size))


def unit_noise(problem: Problem, cells: Sequence[int] | ArrayLike) -> Float:
    """What to estimate columns of the covariance from: Sigma times the measured cells that make up every cell, (n, K).

    NaN where a cell rests on what was not measured, or on no sum of measured cells with whole numbers of each.
    """
    problem, weights = problem.determined, _weights(problem, problem.desired.positions(cells))
    sums = np.asarray(problem.noise_covariance @ np.nan_to_num(weights))
    sums[problem.exact] = 0.0
    sums[:, np.isnan(weights).any(axis=0)] = np.nan
    return sums


def certify_variances(
    problem: Problem, cells: Sequence[int] | ArrayLike, columns: ArrayLike, observed: ArrayLike | None = None
) -> VarianceBounds:
    """Bounds of the variances of some cells of the best linear unbiased estimate. No solver takes part.

    Parameters
    ----------
    problem : Problem
    cells : sequence of int, (K,)
        Positions in the desired layout.
    columns : array_like, (m, K)
        Anybody's covariances of every desired cell with these.
    observed : array_like, (n, K), optional
        Those of every observed cell with these; left out where the observed cells are desired.

    Returns
    -------
    VarianceBounds

    Raises
    ------
    ValueError
        If a shape does not fit, or there is no such cell.

    Examples
    --------
    >>> from constraint_builders import Schema
    >>> problem = Problem(Schema({"sex": 2}), {"total": 1.0, "sex": 1.0})
    >>> found = certify_variances(problem, [0], [[2 / 3], [1 / 3], [1 / 3]])
    >>> found.lower.round(9), found.upper.round(9), found.proved
    (array([0.66666667]), array([0.66666667]), array([ True]))
    """
    chosen = problem.desired.positions(cells)
    claimed = numbers_over(problem.desired, columns, "columns", chosen.size)
    same = problem.desired is problem.observed
    if observed is None and not same:
        raise ValueError("other cells are desired than observed: give the covariances of the observed cells too")
    seen = claimed if observed is None else numbers_over(problem.observed, observed, "observed", chosen.size)
    lower, upper, reasons = np.zeros(chosen.size), np.full(chosen.size, np.inf), list[str]()
    try:
        noise = WeighedNoise.of(problem.determined)
    except NotCertifiedError as refusal:
        return VarianceBounds(chosen, lower, upper, (str(refusal),) * chosen.size)
    centred, weights = _without_right_hand_sides(problem.determined), _weights(problem, chosen)
    sums, certifier = unit_noise(problem, chosen), Certifier(centred)
    listed = Listed(centred, np.zeros(noise.sd.size)) if can_be_listed(centred) else None
    for k, cell in enumerate(chosen.tolist()):
        if np.isnan(sums[:, k]).any():
            reasons.append("it is no sum of cells that were measured")
            continue
        if _is_known_exactly(listed, weights[:, k]):
            reasons.append(KNOWN)
            upper[k] = 0.0
            continue
        proof = certifier.closest(sums[:, k], seen[:, k], None if same else claimed[:, k], enough=0.0)
        reasons.append(proof.reason)
        if proof.bound is not None:
            largest = max(float(np.nanmax(abs(own[:, k]), initial=0.0)) for own in (sums, seen, claimed))
            within = proof.bound + _rounding(noise, weights[:, k])
            lower[k], upper[k] = _between(float(claimed[cell, k]), within, EXACT_TO * largest)
    return VarianceBounds(chosen, lower, upper, tuple(reasons))


def _is_known_exactly(listed: Listed | None, weights: Float) -> bool:
    """Whether a sum of measured cells, by weights (n,), follows from what is known exactly, but for rounding."""
    if listed is None or not listed.F.shape[0] or not listed.has_few_figures:
        return False
    free, _, rounding = listed.parts
    counts = weights @ listed.M
    return bool(np.linalg.norm(counts @ free) <= 10 * rounding * np.linalg.norm(counts))


def _between(value: float, b: float, nothing: float) -> tuple[float, float]:
    """Of what a variance can be; a figure that is known exactly may be claimed to vary by `nothing`."""
    root = float(np.sqrt(max(b**2 + 4 * value, 0.0)))
    slack = 1 + 8 * ROUNDING
    lower = max((root - b) / 2, 0.0) ** 2 / slack if value > nothing else 0.0
    return lower, ((root + b) / 2) ** 2 * slack


def _rounding(noise: WeighedNoise, weights: Float) -> float:
    """How far rounding in Sigma w, (n,), may move the estimate from it, in its own standard errors."""
    spread = noise.sd * abs(weights)
    if noise.correlated is None:
        return 4 * ROUNDING * float(np.linalg.norm(spread))
    return noise.inverse_size(4 * ROUNDING * np.count_nonzero(weights) * noise.sd * float(spread.sum()))


def _weights(problem: Problem, cells: Index) -> Float:
    """Measured cells that add up to every cell, whatever the counts are, (n, K); NaN where there are none."""
    units = np.zeros((problem.desired.size, cells.size))
    units[cells, np.arange(cells.size)] = 1
    found = np.asarray(problem.determined.tabulate_transpose(units))
    whole = (found == np.rint(found)).all(axis=0)
    lost = (found[problem.unmeasured] != 0).any(axis=0) | ~whole
    if problem.undetermined is not None:
        lost |= problem.undetermined[cells]
    found[:, lost] = np.nan
    return found


def _without_right_hand_sides(problem: Problem) -> Problem:
    if problem.equalities is not None:
        E, e = problem.equalities
        problem = problem.replace(equalities=(E, np.zeros_like(e)))
    return problem if problem.b is None else problem.replace(b=None)

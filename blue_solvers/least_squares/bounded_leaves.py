"""Least squares for leaves within bounds, proved by the duality gap.

What is near the optimum comes from the program of `blue_solvers.nonnegative`. Which bounds hold is then known, and with
G the inverse of the information, D the combinations that are at a bound d and u, D u their best values without bounds,

    mu = (D G D')^-1 (D u - d),    u - G D' mu,

is the optimum where every mu pushes from its bound and all other bounds hold. For any mu of the right signs half the
sum of squares exceeds its least by |mu|'|D u - d| + r' G r / 2 at most, r being what mu leaves of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.least_squares.leaf_estimates import LeafEstimate
from blue_solvers.least_squares.through_leaves import Leaves
from blue_solvers.nonnegative.bounded_sums import (
    read_bounds_of_leaves,
    refuse_exact_outside,
    solved_in_own_units,
    units_of,
    with_bounds_on,
)
from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, csc
from constraint_builders.arrays import Flags, Float

AT_BOUND = 1e-6  # standard errors: nearer than that to a bound is perhaps at it
MEETS = 1e-10  # of the sizes that a sum is made of, and of its standard error: by which rounding may miss a bound
MISSED = 1e-9  # of what a sum is made of, and changes by: by which what a program finds may miss a bound
MOST_ENTRIES = 3e7  # of combinations that are polished
INDEPENDENT = 1e-12  # of the largest eigenvalue: combinations at bounds that follow from others
MOST_STEPS = 10_000  # of finding multipliers where several say the same
EPSILON, EXTENDED = float(np.finfo(float).eps), float(np.finfo(np.longdouble).eps)


class Point(NamedTuple):
    """Leaves and rows within bounds, (k + n,), what half their sum of squares exceeds its least by at most, and it."""

    values: Float
    gap: float
    objective: float


@dataclass(frozen=True, eq=False, repr=False)
class BoundedLeaves:
    """The weighted least squares of leaves within bounds on them, and on rows.

    Attributes
    ----------
    estimate : LeafEstimate
        Without bounds: unbiased, with exact errors and the test of the fit, which is what to test.
    values : ndarray, (k,)
        Leaves; NaN where rows do not determine them.
    rows : ndarray, (n,)
        What these come to.
    at_bounds, rows_at_bounds : ndarray of bool, (k,) and (n,)
        Which are at one of their bounds.
    gap : float
        What half the sum of squares exceeds its least by, at most: proved by duality, rounding included.
    objective : float
        Half the sum of squares, in standard deviations.
    """

    estimate: LeafEstimate
    values: Float
    rows: Float
    at_bounds: Flags
    rows_at_bounds: Flags
    gap: float
    objective: float

    @property
    def error_bound(self) -> float:
        """How far any leaf, row or combination of them is from the best within bounds, at most, in standard errors.

        Those of the estimate without bounds.
        """
        return float(np.sqrt(2 * self.gap))

    def __repr__(self) -> str:
        held = int(self.at_bounds.sum()), int(self.rows_at_bounds.sum())
        return (
            f"BoundedLeaves({self.values.size:,} leaves, {held[0]:,} at a bound; {self.rows.size:,} rows, {held[1]:,} "
            f"at a bound; proved, at most {self.error_bound:.1g} standard errors)"
        )


def within_bounds(estimate: LeafEstimate, bounds: Any) -> BoundedLeaves:
    """The same measurements, fitted within bounds.

    Parameters
    ----------
    estimate : LeafEstimate
        Of uncorrelated noise.
    bounds : (lower, upper) or mapping
        On the leaves: each a number or an array (k,), by its labels where it has some, of any sign, ``-inf`` and
        ``inf`` where there is none. Or ``{"leaves": (lower, upper), "rows": (lower, upper)}``, of either or both.

    Returns
    -------
    BoundedLeaves

    Raises
    ------
    ValueError
        If noise is correlated, bounds do not fit, or an exact row is outside of its own.
    NotConvergedError
        If no leaves meet all bounds.

    Examples
    --------
    >>> from blue_solvers.least_squares import least_squares
    >>> found = least_squares([[1, 1], [1, 0], [0, 1]], [10.0, 12.0, 1.0], 1.0, bounds=(2.0, 10.0))
    >>> found.values, found.at_bounds, found.error_bound < 1e-8
    (array([10.,  2.]), array([ True,  True]), True)
    """
    problem, operator = estimate.problem, estimate.operator
    if problem.is_correlated:
        raise ValueError("bounds are met by independent noise of the rows: give variances, not a covariance")
    read = read_bounds_of_leaves(problem, bounds)
    lower, upper = np.concatenate([one.low for one in read]), np.concatenate([one.high for one in read])
    best = np.concatenate([estimate.values, estimate.rows])
    limited = np.isfinite(lower) | np.isfinite(upper)
    rows = slice(problem.desired.size, None)
    refuse_exact_outside(problem, estimate.y, Ranges(lower[rows], upper[rows]))
    _refuse_known_outside(estimate, best, lower, upper)
    if ((best >= lower) & (best <= upper))[limited].all():
        settled = Leaves(problem, operator.basis).combinations(estimate.y[:, None])[2]
        rounded = (settled + EPSILON * np.sqrt(estimate.y.size)) ** 2 / 2
        point = Point(best, rounded, _objective(estimate, estimate.rows))
    else:
        point = by_program(estimate, lower, upper)
        point = min(point, polished(estimate, point, lower, upper) or point, key=lambda one: one.gap)
    room = MEETS * (abs(point.values) + _errors(estimate))
    at = (point.values - lower <= room) | (upper - point.values <= room)
    values, fitted = np.split(np.where(np.isnan(best), np.nan, point.values), [problem.desired.size])
    of_leaves, of_rows = np.split(at, [problem.desired.size])
    return BoundedLeaves(estimate, values, fitted, of_leaves, of_rows, point.gap, point.objective)


def by_program(estimate: LeafEstimate, lower: Float, upper: Float) -> Point:
    """What the quadratic program finds within bounds, (k + n,) each, over the combinations that rows determine.

    Rows of a combination by itself are measurements of it. Where leaves or rows have bounds that are not estimable,
    what is free takes part.
    """
    basis = estimate.operator.basis
    H = sparse.csr_array(sparse.vstack([basis.F, basis.sums], format="csr"))
    limited = np.isfinite(lower) | np.isfinite(upper)
    if (limited & _lost(estimate)).any():
        free = sparse.vstack([basis.free, basis.touched(basis.S)])
        H = sparse.csr_array(sparse.hstack([H, free], format="csr"))
    y = estimate.y
    fixed = np.concatenate([basis.R @ y, basis.S @ (basis.R @ y)])
    right, size, leaves = basis.T @ (y - fixed[basis.S.shape[1] :]), H.shape[1], basis.S.shape[1]
    noisy = basis.T.indices  # of whitened rows the row, one each
    counts = np.diff(basis.B.indptr)
    alone = np.flatnonzero(counts == 1)
    entries, of = basis.B.data[basis.B.indptr[alone]], basis.B.indices[basis.B.indptr[alone]]
    weight = np.bincount(of, entries**2, minlength=size).astype(float)
    target = np.bincount(of, entries * right[alone], minlength=size)
    limited &= np.diff(H.indptr) > 0
    rest = np.flatnonzero((counts > 1) & ~limited[leaves + noisy])
    moved = np.flatnonzero((counts > 1) & limited[leaves + noisy])
    precision = np.zeros(H.shape[0])
    precision[leaves + noisy[moved]] = basis.T.data[moved] ** 2
    wanted = np.concatenate([np.zeros(leaves), y]) - fixed
    program = QuadraticProgram(
        M=csc(sparse.hstack([basis.B[rest], sparse.csr_array((rest.size, size - basis.B.shape[1]))])),
        target=np.divide(target, weight, out=np.zeros(size), where=weight > 0),
        weight=weight,
        lower=np.full(size, -np.inf),
        upper=np.full(size, np.inf),
        answer=right[rest],
        variance=np.ones(rest.size),
        radius=np.full(rest.size, np.inf),
    )
    held, ends = np.flatnonzero(limited), Ranges((lower - fixed)[limited], (upper - fixed)[limited])
    bounded = with_bounds_on(program, H[held], ends, wanted[held], precision[held])
    cells, found = solved_in_own_units(bounded)
    free = H @ cells[:size] + fixed
    values = np.clip(free, lower, upper)
    room = AT_BOUND * _errors(estimate) + MISSED * (abs(H) @ (abs(cells) + units_of(bounded))[:size] + abs(fixed))
    if (abs(values - free) > room)[limited].any():
        raise NotConvergedError("no leaves were found that meet all bounds: give bounds of nearer sizes, or fewer")
    return Point(values, found.gap, _objective(estimate, values[leaves:]))


@one_blas_thread()
def polished(estimate: LeafEstimate, point: Point, lower: Float, upper: Float) -> Point | None:
    """The optimum where the bounds hold that a point is at, (k + n,) each; None where that is none.

    Nor is it where leaves or rows have bounds that are not estimable: what is free does not take part.
    """
    operator = estimate.operator
    basis, leaves = operator.basis, Leaves(operator.problem, operator.basis)
    u, known, _ = leaves.combinations(estimate.y[:, None])
    H = sparse.csr_array(sparse.vstack([basis.F, basis.sums], format="csr"))
    fixed = np.concatenate([known, basis.extended[2] @ known])[:, 0]
    sizes = abs(H) @ abs(u[:, 0]).astype(float) + abs(fixed).astype(float)
    errors = _errors(estimate)
    low, high = (abs(point.values - own) <= AT_BOUND * errors + MEETS * sizes for own in (lower, upper))
    told = (np.diff(H.indptr) > 0) & ~_lost(estimate)
    at = np.flatnonzero((low | high) & told)
    limited = np.isfinite(lower) | np.isfinite(upper)
    if (limited & _lost(estimate)).any() or H.shape[1] * float(at.size) > MOST_ENTRIES:
        return None
    D, ends = H[at], np.where(low[at], lower[at], upper[at])
    moving = basis.factor.solve(D.T.toarray())
    K = D @ moving
    scale = 1 / np.sqrt(K.diagonal())
    eigenvalues, vectors = np.linalg.eigh(K * np.outer(scale, scale))
    kept = eigenvalues > INDEPENDENT * max(1.0, float(eigenvalues.max(initial=0.0)))
    root = (vectors[:, kept] * scale[:, None]) / np.sqrt(eigenvalues[kept])
    mu = np.zeros(at.size)
    for _ in range(3):
        off = (D @ u[:, 0] + fixed[at] - ends).astype(float)
        step = root @ (root.T @ off)
        mu, u = mu + step, u - (moving @ step)[:, None]
    small = AT_BOUND * abs(mu * errors[at]).max(initial=0.0)
    both = lower[at] == upper[at]
    side = np.where(low[at], -1.0, 1.0)
    if ((side * mu * errors[at])[~both] < -small).any():
        if kept.all():
            return None
        half = (np.sqrt(eigenvalues[kept])[:, None] * vectors[:, kept].T) / scale
        signed, free = side * errors[at], np.flatnonzero(both)
        columns = np.hstack([half * (side / errors[at]), -half[:, free] * (side / errors[at])[free]])
        found = nnls(columns, half @ mu, maxiter=MOST_STEPS)[0]
        mu = found[: at.size] / signed
        mu[free] -= found[at.size :] / signed[free]
    mu = np.where(both, mu, np.where(low[at], np.minimum(mu, 0.0), np.maximum(mu, 0.0)))
    values = (H @ u[:, 0] + fixed).astype(float)
    room = MEETS * (sizes + errors)
    if not ((values >= lower - room) & (values <= upper + room))[told].all():
        return None
    (B, T, S), y = basis.extended, estimate.y.astype(np.longdouble)
    left = B @ u[:, 0] - T @ (y - S @ known[:, 0])
    r = (basis.extended_transpose @ left + D.T @ mu).astype(float)
    doubt = 4 * EPSILON * (abs(D).T @ abs(mu))
    off = abs(D @ u[:, 0] + fixed[at] - ends).astype(float) + EXTENDED * sizes[at]
    sharp = float(abs(mu) @ off + r @ basis.factor.solve(r[:, None])[:, 0] / 2 + doubt @ doubt / basis.factor.least**2)
    values[at] = ends
    return Point(np.where(told, np.clip(values, lower, upper), point.values), sharp, float(left @ left) / 2)


def _refuse_known_outside(estimate: LeafEstimate, best: Float, lower: Float, upper: Float) -> None:
    """Refuse what exact rows alone determine, of leaves and rows, (k + n,), outside of its bounds."""
    basis = estimate.operator.basis
    by_exact = abs(basis.R) @ abs(estimate.y)
    room = MEETS * np.concatenate([by_exact, abs(basis.S) @ by_exact])
    known = np.concatenate([np.diff(own.indptr) == 0 for own in (basis.F, basis.sums)])
    outside = known & ((best < lower - room) | (best > upper + room))
    if outside.any():
        place, leaves = int(outside.argmax()), estimate.problem.desired
        row = place - leaves.size
        where = leaves.describe(place) if row < 0 else estimate.problem.observed.describe(row)
        raise ValueError(
            f"{where} is {best[place]:.6g} by exact rows, outside of its bounds {lower[place]:.6g} and "
            f"{upper[place]:.6g}: correct either"
        )


def _lost(estimate: LeafEstimate) -> Flags:
    """Which leaves and rows are not estimable, (k + n,)."""
    lost: Flags = np.isnan(np.concatenate([estimate.values, estimate.rows]))
    return lost


def _errors(estimate: LeafEstimate) -> Float:
    """Standard errors of leaves and rows, (k + n,), 0 where they have none."""
    variances = np.concatenate([estimate.variances, estimate.operator.over_observed.variances()])
    return np.sqrt(np.nan_to_num(variances))


def _objective(estimate: LeafEstimate, rows: Float) -> float:
    """Half the sum of squares of rows, (n,), in standard deviations."""
    T = estimate.operator.basis.T
    return float(np.square(T @ np.nan_to_num(estimate.y - rows)).sum() / 2)

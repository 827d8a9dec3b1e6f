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
from blue_solvers.least_squares.leaf_basis import LeafBasis
from blue_solvers.least_squares.leaf_estimates import LeafEstimate
from blue_solvers.least_squares.through_leaves import LeavesOfRows
from blue_solvers.nonnegative.bounded_sums import (
    read_bounds_of_leaves,
    refuse_exact_outside,
    solved_in_own_units,
    units_of,
    with_bounds_on,
)
from blue_solvers.nonnegative.cell_bounds import Ranges
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, csc
from blue_solvers.verification.weighed_noise import reciprocal
from constraint_builders.arrays import Flags, Float, Long

AT_BOUND = 1e-6  # standard errors: nearer than that to a bound is perhaps at it
MEETS = 1e-10  # of the sizes that a sum is made of, and of its standard error: by which rounding may miss a bound
MISSED = 1e-9  # of what a sum is made of, and changes by: by which what a program finds may miss a bound
MOST_ENTRIES = 3e7  # of combinations that are polished
INDEPENDENT = 1e-12  # of the largest eigenvalue: combinations at bounds that follow from others
APART = 1e-10  # of the largest singular value: directions that are free and follow from others, at bounds
ROUNDED = 1e-12  # of the largest multiplier: less is none, where what is free must balance
ROUNDS = 20  # of finding which bounds hold
MOST_STEPS = 10_000  # of finding multipliers where several say the same
EPSILON, EXTENDED = float(np.finfo(float).eps), float(np.finfo(np.longdouble).eps)


class WithinBounds(NamedTuple):
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
        settled = LeavesOfRows(problem, operator.basis).combinations(estimate.y[:, None])[2]
        rounded = (settled + EPSILON * np.sqrt(estimate.y.size)) ** 2 / 2
        point = WithinBounds(best, rounded, _objective(estimate, estimate.rows))
    else:
        point = by_program(estimate, lower, upper)
        point = min(point, polished(estimate, point, lower, upper) or point, key=lambda one: one.gap)
    room = MEETS * (abs(point.values) + _errors(estimate))
    at = (point.values - lower <= room) | (upper - point.values <= room)
    values, fitted = np.split(np.where(np.isnan(best), np.nan, point.values), [problem.desired.size])
    of_leaves, of_rows = np.split(at, [problem.desired.size])
    return BoundedLeaves(estimate, values, fitted, of_leaves, of_rows, point.gap, point.objective)


def by_program(estimate: LeafEstimate, lower: Float, upper: Float) -> WithinBounds:
    """What the quadratic program finds within bounds, (k + n,) each, over the combinations that rows determine.

    Rows of a combination by itself are measurements of it. Where leaves or rows have bounds that are not estimable,
    what is free takes part.
    """
    basis = estimate.operator.basis
    H, limited = _of_combinations(basis), np.isfinite(lower) | np.isfinite(upper)
    if (limited & _lost(estimate)).any():
        H = sparse.csr_array(sparse.hstack([H, _of_free(basis)], format="csr"))
    y = estimate.y
    fixed = np.concatenate([basis.R @ y, basis.S @ (basis.R @ y)])
    right, size, leaves = basis.T @ (y - fixed[basis.S.shape[1] :]), H.shape[1], basis.S.shape[1]
    noisy = basis.T.indices  # of whitened rows the row, one each
    counts = np.diff(basis.B.indptr)
    alone = np.flatnonzero(counts == 1)
    entries, of = basis.B.data[basis.B.indptr[alone]], basis.B.indices[basis.B.indptr[alone]]
    weight = np.bincount(of, entries**2, minlength=size).astype(float)
    target = np.bincount(of, entries * right[alone], minlength=size)
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
    )
    bounded = with_bounds_on(program, H, Ranges(lower - fixed, upper - fixed), wanted, precision)
    found = solved_in_own_units(bounded)
    cells = found.cells
    free = H @ cells[:size] + fixed
    values = np.clip(free, lower, upper)
    room = AT_BOUND * _errors(estimate) + MISSED * (abs(H) @ (abs(cells) + units_of(bounded))[:size] + abs(fixed))
    if (abs(values - free) > room)[limited & (np.diff(H.indptr) > 0)].any():
        raise NotConvergedError("no leaves were found that meet all bounds: give bounds of nearer sizes, or fewer")
    return WithinBounds(values, found.gap, _objective(estimate, values[leaves:]))


@one_blas_thread()
def polished(estimate: LeafEstimate, point: WithinBounds, lower: Float, upper: Float) -> WithinBounds | None:
    """The optimum where the bounds hold that a point is at, (k + n,) each; None where that is none.

    Bounds that push the wrong way are left, those that are then exceeded are added, in some rounds.
    """
    fits = BestAtBounds(estimate, lower, upper, point)
    low, high = fits.low, fits.high
    for _ in range(ROUNDS):
        if fits.size * float((low | high).sum()) > MOST_ENTRIES:
            return None
        try:
            found, low, high = fits.at(low, high)
        except (RuntimeError, np.linalg.LinAlgError):  # multipliers that no steps, or no eigenvalues, end at
            return None
        if found is not None:
            return found
    return None


class BestAtBounds:
    """The best values with some of them at their bounds.

    What is free takes part where leaves or rows have bounds that are not estimable: of D u + N f = d, f free, the
    multipliers have N' mu = 0.

    Parameters
    ----------
    estimate : LeafEstimate
    lower, upper : ndarray, (k + n,)
    point : WithinBounds
        Near the optimum.

    Attributes
    ----------
    low, high : ndarray of bool, (k + n,)
        Which bounds the point is at.
    size : int
        Of combinations, and what is free.
    """

    def __init__(self, estimate: LeafEstimate, lower: Float, upper: Float, point: WithinBounds) -> None:
        basis, self._y = estimate.operator.basis, estimate.y.astype(np.longdouble)
        self._basis, self._lower, self._upper, self._values = basis, lower, upper, point.values
        u, self._known, _ = LeavesOfRows(estimate.operator.problem, basis).combinations(estimate.y[:, None])
        self._H, self._free, self._u = _of_combinations(basis), sparse.csr_array((lower.size, 0)), u[:, 0]
        self._f = np.zeros(0, dtype=np.longdouble)
        if ((np.isfinite(lower) | np.isfinite(upper)) & _lost(estimate)).any():
            self._free = _of_free(basis)
            pinned = basis.free.tocsr()[basis.pins].tocoo()  # a permutation, scaled
            of_pins = point.values[basis.pins] - self._known[basis.pins, 0]
            self._f = np.zeros(basis.pins.size, dtype=np.longdouble)
            self._f[pinned.col] = of_pins[pinned.row] / pinned.data
        self._fixed = np.concatenate([self._known, basis.extended[2] @ self._known])[:, 0]
        parts = ((self._H, self._u), (self._free, self._f))
        self._sizes = sum(abs(own) @ abs(of).astype(float) for own, of in parts) + abs(self._fixed).astype(float)
        self._errors, self.size = _errors(estimate), self._H.shape[1] + self._free.shape[1]
        room = AT_BOUND * self._errors + MEETS * self._sizes
        self._moved = np.diff(self._H.indptr) + np.diff(self._free.indptr) > 0
        self.low, self.high = (self._moved & (abs(point.values - own) <= room) for own in (lower, upper))

    def at(self, low: Flags, high: Flags) -> tuple[WithinBounds | None, Flags, Flags]:
        """The optimum with values at these bounds, (k + n,), or None where there is none, and at which it may be."""
        at, u, f = np.flatnonzero(low | high), self._u, self._f
        D, N, ends = self._H[at], self._free[at].toarray(), np.where(low, self._lower, self._upper)[at]
        moving = self._basis.factor.solve(D.T.toarray())
        K, both = D @ moving, (self._lower == self._upper)[at]
        scale = reciprocal(np.sqrt(K.diagonal()))
        scale[scale == 0] = 1.0
        unit, units = K * np.outer(scale, scale), reciprocal(np.sqrt(np.square(scale[:, None] * N).sum(axis=0)))
        span, turn, back = np.zeros((at.size, 0)), None, np.zeros((N.shape[1], 0))
        if N.shape[1]:
            left, values, right = np.linalg.svd(scale[:, None] * N * units)
            rank = int((values > APART).sum())
            span, turn, back = left[:, :rank], left[:, rank:], units[:, None] * (right[:rank].T / values[:rank])
            unit = turn.T @ unit @ turn
        eigenvalues, vectors = np.linalg.eigh(unit)
        kept = eigenvalues > INDEPENDENT * max(1.0, float(eigenvalues.max(initial=0.0)))
        vectors, roots = vectors[:, kept] if turn is None else turn @ vectors[:, kept], np.sqrt(eigenvalues[kept])
        root, mu = scale[:, None] * vectors / roots, np.zeros(at.size)

        def off() -> Long:
            """By how much values miss their bounds."""
            return D @ u + N @ f + self._fixed[at] - ends

        for _ in range(3):
            step = root @ (root.T @ off().astype(float))
            mu, u = mu + step, u - moving @ step
            f = f - back @ (span.T @ (scale * off().astype(float)))
        side, pushes = np.where(low[at], -1.0, 1.0), mu / scale
        small = AT_BOUND * abs(pushes).max(initial=0.0)
        wrong = ~both & (side * pushes < -small)
        if wrong.any() and not kept.all():
            half = np.vstack([roots[:, None] * vectors.T, span.T])
            columns = np.hstack([half * side, -half[:, both] * side[both]])
            found, unbalanced = nnls(columns, half @ pushes, maxiter=MOST_STEPS)
            pushes = found[: at.size] * side
            pushes[both] -= found[at.size :] * side[both]
            wrong = ~both & (pushes == 0) if unbalanced > small else np.zeros_like(both)
        if N.shape[1]:
            pushes = np.where(abs(pushes) > ROUNDED * abs(pushes).max(initial=0.0), pushes, 0.0)
        mu = scale * np.where(both, pushes, side * np.maximum(side * pushes, 0.0))
        at_low, at_high = low.copy(), high.copy()
        at_low[at[wrong]] = at_high[at[wrong]] = False
        values = np.asarray(self._H @ u + self._free @ f + self._fixed, dtype=float)
        room = MEETS * (self._sizes + self._errors)
        under, over = (self._moved & own for own in (values < self._lower - room, values > self._upper + room))
        if wrong.any() or under.any() or over.any():
            return None, at_low | under, at_high | over
        (B, T, S), known = self._basis.extended, self._known[:, 0]
        rest = B @ u - T @ (self._y - S @ known)
        r = (self._basis.extended_transpose @ rest + D.T @ mu).astype(float)
        doubt = 4 * EPSILON * (abs(D).T @ abs(mu))
        missed = abs(off()).astype(float) + EXTENDED * self._sizes[at]
        apart = _from_balanced(scale[:, None] * N * units, mu / scale)
        open_ = float(np.sqrt(r @ self._basis.factor.solve(r[:, None])[:, 0])) + apart * np.sqrt(at.size)
        gap = abs(mu) @ missed + apart * np.linalg.norm(scale * missed) + open_**2 / 2
        gap += doubt @ doubt / self._basis.factor.least**2
        values[at] = np.where(missed <= room[at], ends, values[at])
        values = np.where(self._moved, np.clip(values, self._lower, self._upper), self._values)
        return WithinBounds(values, float(gap), float(rest @ rest) / 2), low, high


def _from_balanced(N: Float, mu: Float) -> float:
    """How far at most multipliers, (a,), are from some of the same signs that free directions, (a, d), keep."""
    if not N.shape[1]:
        return 0.0
    pushing = mu != 0
    values = np.linalg.svd(N[pushing], compute_uv=False)
    values = values[values > APART * values.max(initial=0.0)]
    if not values.size:
        return 0.0
    off = np.linalg.norm(N.T @ mu) + EPSILON * mu.size * np.linalg.norm(abs(N).T @ abs(mu))
    found = float(off / values[-1])
    return found if found < abs(mu[pushing]).min() else np.inf


def _of_combinations(basis: LeafBasis) -> sparse.csr_array:
    """What leaves and rows have of combinations, (k + n, r)."""
    return sparse.csr_array(sparse.vstack([basis.F, basis.sums], format="csr"))


def _of_free(basis: LeafBasis) -> sparse.csr_array:
    """What leaves and rows have of what is free, (k + n, d)."""
    return sparse.csr_array(sparse.vstack([basis.free, basis.touched(basis.S)], format="csr"))


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
    return float(np.square(estimate.operator.basis.T @ np.nan_to_num(estimate.y - rows)).sum() / 2)

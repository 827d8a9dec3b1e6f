"""Certificates of problems whose counts can be listed: any tables, sums or equations, any noise.

Of the information J = M' Sigma^-1 M about counts that change nothing known exactly a basis R with R' J R = 1 is worked
out, once. What combinations of the counts explain of weighted residuals rho then has the length of R' M' rho, and a
figure that sums counts by m has the variance |R' m|^2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.verification.problem_places import Claim, matrix_of_claims
from blue_solvers.verification.weighed_noise import (
    EXACT_TO,
    REFINEMENTS,
    ROUNDING,
    DisprovedError,
    NotCertifiedError,
    WeighedNoise,
    in_standard_errors,
    require_time,
)
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index

EXTENDED = float(np.finfo(np.longdouble).eps)
MOST_ENTRIES = 3_000_000  # of the matrix of counts
MOST_FIGURES = 4_000_000  # times counts
MOST_COUNTS = 2_000  # where something is known exactly
INDEPENDENT = 1e-11  # of what is known exactly, the largest singular value being 1: less follows from the rest
CLEAR_GAP = 1e4  # times what rounding makes of a singular value that is 0: the least of others
FIXED = 1e-9  # of a figure's counts that may still move: less is rounding, the figure is known exactly
MARGIN = 0.9


class Listed:
    """The counts behind a problem, cell by cell.

    Attributes
    ----------
    figures, M : csr_array, (n + c, N), (n, N)
        All cells of which something is claimed, the observed ones first, and these alone, as sums of the counts that
        may be other than 0; of equations the counts are the cells.
    F, f : csr_array (k, N), ndarray (k,)
        All that is known exactly: F d = f.
    """

    def __init__(self, problem: Problem, y: Float, made: Sequence[Claim] = ()) -> None:
        self.figures = _counts(problem, made)
        self.M = self.figures[: problem.observed.size]
        given, known = problem.equality_rows
        if problem.matrix is not None:
            given = sparse.csr_array(sparse.vstack([problem.matrix, given]))
            known = np.concatenate([np.zeros(problem.matrix.shape[0]) if problem.b is None else problem.b, known])
        exact = np.flatnonzero(problem.exact)
        self.F = sparse.csr_array(sparse.vstack([self.M[exact], given @ self.M], format="csr"))
        self.f = np.concatenate([y[exact], known])

    @cached_property
    def units(self) -> Float:
        """The length of every row of F, (k,)."""
        lengths = np.sqrt(self.F.power(2).sum(axis=1))
        return np.where(lengths > 0, lengths, 1.0)

    @cached_property
    def parts(self) -> tuple[Float, Float, float]:
        """What is free, and the inverse of what is known exactly.

        Returns
        -------
        N : ndarray, (N, r)
            A basis of all that changes nothing known exactly, F N = 0; (0, 0) where nothing is known.
        inverse : ndarray, (N, k)
            F^+: the least change of the counts that changes what is known exactly so.
        rounding : float
            How far rounding may have turned the basis.
        """
        if not self.f.size:
            return np.eye(0), np.zeros((self.M.shape[1], 0)), 0.0
        U, values, rows = np.linalg.svd(self.F.toarray() / self.units[:, None])
        zero, largest = max(self.F.shape) * ROUNDING, float(values.max(initial=0.0))
        rank, clear = (int(np.count_nonzero(values > least * largest)) for least in (zero, INDEPENDENT))
        inverse = (rows[:clear].T / values[:clear]) @ U[:, :clear].T / self.units
        return rows[rank:].T, inverse, zero * largest / float(values[rank - 1]) if rank else 0.0

    def freely(self, sums: sparse.csr_array, sizes: bool = False) -> Float:
        """Sums of counts as those of what is free, (rows, r), or bounds of their sizes."""
        if not self.f.size:
            return abs(sums).toarray() if sizes else sums.toarray()
        return abs(sums) @ abs(self.parts[0]) if sizes else sums @ self.parts[0]

    @property
    def has_few_figures(self) -> bool:
        """Whether there are so few that dense algebra may work out what they leave free."""
        figures, counts = self.figures.shape
        return figures * counts <= MOST_FIGURES and (counts <= MOST_COUNTS or not self.f.size)


def can_be_listed(problem: Problem, made: Sequence[Claim] = ()) -> bool:
    """Whether the matrix of counts is small enough."""
    tables = len(problem.observed_tables) + len(made)
    return not problem.is_tabular or problem.domain.size * tables <= MOST_ENTRIES


def _counts(problem: Problem, made: Sequence[Claim]) -> sparse.csr_array:
    if not problem.is_tabular:
        whole = sparse.eye_array(problem.observed.size) if problem.summing is None else problem.summing.matrix
        return sparse.csr_array(whole)
    M = problem.marginal_matrix()
    if made:
        M = sparse.csr_array(sparse.vstack([M, matrix_of_claims(problem, made)], format="csr"))
    return M if problem.zeros is None else M[:, np.flatnonzero(~problem.zeros.detailed(problem.domain.leaves))]


@one_blas_thread()
def certify_listed(problem: Problem, y: Float, x: Float, made: Sequence[Claim] = ()) -> tuple[float, float]:
    """Bound and violation, from y and x, (n,), both in standard errors.

    Raises
    ------
    NotCertifiedError
        If there are too many counts, or the rank of their sums is not clear.
    """
    noise, listed = WeighedNoise.of(problem), Listed(problem, y, made)
    free = FreeCounts(listed, noise)
    rho, off = noise.weighted(y - x)
    figures = np.concatenate([x, *(claim.figures for claim in made)])
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    v = _disagreement(listed, noise, figures, scale)
    own = v[: x.size]
    worst = in_standard_errors(v, free.least_standard_errors(), EXACT_TO * scale)
    violation = np.divide(own, noise.sd, out=np.zeros_like(own), where=noise.noisy).max(initial=0.0)
    return free.explained(rho) + off + noise.inverse_size(own) + worst, float(violation)


class FreeCounts:
    """Directions of counts that change nothing known exactly and that measurements tell apart: R with R' J R = 1.

    Parameters
    ----------
    listed : Listed
    noise : WeighedNoise

    Attributes
    ----------
    R : ndarray, (N, r)

    Raises
    ------
    NotCertifiedError
        If there are too many counts, no gap tells singular values that are 0 from others, or noise is too uneven.
    """

    def __init__(self, listed: Listed, noise: WeighedNoise) -> None:
        require_time()
        if not listed.has_few_figures:
            raise NotCertifiedError(
                f"{'exact knowledge' * bool(listed.f.size) or 'its counts'} among {listed.figures.shape[0]:,} figures: "
                f"dense algebra, which is for {MOST_COUNTS:,} counts where something is known exactly, and "
                f"{MOST_FIGURES:,} figures times counts, at most"
            )
        self._listed, self._cells = listed, np.flatnonzero(noise.noisy)
        (N, _, self._turned), M = listed.parts, listed.M[self._cells]
        root, size = noise.inverse_root(self._cells)
        W, sizes = listed.freely(M), listed.freely(M, sizes=True)
        V = _what_counts(W, self._turned * np.linalg.norm(sizes, axis=0))
        B, sizes = root(W @ V), size(sizes @ abs(V))
        lengths = np.linalg.norm(B, axis=0)
        _, values, rows = np.linalg.svd(B / lengths, full_matrices=False)
        if values.size and values[-1] <= max(B.shape) * ROUNDING * values[0]:
            raise NotCertifiedError("its noise is too uneven beside its weights")
        turn = rows.T / values / lengths[:, None]
        self._turn = V @ turn
        self.R = N @ self._turn if listed.f.size else self._turn
        adds = (4 + sum(W.shape)) * ROUNDING + self._turned
        one = B @ turn
        apart = np.linalg.norm(one.T @ one - np.eye(values.size)) + 2 * adds * np.linalg.norm(sizes @ abs(turn))
        if not apart < 1 - MARGIN:
            raise NotCertifiedError("its noise is too uneven beside its weights")
        self._apart = float(apart)

    def explained(self, rho: Float) -> float:
        """An upper bound of what combinations of the counts explain of weighted residuals, (n,)."""
        M, F, own = self._listed.M[self._cells], self._listed.F, rho[self._cells].astype(np.longdouble)
        share, sizes, inverse = M.T @ own, abs(M).T @ abs(own), self._listed.parts[1]
        for _ in range(2):  # what is known exactly takes its part
            multipliers = inverse.T @ share.astype(float)
            share, sizes = share - F.T @ multipliers.astype(np.longdouble), sizes + abs(F).T @ abs(multipliers)
        left, adds = abs(share).astype(float), 8 + sum(M.shape) + F.shape[0]
        rounding = adds * (ROUNDING * left + EXTENDED * sizes.astype(float))
        beside = self._turned * np.linalg.norm(self._turn) * float(np.linalg.norm(share))  # squares may pass float64
        found = np.linalg.norm(self.R.T @ share.astype(float)) + np.linalg.norm(abs(self.R).T @ rounding)
        return float(found + beside) / float(np.sqrt(1 - self._apart))

    def least_standard_errors(self) -> Float:
        """Of every figure from below, (n + c,); 0 where it may be known exactly."""
        figures, free = self._listed.figures, np.linalg.norm(self._listed.freely(self._listed.figures), axis=1)
        size = np.linalg.norm(figures @ self.R, axis=1)
        fixed = free < max(FIXED, self._turned) * np.sqrt(figures.power(2).sum(axis=1))
        nothing = 1e-13 * free * np.linalg.norm(self.R, axis=0).min(initial=np.finfo(float).max)
        return np.where(fixed | (size <= nothing), 0.0, MARGIN * size)

    def variances(self, rows: Index) -> tuple[Float, Float]:
        """Lower and upper bounds of the variances of some figures, (k,); 0 of those that are known exactly."""
        figures, turned = self._listed.figures[rows], self._turned
        size, lengths = np.linalg.norm(figures @ self.R, axis=1), np.sqrt(figures.power(2).sum(axis=1))
        error = (4 + len(self.R)) * ROUNDING * np.linalg.norm(abs(figures) @ abs(self.R), axis=1)
        error += turned * np.linalg.norm(self._turn) * lengths
        free = np.linalg.norm(self._listed.freely(figures), axis=1) > 10 * turned * lengths
        lower, upper = np.maximum(size - error, 0.0) ** 2 / (1 + self._apart), (size + error) ** 2 / (1 - self._apart)
        return lower * free, upper * free


def _what_counts(B: Float, rounding: Float) -> Float:
    """Combinations, (q, r), of columns, (k, q), that make up all, none of which is 0; those as short as rounding are.

    Raises
    ------
    NotCertifiedError
        If no gap tells singular values that are 0 from others.
    """
    lengths = np.linalg.norm(B, axis=0)
    scale = np.divide(1.0, lengths, out=np.zeros(lengths.size), where=lengths > rounding)
    _, values, rows = np.linalg.svd(B * scale, full_matrices=False)
    zero = max(*B.shape, 1) * ROUNDING * float(values.max(initial=0.0))
    kept = values[values > zero]
    if kept.size and kept[-1] < CLEAR_GAP * zero:
        raise NotCertifiedError(f"the rank of its weights is not clear: {kept.size} or less of {values.size}")
    return scale[:, None] * rows[: kept.size].T


def _approximate_solver(A: Float) -> Callable[[Float], Float]:
    """Solves A d = b for some d, (N,), from b, (rows,), about as well as least squares can."""
    Q, R, order = qr(A, mode="economic", pivoting=True, check_finite=False)
    diagonal = abs(np.diag(R))
    rank = int(np.count_nonzero(diagonal > max(A.shape) * ROUNDING * diagonal.max(initial=0.0)))
    Q, R = Q[:, :rank], R[:rank, :rank]

    def solve(b: Float) -> Float:
        """The counts, (N,), of b, (rows,)."""
        found = np.zeros(A.shape[1])
        found[order[:rank]] = solve_triangular(R, Q.T @ b, check_finite=False)
        return found

    return solve


def _disagreement(listed: Listed, noise: WeighedNoise, figures: Float, scale: float) -> Float:
    """How far every figure, (n + c,), is from the tables of one set of counts that satisfies what is known exactly."""
    rows = np.flatnonzero(np.isfinite(figures))
    A = sparse.csr_array(sparse.vstack([listed.figures[rows], listed.F], format="csr"))
    goal = np.concatenate([figures[rows], listed.f]).astype(np.longdouble)
    long_A, dense_A = A.astype(np.longdouble), A.toarray()
    sd = np.concatenate([noise.sd, np.zeros(figures.size - noise.sd.size)])[rows]
    typical = float(np.median(sd[sd > 0])) if (sd > 0).any() else 1.0
    heavy = np.maximum(np.where(sd > 0, sd, typical), typical * 1e-6)
    weights = np.concatenate([1 / heavy, np.full(listed.f.size, 1e3 / heavy.min(initial=typical))])
    exact_rows = slice(rows.size, None)
    left, best = goal, np.inf
    plain, weighted = (_approximate_solver(own[:, None] * dense_A) for own in (np.ones(weights.size), weights))
    for weight, solve in ((1.0, plain), (1.0, plain), *[(weights, weighted)] * (REFINEMENTS - 1)):
        step = solve(weight * left.astype(float))
        closer = left - long_A @ step.astype(np.longdouble)
        reached = float(np.linalg.norm(weights * closer.astype(float)))
        if reached >= best:
            continue
        left, best = closer, reached
    per_row = int(np.diff(A.indptr).max(initial=0))
    rounding = 4 * EXTENDED * per_row * scale
    v = np.zeros(figures.size)
    v[rows] = rounding
    if listed.f.size:
        units, inverse = listed.units, listed.parts[1]
        for _ in range(REFINEMENTS):  # to counts that satisfy what is known exactly
            left = left - long_A @ (inverse @ left[exact_rows].astype(float)).astype(np.longdouble)
        off = abs(left[exact_rows]).astype(float)
        if (off > EXACT_TO * scale * units).any():
            raise DisprovedError(f"x contradicts what is known exactly by {off.max():.3g}")
        v[rows] += abs(listed.figures[rows] @ inverse) @ (off + rounding * units)
    v[rows] += abs(left[: rows.size]).astype(float)
    return v

"""Certificates of problems whose counts can be listed: any tables, sums or equations, any noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cholesky, lstsq
from scipy.sparse.linalg import LinearOperator

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
    least_squares,
    refined,
    require_time,
)
from constraint_builders import Problem
from constraint_builders.arrays import Float, Long
from constraint_builders.relations.elimination import eliminate

EXTENDED = float(np.finfo(np.longdouble).eps)
MOST_ENTRIES = 3_000_000  # of the matrix of counts
MOST_DENSE = 1_000_000
MOST_FIGURES = 4_000_000  # times counts, and counts, up to which least standard errors are worked out by dense algebra
MOST_COUNTS = 2_000
INDEPENDENT = 1e-11  # of what is known exactly, the largest singular value being 1: less follows from the rest
DENOMINATOR = 5040.0  # of the least weight in a relation: others are multiples, where cells are eliminated
CLEAR_GAP = 1e4  # times what rounding makes of a singular value that is 0: the least of others
FIXED = 1e-9  # of a figure's counts that may still move: less is rounding, the figure is known exactly


class Listed:
    """The counts behind a problem, cell by cell.

    Attributes
    ----------
    figures, M : csr_array, (n + c, N), (n, N)
        All cells of which something is claimed, the observed ones first, and these alone, as sums of the counts that
        may be other than 0; of equations the counts are the cells.
    given : csr_array, (e, n)
        Combinations of observed cells that are known exactly.
    F, f : csr_array (k, N), ndarray (k,)
        All that is known exactly: F d = f.
    """

    def __init__(self, problem: Problem, y: Float, made: Sequence[Claim] = ()) -> None:
        self.figures = _counts(problem, made)
        self.M = self.figures[: problem.observed.size]
        self.given, known = problem.equality_rows
        if problem.matrix is not None:
            self.given = sparse.csr_array(sparse.vstack([problem.matrix, self.given]))
            known = np.concatenate([np.zeros(problem.matrix.shape[0]) if problem.b is None else problem.b, known])
        exact = np.flatnonzero(problem.exact)
        self.F = sparse.csr_array(sparse.vstack([self.M[exact], self.given @ self.M], format="csr"))
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
            A basis of all that changes nothing known exactly, F N = 0.
        inverse : ndarray, (N, k)
            F^+: the least change of the counts that changes what is known exactly so.
        rounding : float
            How far rounding may have turned the basis.
        """
        U, values, rows = np.linalg.svd(self.F.toarray() / self.units[:, None])
        zero, largest = max(self.F.shape) * ROUNDING, float(values.max(initial=0.0))
        rank, clear = (int(np.count_nonzero(values > least * largest)) for least in (zero, INDEPENDENT))
        inverse = (rows[:clear].T / values[:clear]) @ U[:, :clear].T / self.units
        return rows[rank:].T, inverse, zero * largest / float(values[rank - 1]) if rank else 0.0


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
    """Bound and violation, both in standard errors."""
    noise, listed = WeighedNoise.of(problem), Listed(problem, y, made)
    if listed.F.shape[0] and not has_few_figures(listed):
        raise NotCertifiedError(
            f"exact knowledge among {listed.figures.shape[0]:,} figures: their least standard errors are worked out by "
            f"dense algebra, which is for {MOST_COUNTS:,} counts, and {MOST_FIGURES:,} figures times counts, at most"
        )
    cells = np.flatnonzero(noise.noisy)
    rho, off = noise.weighted(y - x)
    H, all_hold = _relations(problem, listed)
    if all_hold or listed.M.shape[0] * listed.M.shape[1] > MOST_DENSE:
        found = _what_no_relation_explains(sparse.csr_array(H[:, cells]), noise, cells, rho)
        optimality = noise.size(*found)
    else:
        optimality = _what_counts_explain(listed, noise, cells, rho)
    figures = np.concatenate([x, *(claim.figures for claim in made)])
    scale = max(float(np.nanmax(abs(figures), initial=0.0)), float(abs(y).max(initial=0.0)))
    v = _disagreement(listed, noise, figures, scale)
    least, own = _standard_errors_from_below(listed, noise), v[: x.size]
    worst = in_standard_errors(v, least, EXACT_TO * scale)
    violation = np.divide(own, noise.sd, out=np.zeros_like(own), where=noise.noisy).max(initial=0.0)
    return optimality + off + noise.inverse_size(own) + worst, float(violation)


def _relations(problem: Problem, listed: Listed) -> tuple[sparse.csr_array, bool]:
    """Combinations of measured cells that are the same for all counts, and whether these are all of the problem's.

    Where weights are rounded, or elimination of cells that were not measured rounds, some are nearly so.
    """
    given, size = listed.given, problem.observed.size
    between = problem.relations.between_cells("all")[0] if problem.matrix is None else sparse.csr_array((0, size))
    own = -sparse.eye_array(given.shape[0])  # of what is known exactly, as cells of their own
    H = sparse.csr_array(sparse.block_array([[between, None], [given, own]]))
    if problem.has_unmeasured:
        H = eliminate(H, np.flatnonzero(problem.unmeasured)).remaining
        entries = abs(H.data)
        least = np.minimum.reduceat(entries, H.indptr[:-1]) if H.shape[0] else np.zeros(0)
        H.data = H.data * np.repeat(DENOMINATOR / least, np.diff(H.indptr))
        near = np.rint(H.data)
        H.data = np.where(abs(H.data - near) <= 1e-9 * abs(near), near, H.data)  # of whole weights whole again
    H = H.astype(np.longdouble)
    counts = sparse.vstack([listed.M, given @ listed.M]).astype(np.longdouble)
    hold = abs(H @ counts).sum(axis=1) == 0
    return sparse.csr_array(H[np.flatnonzero(hold)][:, :size]), bool(hold.all())


def _what_counts_explain(listed: Listed, noise: WeighedNoise, cells: NDArray[np.intp], rho: Float) -> float:
    """A bound of the part of weighted residuals v that combinations of B's columns, weighted alike, explain.

    B are the directions that change nothing known exactly. For any z the part is at most
    |B z| + |B'(v - B z)| / (the least singular value that is not 0).

    Raises
    ------
    NotCertifiedError
        If the rank is not clear, or the noise has no entries.
    """
    M, sd, Sigma = listed.M[cells], noise.sd[cells], noise.dense()
    if noise.correlated is not None and Sigma is None:
        raise NotCertifiedError("its weights are rounded, and the covariance of its noise has no entries")
    B, sizes, turned, adds = M.toarray(), abs(M).toarray(), 0.0, 2
    if listed.F.shape[0]:
        N, _, turned = listed.parts
        B, sizes, adds = M @ N, abs(M) @ abs(N), 2 + N.shape[0]
    V = _what_counts(B, turned * np.linalg.norm(sizes, axis=0))
    if not V.shape[1]:
        return 0.0
    L = sparse.diags_array(sd) if Sigma is None else cholesky(Sigma, lower=True)
    inverse = sparse.diags_array(1 / sd) if Sigma is None else np.linalg.inv(L)
    B, v = inverse @ (B @ V), L.T @ rho[cells]
    sizes = abs(inverse) @ (abs(L) @ (abs(inverse) @ (sizes @ abs(V))))
    lengths = np.linalg.norm(B, axis=0)
    B, sizes = B / lengths, sizes / lengths
    U, values, rows = np.linalg.svd(B, full_matrices=False)
    least = float(values[-1]) - max(B.shape) * ROUNDING * float(values[0])
    if least <= 0:
        raise NotCertifiedError("its noise is too uneven beside its weights")
    z = rows.T @ ((U.T @ v) / values)
    exact = B.astype(np.longdouble)
    left = v - exact @ z
    explained = float(np.linalg.norm(B @ z)) * (1 + v.size * ROUNDING) + ROUNDING * float(
        np.linalg.norm(sizes @ abs(z)) + 2 * np.linalg.norm(v)
    )
    rounding = adds * ROUNDING * sizes.T @ (abs(left).astype(float) + sizes @ abs(z))
    steepest = (exact.T @ left).astype(float)
    beside = abs(M).T @ (abs(inverse).T @ abs(left).astype(float))
    beside = turned * float(np.linalg.norm(V / lengths) * np.linalg.norm(beside))
    return explained + (float(np.linalg.norm(steepest) + np.linalg.norm(rounding)) + beside) / least


def _what_counts(B: Float, rounding: Float) -> Float:
    """Combinations of columns that make up all of them, none of which is 0; columns of that length or less are.

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


def has_few_figures(listed: Listed) -> bool:
    """Whether there are so few that dense algebra may work out what they leave free."""
    figures, counts = listed.figures.shape
    return figures * counts <= MOST_FIGURES and counts <= MOST_COUNTS


def _what_no_relation_explains(
    H: sparse.csr_array, noise: WeighedNoise, cells: NDArray[np.intp], rho: Float
) -> tuple[Float, Float]:
    """Rho less the combination of relations that comes closest, over all cells, and a bound of its rounding."""
    near = H.astype(float)
    root = _root(noise, cells, near.shape[0])
    weighted = root @ near.T
    lengths = np.sqrt((weighted**2).sum(axis=0))
    scale = 1 / np.where(lengths > 0, lengths, 1.0)  # 0 of relations between exact cells alone
    weighted = weighted * scale
    start = rho[cells].astype(np.longdouble)

    def step(left: Long) -> Float:
        return scale * _least_squares(weighted, root @ left.astype(float))

    def size(left: Long) -> float:
        return float(np.linalg.norm(root @ left.astype(float)))

    found, left = refined(np.zeros(near.shape[0], dtype=np.longdouble), step, lambda own: start - H.T @ own, size)
    deepest = int(np.bincount(near.indices, minlength=1).max(initial=0)) + 4
    error, g = np.zeros((2, rho.size))
    g[cells] = left.astype(float)
    sizes = abs(rho[cells]) + abs(near).T @ abs(found)
    error[cells] = 2 * deepest * EXTENDED * sizes + ROUNDING * abs(g[cells])
    return g, error


def _root(noise: WeighedNoise, cells: NDArray[np.intp], rows: int) -> Any:
    """A square root R of the covariance, R'R = Sigma; of its diagonal alone where it is diagonal, large or rounded."""
    small = noise.correlated is not None and cells.size * max(rows, cells.size) <= MOST_DENSE
    Sigma = noise.dense() if small else None
    try:
        return sparse.diags_array(noise.sd[cells]) if Sigma is None else cholesky(Sigma)
    except np.linalg.LinAlgError:  # independent noise is lost in rounding beside what cells share
        return sparse.diags_array(noise.sd[cells])


def _least_squares(B: sparse.sparray | Float, goal: Float) -> Float:
    """What B makes `goal` of, by least squares: of large matrices as near as iterations come."""
    if isinstance(B, np.ndarray) or B.shape[0] * B.shape[1] <= MOST_DENSE:
        dense = B if isinstance(B, np.ndarray) else B.toarray()
        return lstsq(dense, goal, lapack_driver="gelsy", check_finite=False)[0]
    rows, back = sparse.csr_array(B), sparse.csr_array(B.T)
    return least_squares(LinearOperator(B.shape, lambda z: rows @ z, lambda r: back @ r), goal)


def _disagreement(listed: Listed, noise: WeighedNoise, figures: Float, scale: float) -> Float:
    """How far every figure is from the tables of one set of counts that satisfies what is known exactly."""
    rows = np.flatnonzero(np.isfinite(figures))
    A = sparse.csr_array(sparse.vstack([listed.figures[rows], listed.F], format="csr"))
    goal = np.concatenate([figures[rows], listed.f]).astype(np.longdouble)
    long_A = A.astype(np.longdouble)
    sd = np.concatenate([noise.sd, np.zeros(figures.size - noise.sd.size)])[rows]
    typical = float(np.median(sd[sd > 0])) if (sd > 0).any() else 1.0
    heavy = np.maximum(np.where(sd > 0, sd, typical), typical * 1e-6)
    weights = np.concatenate([1 / heavy, np.full(listed.f.size, 1e3 / heavy.min(initial=typical))])
    exact_rows = slice(rows.size, None)
    left, best = goal, np.inf
    for weight in (np.ones(weights.size), np.ones(weights.size), *[weights] * (REFINEMENTS - 1)):
        step = _least_squares(sparse.csr_array(sparse.diags_array(weight) @ A), weight * left.astype(float))
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


def _standard_errors_from_below(listed: Listed, noise: WeighedNoise) -> Float:
    """For any direction z of possible counts a figure's variance is at least z_i^2 / (z' Sigma^-1 z)."""
    require_time()
    M, cells = listed.figures, np.flatnonzero(noise.noisy)
    if has_few_figures(listed):
        N, _, rounding = listed.parts
        T = M @ N
        T[np.linalg.norm(T, axis=1) < max(FIXED, rounding) * np.sqrt(M.power(2).sum(axis=1))] = 0
        W = T[cells] / noise.least[cells, None]
        if not W.any():
            return np.zeros(M.shape[0])
        U, s, _ = np.linalg.svd(W.T, full_matrices=False)
        kept = s > max(1e-13, rounding) * s[0]
        R = (T @ U[:, kept]) / s[kept]
        size = np.linalg.norm(R, axis=1)
        return np.where(size > 1e-13 * np.linalg.norm(T, axis=1) / s[0], size, 0.0) * 0.9
    squares = M.multiply(M)
    precision = np.divide(1.0, noise.least**2, out=np.zeros_like(noise.sd), where=noise.noisy)
    information = squares[: precision.size].T @ precision
    per_count = np.divide(1.0, information, out=np.zeros_like(information), where=information > 0)
    return np.sqrt(np.asarray((squares @ sparse.diags_array(per_count)).max(axis=1).todense()).ravel())

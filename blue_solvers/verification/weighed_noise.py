"""The noise as a certificate needs it: weighted residuals, sizes and a diagonal from below, with rounding bounded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse.linalg import LinearOperator, lsqr, splu

from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.description.layout import Layout
from constraint_builders.description.noise import Noise
from constraint_builders.description.source_values import SourceValues
from constraint_builders.diagonals import diagonal_matrix

thread_time = getattr(time, "thread_time", time.process_time)  # a browser has one thread, and the second clock alone
Product = Callable[[Float], Float]
_LIMIT: ContextVar[tuple[float, float] | None] = ContextVar("seconds of a proof, and when they end", default=None)
ROUNDING, EXTENDED = np.finfo(np.float64).eps, float(np.finfo(np.longdouble).eps)
EXACT_TO = 1e-13  # of the largest figure: how far figures that are known exactly may be off, rounding of their sums
PIECE = 2**16
REFINEMENTS = 4  # of a solution, at most
MOST_TIED = 3_000  # cells that noise ties together, whose covariance is factorised densely
INVERSE_STEPS = 20  # power steps towards the least eigenvalue of the correlations


def numbers_over(layout: Layout, values: ArrayLike, what: str, *columns: int) -> Float:
    """Over a layout, (size,) or (size, columns); refused where they have another shape."""
    found, shape = layout.flat(values, what), (layout.size, *columns)
    if found.shape != shape:
        raise ValueError(f"{what} must have shape {shape}: got {found.shape}")
    return found


def measured_vector(problem: Problem, values: ArrayLike, what: str) -> Float:
    """A vector over the observed layout, (n,); refused where a cell that was measured is not finite."""
    vector = numbers_over(problem.observed, values, what)
    finite = np.isfinite(vector)
    if not finite.all() and (bad := ~finite & ~problem.unmeasured).any():
        raise ValueError(f"{problem.observed.describe(int(bad.argmax()))} of {what} is not finite: give a number")
    return vector


def reciprocal(values: Float) -> Float:
    """1 / values, of any shape, and 0 where they are 0."""
    if values.all():
        return 1 / values
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def rounding_of(*counts: Float) -> Float:
    """How far rounding may have moved estimates from counts, (n,) or (n, K) each: all of them make each; () or (K,).

    Errors that are simulated are of noise alone and rounded as that: the error of an estimate can be compared with them
    only up to this.
    """
    return EXACT_TO * np.max([abs(np.nan_to_num(own)).max(axis=0, initial=0.0) for own in counts], axis=0)


def rounding_beside(x: Float, variances: Float) -> float:
    """How far rounding may have moved all figures, (n,), in standard deviations of what was measured of each."""
    squares = np.divide(np.square(x), variances, out=np.zeros_like(x), where=variances > 0)
    return float(ROUNDING * np.sqrt(np.nansum(squares)))


def least_squares(B: LinearOperator, goal: Float) -> Float:
    """What B, (r, q), makes `goal`, (r,), of, by least squares, of least length: as near as iterations come."""

    def product(z: Float) -> Float:
        """B z, (r,), of z, (q,), while there is time."""
        require_time()
        return B.matvec(z)

    return lsqr(LinearOperator(B.shape, product, B.rmatvec), goal, atol=0, btol=1e-15, iter_lim=1000)[0]


def refined(
    start: Any, step: Callable[[Any], Float], left: Callable[[Any], Any], size: Callable[[Any], Any], most: float = 0.0
) -> tuple[Any, Any]:
    """What steps improve while that makes smaller what is left of it, or until that is `most`; and what is left."""
    found, rest = start, left(start)
    for _ in range(REFINEMENTS):
        if size(rest) <= most:
            break
        tried = found + step(rest)
        closer = left(tried)
        if size(closer) >= size(rest):
            break
        found, rest = tried, closer
    return found, rest


def in_standard_errors(off: Float, least: Float, allowed: float) -> float:
    """How far figures, (k,), are off at most, in standard errors from below; one that is known exactly, 0, by so much.

    Raises
    ------
    DisprovedError
        If that is off by more.
    """
    fixed = least <= 0
    if (off[fixed] > allowed).any():
        raise DisprovedError(f"a figure that is known exactly is off by {off[fixed].max():.3g}")
    return float(np.divide(off, least, out=np.zeros_like(off), where=~fixed).max(initial=0.0))


class NotCertifiedError(Exception):
    """Why no bound could be proved."""


class FinalError(NotCertifiedError):
    """Why no other proof is asked after this one either."""


class TooLongError(FinalError):
    """A proof took longer than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End proofs once they took so many seconds of their thread's processor; within another limit that one holds."""
    if _LIMIT.get() is not None:
        yield
        return
    token = _LIMIT.set((seconds, thread_time() + seconds))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def require_time() -> None:
    """Raise `TooLongError` once a proof took longer than it may."""
    seconds, end = _LIMIT.get() or (0.0, np.inf)
    if end < np.inf and thread_time() > end:
        raise TooLongError(f"its proof was stopped after {seconds:.2g} s; certify(problem, y, x) goes on to the end")


class DisprovedError(FinalError):
    """What of an answer contradicts what is known exactly."""


@dataclass(frozen=True)
class WeighedNoise:
    """Covariance Sigma of the noisy cells.

    Attributes
    ----------
    noisy : ndarray of bool, (n,)
        Cells that were measured with noise.
    sd : ndarray, (n,)
        Square root of Sigma's diagonal; 0 in other cells.
    least : ndarray, (n,)
        Square root of a diagonal below Sigma: Sigma - diag(least^2) has no negative eigenvalue.
    correlated : Noise or None
        The problem's, if its covariance is not diagonal.
    """

    noisy: NDArray[np.bool_]
    sd: Float
    least: Float
    correlated: Noise | None

    @classmethod
    def of(cls, problem: Problem) -> WeighedNoise:
        """The noise of a problem."""
        noise = problem.noise
        noisy = ~(problem.exact | problem.unmeasured)
        sd = np.sqrt(problem.variances)
        sd[problem.unmeasured] = 0.0
        if noise.covariance is None:
            return cls(noisy, sd, sd, None)
        if noise.is_shared:
            return cls(noisy, sd, np.sqrt(np.where(noisy, noise.own.variances, 0.0)), noise)
        if noise.is_singular:
            raise NotCertifiedError("its covariance is singular: residuals cannot be weighed by its inverse")
        entries = noise.entries()
        if entries is not None:
            return cls(noisy, sd, sd * np.sqrt(_least_correlation(sparse.csc_array(entries), sd)), noise)
        return cls(noisy, sd, sd * np.sqrt(_least_by_solves(_solve_of(noise), sd)), noise)

    @classmethod
    def apart(cls, sources: SourceValues) -> WeighedNoise:
        """That of the single measurements of several sources, (k,)."""
        sd = np.sqrt(sources.variances)
        return cls(sd > 0, sd, sd, None)

    @cached_property
    def _inverse(self) -> Float:
        """1 / sd, (n,), 0 where that is."""
        return reciprocal(self.sd)

    def weighted(self, q: Float) -> tuple[Float, float]:
        """Sigma^-1 q, (n,), over the noisy cells, 0 elsewhere, and how far off it may be, in the norm of Sigma.

        `q` is a difference of two doubles, each cell right to half a unit in its last place.
        """
        if self.correlated is None:
            part = q * self._inverse if self.noisy.all() else np.where(self.noisy, q, 0.0) * self._inverse
            size = np.sqrt(np.einsum("i,i->", part, part))  # in one thread
            part *= self._inverse
            return part, 6 * ROUNDING * float(size)  # of some nothing is claimed
        q = np.where(self.noisy, q, 0.0)  # nothing is claimed of some that are not
        rho = self._solve(self.correlated, q)
        left = np.where(self.noisy, q - np.asarray(self.correlated @ rho), 0.0)
        rounding = ROUNDING * (abs(q) + 4 * np.sqrt(q.size) * self.sd * float(np.linalg.norm(self.sd * rho)))
        return rho, self.inverse_size(abs(left) + rounding)

    def size(self, g: Float, error: Float | float = 0.0) -> float:
        """An upper bound of sqrt(g' Sigma g) for every g, (n,), within `error` of the one given, cell by cell."""
        if self.correlated is None:
            scaled = self.sd * (abs(g) + error)
            return float(np.linalg.norm(scaled)) * (1 + g.size * ROUNDING)
        with np.errstate(invalid="ignore"):  # beyond float64 it is no bound
            square = float(g @ np.asarray(self.correlated @ g))
        spread = (self.sd * abs(g)).sum()
        return float(np.sqrt(max(square, 0.0) + 8 * g.size * ROUNDING * spread**2)) + float((self.sd * error).sum())

    def slack(self, statistic: float, rounding: float) -> float:
        """How far residuals that are each off by at most `rounding` may have moved their weighted squares."""
        length = self.inverse_size(np.where(self.noisy, rounding, 0.0))
        return length * (2 * float(np.sqrt(statistic)) + length)

    def inverse_size(self, v: Float) -> float:
        """An upper bound of sqrt(v' Sigma^-1 v), v being (n,), over the noisy cells."""
        return float(np.linalg.norm(v * reciprocal(self.least))) * (1 + v.size * ROUNDING)

    def inverse_root(self, cells: Index) -> tuple[Product, Product]:
        """Of some cells, (k,), products with an R with R'R = Sigma^-1, and with what bounds their roundings.

        Raises
        ------
        NotCertifiedError
            If noise ties too many of them together.
        """
        if self.correlated is None:
            root = diagonal_matrix(1 / self.sd[cells])
            return root.__matmul__, root.__matmul__
        if self.correlated.is_shared:  # whose own noise a Cholesky factor would lose beside what cells share
            own = diagonal_matrix(1 / self.least[cells])
            U, values, _ = np.linalg.svd(own @ self.correlated.sources[cells], full_matrices=False)
            shrunk = U * (1 / np.hypot(1, values) - 1)
            return (lambda X: own @ X + shrunk @ (U.T @ (own @ X))), (
                lambda X: own @ X + abs(U) @ (abs(U).T @ (own @ X))
            )
        noise, roots, sizes = self.correlated.at(cells), [], []
        entries = noise.entries()
        blocks = [np.arange(cells.size)] if entries is None else tied_together(entries)
        most = max((block.size for block in blocks), default=0)
        if most > MOST_TIED:
            tied = f"noise ties {most:,} of its cells together"
            raise NotCertifiedError(f"{tied}: dense algebra, which is for {MOST_TIED:,} at most")
        for block in blocks:
            own = noise @ np.eye(block.size) if entries is None else entries[block][:, block].toarray()
            L = cholesky(np.asarray(own), lower=True)
            root = solve_triangular(L, np.eye(block.size), lower=True)
            size = abs(root) @ abs(L)
            roots.append(root)
            sizes.append(size @ (size.T @ abs(root)))
        order = np.concatenate([np.zeros(0, dtype=np.intp), *blocks])
        one, other = (sparse.csr_array(sparse.block_diag(own or [np.zeros((0, 0))])) for own in (roots, sizes))
        return (lambda X: one @ X[order]), (lambda X: other @ X[order])

    def _solve(self, noise: Noise, q: Float) -> Float:
        """Sigma^-1 q, (n,), of a q that is 0 but in noisy cells."""
        if not noise.is_shared:
            return np.asarray(_solve_of(noise)(q[:, None]))[:, 0]
        cells, found = np.flatnonzero(self.noisy), np.zeros_like(q)
        found[cells] = _solve_of(noise.at(cells))(q[cells])
        return found


def _solve_of(noise: Noise) -> Callable[[Float], Float]:
    if noise.solve is None:
        raise NotCertifiedError("its covariance is an operator without `solve`: the residuals cannot be weighted")
    return noise.solve


def _least_correlation(covariance: sparse.csc_array, sd: Float) -> float:
    """A number below all eigenvalues of the correlations, (k, k): the pivots of what is left without it say so."""
    scaling = sparse.diags_array(1 / sd)
    correlation = sparse.csc_array(scaling @ covariance @ scaling)
    factors = splu(correlation)
    least = 0.5 / _largest(factors.solve, sd.size)
    while least > np.sqrt(ROUNDING) / 100:
        shifted = sparse.csc_array(correlation - least * sparse.eye_array(sd.size))
        lu = splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        if np.array_equal(lu.perm_r, lu.perm_c) and lu.U.diagonal().min() > 0:
            return least
        least /= 4
    raise NotCertifiedError("its noise is so nearly dependent that no bound of its correlations could be proved")


def _least_by_solves(solve: Callable[[Float], Float], sd: Float) -> float:
    """The same of an operator on cells with sd (k,), by its solves; a tenth of what they say."""
    return 0.1 / _largest(lambda v: sd * np.asarray(solve((sd * v)[:, None]))[:, 0], sd.size)


def _largest(product: Callable[[Float], Float], size: int) -> float:
    """About the largest eigenvalue."""
    v = np.random.default_rng(0).standard_normal(size)
    for _ in range(INVERSE_STEPS):
        v = product(v / np.linalg.norm(v))
    return float(np.linalg.norm(v))


def tied_together(cells: sparse.sparray) -> list[Index]:
    """Cells of a matrix, (k, k), those together that it ties to one another."""
    labels = sparse.csgraph.connected_components(cells, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if order.size else []

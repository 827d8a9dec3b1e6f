"""A proof of leaves, whoever made them, by one factor that only has to exist: sparse at any size.

With b any leaves, W the inverse of the noise, A = S'W S and r = S'W (y - S b), the best leaves are A^-1 r away. In its
own standard errors no combination of leaves is off by more than r has of length in A^-1, and with any z

    |r|_{A^-1} <= |z|_A + |r - A z| / sqrt(a),    a <= the least eigenvalue of A.

A matrix of which a Cholesky factor L comes out has no eigenvalue below minus what rounding makes of it, which is a
multiple of the row sums of |L||L'| (Rump 2006): A less a shift says how large a is. Where squares lose too many digits,
and the size allows, a is the square of a singular value. All of that is of combinations u, b = F u + what exact rows
say, of which it is tested that they are all that there are: exact rows have as high a rank as leaves were solved from
them, and of leaves that are not estimable one for every free direction is held, as it may be. Sources of shared noise
are leaves of their own, measured as 0 with variance 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract.solver import plain_problem
from blue_solvers.errors import UnsupportedProblemError
from blue_solvers.least_squares.factors_of_information import is_cheap_orthogonal
from blue_solvers.least_squares.leaf_basis import LeafBasis, in_units, whitened
from blue_solvers.normal_equations.factorisation import factorise, norm_of_inverse
from blue_solvers.verification.certificate import Certificate, judged
from blue_solvers.verification.weighed_noise import (
    EXACT_TO,
    EXTENDED,
    REFINEMENTS,
    ROUNDING,
    DisprovedError,
    NotCertifiedError,
    WeighedNoise,
    in_standard_errors,
    reciprocal,
    require_time,
)
from constraint_builders import Problem
from constraint_builders.arrays import Float, Long

SHIFTS = (8.0, 64.0, 4096.0)  # by which an eigenvalue that is looked at is divided, until a factor exists
STEPS, ENOUGH = 40, 1e-13  # of corrections; what is left that nobody asks about, in standard errors
MARGIN, CLEAN = 0.9, 1e-10  # of standard errors from below; of what directions move, what they may change of exact rows
APART = 0.1  # of a unit matrix, what whitened noise may be off by


class BoundedBelow(NamedTuple):
    """What solves nearly with A, (q, K), and a number that no eigenvalue of it is below."""

    solve: Callable[[Float], Float]
    least: float


class ProofOfLeaves:
    """Certificates of leaves, and of the rows that belong to them.

    Parameters
    ----------
    problem : Problem
        Of rows and leaves.
    basis : LeafBasis
        Of which is taken, and tested: what whitens noise, what is free, and which combinations keep exact rows. Besides
        a guess of an eigenvalue.

    Raises
    ------
    NotCertifiedError
        If rounding may decide what rows determine, or noise is too uneven.
    """

    def __init__(self, problem: Problem, basis: LeafBasis) -> None:
        self._problem, self._basis = plain_problem(problem), basis
        if not basis.rank.is_clear:
            raise NotCertifiedError(f"the rank of its weights is not clear: {basis.rank}")
        self._exact = np.flatnonzero(problem.exact)
        self._require_all_combinations()
        self._sources = problem.noise.sources if problem.noise.is_shared else np.zeros((problem.observed.size, 0))
        self._shared = self._sources.shape[1]
        S, T, F = basis.S, basis.T, basis.F
        if self._shared:
            unit = sparse.eye_array(self._shared)
            S = sparse.csr_array(sparse.block_array([[S, sparse.csr_array(self._sources)], [None, unit]]))
            T, F = (sparse.csr_array(sparse.block_diag([own, unit])) for own in (T, F))
        C = whitened(T, sparse.csr_array(S @ F))
        lengths = _lengths(C)
        if not (lengths > 0).all():
            raise NotCertifiedError("no row says anything of a leaf that is claimed to be determined")
        self._C, F = in_units(C, 1 / lengths), in_units(F, 1 / lengths)
        mixed = self._exact.size or self._problem.is_correlated  # an entry of C is then a sum of several
        self._sizes = whitened(abs(T), sparse.csr_array(abs(S) @ abs(F))) if mixed else abs(self._C)
        self._F, self._T, self._whole = (own.astype(np.longdouble) for own in (F, T, S))
        self._S = basis.extended[2]
        self._most = int(np.diff(basis.T.indptr).max(initial=1))
        self._noise = WeighedNoise.of(self._problem) if self._problem.is_correlated else None
        self._uneven = self._whitened_apart()

    def _require_all_combinations(self) -> None:
        """Refuse combinations that exact rows, or what is free, leave others beside."""
        problem, basis = self._problem, self._basis
        held = sparse.csr_array(basis.free)[basis.pins]
        told = basis.touched(basis.S[np.flatnonzero(~problem.unmeasured)]).nnz or basis.F[basis.pins].nnz
        every = basis.F.shape[1] + basis.pins.size + basis.solved.size == basis.S.shape[1]
        if told or not every or (held.nnz, np.unique(held.indices).size) != (basis.pins.size,) * 2:
            raise NotCertifiedError("no leaves were found that tell its free directions apart")
        if not self._exact.size:
            return
        E, F = basis.S[self._exact], basis.F
        if (abs(E @ F) > sparse.csr_array(CLEAN * (abs(E) @ abs(F)))).nnz:
            raise NotCertifiedError("no directions were found that leave what is known exactly as it is")
        E = sparse.csr_array(sparse.diags_array(reciprocal(np.sqrt(E.power(2).sum(axis=1)))) @ E)[:, basis.solved]
        E = in_units(E, reciprocal(_lengths(E)))
        bounded_below(E, abs(E), 16)

    def _whitened_apart(self) -> float:
        """How far T Sigma T' is from 1, at most."""
        if self._noise is None:
            squares = self._T.data**2 * np.append(self._problem.variances, np.ones(self._shared))[self._T.indices]
            return float(abs(squares - 1).max(initial=0.0)) + 8 * EXTENDED
        T, Sigma = self._basis.T, sparse.csr_array(self._problem.noise.entries())
        off = abs(sparse.csr_array(T @ Sigma @ T.T) - sparse.eye_array(T.shape[0], format="csr"))
        sizes = abs(T) @ (abs(Sigma) @ (abs(T).T @ np.ones(T.shape[0])))
        found = off @ np.ones(T.shape[0]) + 4 * self._most * ROUNDING * sizes
        if not (found < APART).all():
            raise NotCertifiedError("its noise is so nearly dependent that its inverse is not proved")
        return float(found.max(initial=0.0))

    @cached_property
    def _missing(self) -> sparse.csr_array:
        """What combinations change of exact rows at most, (e, q), which they should leave as they are."""
        E, F = self._whole[self._exact], self._F
        sizes = sparse.csr_array(abs(E) @ abs(F)) * (EXTENDED * (4 + int(np.diff(E.indptr).max(initial=0))))
        return sparse.csr_array(abs(sparse.csr_array(E @ F)) + sizes).astype(float)

    @cached_property
    def _by_exact(self) -> sparse.csr_array:
        """What rows have of exact ones, (n, e)."""
        return sparse.csr_array(self._basis.S @ self._basis.R[:, self._exact])

    @cached_property
    def _bent(self) -> float:
        """How far whitened rows of combinations are from those of some that keep exact rows, (N, q) in one norm."""
        missing = np.sqrt(self._missing.power(2).sum(axis=1))
        return 2 * float(np.linalg.norm(abs(self._basis.T) @ (abs(self._by_exact) @ missing)))

    @cached_property
    def _factor(self) -> BoundedBelow:
        """Of A, in units of combinations in which its diagonal is 1."""
        terms = 2 * self._most + int(np.bincount(self._F.indices, minlength=1).max()) + 16
        return bounded_below(self._C, self._sizes, terms, self._basis.factor.least**2)

    @one_blas_thread()
    def certificate(self, y: Float, values: Float, rows: Float, fitting: Float) -> Certificate:
        """How far leaves and rows are from the best ones, at most.

        Parameters
        ----------
        y : ndarray, (n,)
        values, rows : ndarray, (k,) and (n,)
            NaN where nothing is claimed.
        fitting : ndarray, (k,)
            What leaves may be that are not estimable, or of which nothing is claimed.
        """
        lost = self._basis.lost
        b = np.where(np.isnan(values) | lost, fitting, values).astype(np.longdouble)
        scale = float(abs(np.concatenate([y, b, np.nan_to_num(rows)])).max(initial=0.0))
        if self._exact.size:
            b = self._towards_exact(y, b, scale)
        fitted = self._S @ b
        off = np.concatenate(
            [np.where(lost, np.nan, values - b), np.where(self._basis.lost_rows, np.nan, rows - fitted)]
        )
        off = abs(np.nan_to_num(off)).astype(float)
        off[b.size :] += self._rounding(self._S, y, b)
        least = self._least_standard_errors
        doubt, drift = self._missed(y, b)
        worst = in_standard_errors(off + np.where(least > 0, doubt, 0.0), least, EXACT_TO * scale)
        apart = off[b.size :] * (~self._problem.exact & ~self._problem.unmeasured)
        whole = float(np.linalg.norm(abs(self._basis.T) @ apart))
        if self._shared:
            left = np.where(self._problem.exact, 0.0, (y - fitted) * reciprocal(self._problem.variances))
            tied = np.eye(self._shared) + self._sources.T @ (
                reciprocal(self._problem.variances)[:, None] * self._sources
            )
            sources = np.linalg.solve(tied, (self._sources.T @ left).astype(float))
            y, b = np.append(y, np.zeros(self._shared)), np.append(b, sources)
            fitted = self._whole @ b
        explained = self._explained(y, fitted, self._rounding(self._whole, y, b))
        sd = np.sqrt(np.where(apart > 0, self._problem.variances, 1.0))
        return judged(explained + (1 + self._uneven) * (whole + drift) + worst, float((apart / sd).max(initial=0.0)))

    def _missed(self, y: Float, b: Long) -> tuple[Float, float]:
        """How far leaves and rows, (k + n,), are from some that meet exact rows, and noisy ones together.

        Exact rows that are nearly dependent make much of what they are missed by, be it rounding of extended precision.
        """
        if not self._exact.size:
            return np.zeros(b.size + y.size), 0.0
        E, R = self._S[self._exact], self._basis.R[:, self._exact]
        missed = 2 * (abs(y[self._exact] - E @ b).astype(float) + self._rounding(E, y[self._exact], b))
        of_rows = abs(self._by_exact) @ missed
        return np.concatenate([abs(R) @ missed, of_rows]), float(np.linalg.norm(abs(self._basis.T) @ of_rows))

    def _rounding(self, S: sparse.csr_array, y: Float, b: Long) -> Float:
        """Of y - S b, (n,), in extended precision."""
        counts = EXTENDED * (4 + int(np.diff(S.indptr).max(initial=0)))
        return (counts * (abs(S) @ abs(b) + abs(y))).astype(float)

    def _explained(self, y: Float, fitted: Long, rounding: Float) -> float:
        """How far leaves are from the best by what they leave, in standard errors, (n,) all."""
        left, terms = self._T @ (y - fitted), 4 * EXTENDED * self._most
        off = float(np.linalg.norm(abs(self._T) @ rounding + terms * abs(left)))  # no longer once seen by leaves
        if self._noise is None:
            shares, more = self._T.T @ left, 4 * self._uneven * float(np.linalg.norm(left))
        else:
            shares, more = self._noise.weighted((y - fitted).astype(float))
        terms += EXTENDED * sum(int(np.bincount(own.indices, minlength=1).max()) for own in (self._whole, self._F))
        doubt = terms * self._of_leaves(abs(shares), True)
        if self._exact.size:
            seen, own = self._by_exact.T, shares[: self._by_exact.shape[0]].astype(float)
            doubt = doubt + 2 * self._missing.T @ (
                abs(seen @ own) + terms * ROUNDING / EXTENDED * (abs(seen) @ abs(own))
            )
        shares = self._of_leaves(shares)
        solve, least = self._factor
        rest, of_z = shares, np.zeros(self._C.shape[0], dtype=np.longdouble)
        for _ in range(STEPS):
            require_time()
            step = solve(rest.astype(float)[:, None])[:, 0].astype(np.longdouble)
            moved = self._T @ (self._whole @ (self._F @ step))
            length = step @ rest / ((moved @ moved) or 1.0)  # the best, whatever solves
            of_z, rest = of_z + length * moved, rest - length * self._of_leaves(self._T.T @ moved)
            size, open_ = float(np.linalg.norm(of_z)), float(np.linalg.norm(rest)) / np.sqrt(least)
            if open_ <= max(ENOUGH, size / 100):
                break
        found = size + open_
        found *= 1 + (STEPS * terms * np.sqrt(shares.size) + self._bent) / np.sqrt(least)  # what steps may have rounded
        return (found + float(np.linalg.norm(doubt)) / np.sqrt(least)) / np.sqrt(1 - 2 * self._uneven) + off + more

    def _towards_exact(self, y: Float, b: Long, scale: float) -> Long:
        """Leaves, (k,), moved onto exact rows.

        Raises
        ------
        DisprovedError
            If that is more than rounding.
        """
        E, R = self._S[self._exact], self._basis.R[:, self._exact]
        sizes = (abs(E) @ abs(b)).astype(float)
        for step in range(REFINEMENTS):
            off = y[self._exact] - E @ b
            if step == 0 and (wrong := abs(off) > EXACT_TO * (scale + sizes)).any():
                raise DisprovedError(f"x contradicts what is known exactly by {abs(off[wrong]).max():.3g}")
            b = b + R @ off
        return b

    @cached_property
    def _least_standard_errors(self) -> Float:
        """Of leaves and rows from below, (k + n,), 0 where exact rows determine them: by directions that keep these."""
        basis = self._basis
        lengths = _lengths(whitened(basis.T, basis.sums))
        found = np.zeros(sum(basis.S.shape))
        for start, own in ((0, basis.F), (basis.S.shape[1], basis.sums)):
            np.maximum.at(found, start + own.tocoo().row, abs(own.data) / lengths[own.indices])
        found[basis.S.shape[1] + self._exact] = 0.0
        return MARGIN * found

    def _of_leaves(self, shares: Float, sizes: bool = False) -> Long:
        """What shares of rows, (n,), are of combinations, (q,), or bounds of their sizes."""
        F, S = (abs(self._F), abs(self._whole)) if sizes else (self._F, self._whole)
        return F.T @ (S.T @ shares)


def bounded_below(C: sparse.csr_array, sizes: sparse.csr_array, terms: int, guess: float | None = None) -> BoundedBelow:
    """Of C'C, columns of C, (N, q), having length 1, its entries right to so many roundings of their sizes.

    Raises
    ------
    NotCertifiedError
        If rounding may make it singular.
    """
    if not C.shape[1]:
        return BoundedBelow(np.array, 1.0)
    matrix, found = sparse.csr_array(C.T @ C), None
    try:
        guess = guess or 1 / norm_of_inverse(factorise(matrix).solve, matrix.shape[0])
        found = _shifted(matrix, min(guess, 1.0))
    except UnsupportedProblemError:
        pass
    added = (terms + int(np.bincount(C.indices, minlength=1).max())) * ROUNDING
    formed = added * float((sizes.T @ (sizes @ np.ones(C.shape[1]))).max(initial=0.0))
    if found is not None and found.least > 2 * formed:
        return found._replace(least=found.least - formed)
    if not is_cheap_orthogonal(C.shape):
        raise NotCertifiedError("no factor says how far its information matrix is from a singular one")
    require_time()
    _, values, right = np.linalg.svd(C.toarray(), full_matrices=False)
    formed = ROUNDING * (terms * float(np.sqrt(sizes.power(2).sum())) + 4 * max(C.shape) * float(values[0]))
    if not values[-1] > formed or len(values) < C.shape[1]:
        raise NotCertifiedError("the rank of its weights is not clear")
    turn = right.T / values
    return BoundedBelow(lambda R: turn @ (turn.T @ R), float(values[-1] - formed) ** 2)


def _lengths(matrix: sparse.csr_array) -> Float:
    """Of columns, of (N, q)."""
    found: Float = np.sqrt(np.bincount(matrix.indices, matrix.data**2, minlength=matrix.shape[1]))
    return found


def _shifted(matrix: sparse.csr_array, guess: float) -> BoundedBelow | None:
    """A factor of a matrix of unit diagonal, (q, q), less a shift, which says how large its least eigenvalue is."""
    unit = sparse.eye_array(matrix.shape[0], format="csr")
    for share in SHIFTS:
        require_time()
        try:
            factor = factorise(matrix - guess / share * unit)
            L = factor.triangle()[0]
        except UnsupportedProblemError:
            continue
        np.abs(L.data, out=L.data)
        terms = 2 * int(np.bincount(L.indices, minlength=1).max()) + 16
        rounding = terms * ROUNDING * float((L @ (L.T @ np.ones(L.shape[0]))).max(initial=0.0))
        if guess / share > 2 * rounding:
            return BoundedBelow(factor.solve, guess / share - rounding)
    return None

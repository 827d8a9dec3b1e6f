"""Least squares for the leaves themselves: the solver, and what it makes ready.

With rows T y = B u + e (see `LeafBasis`) the leaves are b = F u + R y, u = (B'B)^-1 B' T (1 - S R) y. Every solution is
corrected by what it leaves in extended precision, until corrections are nothing beside its standard errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy import sparse

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import Info, Prepared, Refusal, Solver
from blue_solvers.least_squares.leaf_basis import LeafBasis
from constraint_builders import Problem
from constraint_builders.arrays import Float, Long

CORRECTIONS = 20
SETTLED = 1e-13  # standard errors that a correction may move anything by when it is the last
GAIN = 0.5  # of a correction, that the next may be: factors that gain less have lost their digits
ROUNDED = 100 * float(np.finfo(float).eps)  # of a solution, by a factor of an information matrix of unit eigenvalues
EXACT = 1e-9  # standard errors: answers that were settled to that count as exact


@dataclass(frozen=True)
class ThroughLeaves(Solver):
    """A factor of the information S' W S about leaves.

    Parameters
    ----------
    basis : LeafBasis, optional
        Of the problem that will be solved, where it is known.
    """

    basis: LeafBasis | None = field(default=None, compare=False, repr=False)
    name: ClassVar[str] = "least_squares"

    def refusal(self, problem: Problem) -> str | None:
        """Problems of anything but rows of leaves, and noise without entries."""
        if problem.summing is None:
            return Refusal("it is not given by rows that are sums of leaves", "use solver='auto'")
        if not problem.noise.has_entries:
            return Refusal(
                "its covariance is an operator without entries", "give variances, a matrix, or LowRankPlusDiagonal"
            )
        return None

    def plan(self, problem: Problem) -> Prepared:
        """Factorise once."""
        basis = self.basis or LeafBasis.of(problem)
        return (
            RowsThroughLeaves(problem, basis) if problem.desired is problem.observed else LeavesOfRows(problem, basis)
        )


class LeavesOfRows(Prepared):
    """Leaves from rows; those that are not estimable, in some direction that is free, come out as anything.

    Parameters
    ----------
    problem : Problem
    basis : LeafBasis
    """

    has_exact_zeros = True

    def __init__(self, problem: Problem, basis: LeafBasis) -> None:
        self.problem, self.basis = problem, basis
        self.offset = np.broadcast_to(0.0, problem.desired.size)
        reason = f"normal equations of the leaves, {basis.rank}"
        self.info = Info(f"least_squares ({basis.factor.label})", basis.rank.is_clear, reason)
        self._S = problem.leaves_of(0)

    @one_blas_thread()
    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self.leaves(Y)
        return X.astype(float), info

    def leaves(self, Y: Float) -> tuple[Long, Info]:
        """Of rows (n, K) the leaves, (k, K), in extended precision."""
        u, known, settled = self.combinations(Y)
        info = Info(self.info.solver, self.info.exact and settled <= EXACT, self.info.reason, violation=0.0)
        return self.basis.F @ u + known, info

    def combinations(self, Y: Float) -> tuple[Long, Long, float]:
        """u, (r, K), and R Y, (k, K), of rows (n, K), and how far u may be from the best, in standard errors."""
        (B, T, S), basis = self.basis.extended, self.basis
        known = basis.R @ Y.astype(np.longdouble)
        if (exact := np.flatnonzero(self.problem.exact)).size:
            known = known + basis.R[:, exact] @ (Y[exact] - S[exact] @ known)
        target = T @ (Y - S @ known)

        def left(u: Long | None) -> Long:
            """Of the normal equations, (r, K), by u, (r, K), or nothing."""
            return basis.extended_transpose @ (target if u is None else target - B @ u)

        u, settled = self._corrected(left, Y.shape[1])
        return u, known, settled

    def _corrected(self, left: Callable[[Long | None], Long], columns: int) -> tuple[Long, float]:
        """u, (r, K), of which nothing is left, and how far the last correction moved anything, in standard errors."""
        u, before = np.zeros((self.basis.B.shape[1], columns), dtype=np.longdouble), np.inf
        gain = ROUNDED / self.basis.factor.least**2  # of what is left, that a correction leaves at most
        for number in range(CORRECTIONS):
            change = self.basis.factor.solve(left(u if number else None).astype(float))
            u = u + change
            moved = float(np.linalg.norm(self.basis.B @ change, axis=0).max(initial=0.0))
            if moved <= SETTLED or not moved < GAIN * before:
                return u, moved
            if moved * gain <= SETTLED < before < np.inf:
                return u, SETTLED
            before = moved
        return u, moved

    @one_blas_thread()
    def adjoint(self, V: Float) -> Float:
        (B, T, S), basis = self.basis.extended, self.basis
        wanted = basis.F.T @ V.astype(np.longdouble)

        def left(g: Long | None) -> Long:
            """The same of the adjoint, (r, K), by g, (r, K), or nothing."""
            return wanted if g is None else wanted - self.basis.extended_transpose @ (B @ g)

        weights = T.T @ (B @ self._corrected(left, V.shape[1])[0])
        if basis.R.nnz:
            weights = weights + basis.R.T @ (V - S.T @ weights)
        return np.asarray(weights, dtype=float)

    @one_blas_thread()
    def variances(self) -> Float:
        return self.basis.factor.squares(self.basis.F)


class RowsThroughLeaves(LeavesOfRows):
    """Fitted rows, S times the leaves."""

    @one_blas_thread()
    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self.leaves(Y)
        return np.asarray(self._S @ X, dtype=float), info

    def adjoint(self, V: Float) -> Float:
        return super().adjoint(self._S.T @ V)

    @one_blas_thread()
    def variances(self) -> Float:
        return np.where(self.problem.exact, 0.0, self.basis.factor.squares(self.basis.sums))


class Estimable(Prepared):
    """An estimate with NaN in what rows do not determine.

    Parameters
    ----------
    prepared : Prepared
    basis : LeafBasis
    """

    has_exact_zeros = True

    def __init__(self, problem: Problem, prepared: Prepared, basis: LeafBasis) -> None:
        self.problem, self.info, self.offset = problem, prepared.info, prepared.offset
        self._prepared, self._basis = prepared, basis
        over_leaves = problem.desired is not problem.observed
        self._sums = sparse.eye_array(problem.desired.size, format="csr") if over_leaves else problem.leaves_of(0)
        self.lost = np.flatnonzero(np.diff(basis.touched(sparse.csr_array(self._sums)).indptr))

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, info = self.anything(Y)
        return self.where_estimable(X), info

    def anything(self, Y: Float) -> tuple[Float, Info]:
        """The same, (m, K), with any of the values that fit, where rows, (n, K), do not determine them."""
        return self._prepared.apply(Y)

    def where_estimable(self, X: Float) -> Float:
        """NaN elsewhere, (m, K)."""
        X = X.copy()
        X[self.lost] = np.nan
        return X

    def adjoint(self, V: Float) -> Float:
        weights = self._prepared.adjoint(V)
        weights[:, ~self._basis.is_estimable(self._sums.T @ V)] = np.nan
        return weights

    def variances(self) -> Float:
        variances = self._prepared.variances()
        variances[self.lost] = np.nan
        return variances

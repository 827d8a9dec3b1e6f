"""Estimates as dense matrices, whose covariance keeps a root: where squares of the noise would lose digits.

Where the noise is singular, with Sigma = F F' and G = A F,

    x = y - F G^+ (A y - b),    which is y - Sigma A' (A Sigma A')^+ (A y - b):

combinations without noise stay as measured. Where variances differ by decades, through a basis of all solutions, x =
start + Z z, and orthogonal transformations of its rows: these keep their own relative precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import linalg, sparse

from blue_solvers.components.conditioning import require_clear
from blue_solvers.components.orthogonal import fit
from blue_solvers.contract import Info, Prepared
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory
from constraint_builders.relations.elimination import eliminate, scaling

RANK_TOLERANCE = 1e-10  # of equations in units of the noise of independent cells in them, and of sums of cells


class _DenseEstimate(Prepared):
    """P over the observed layout, (n, n), with a root of its covariance.

    A sum of cells is known exactly where little is `_left` of what was `_before`.
    """

    _P: Float
    _root: Float
    _left: Float
    _before: Float
    _constants: Float  # of the observed cells, (n, 1)

    def __init__(self, problem: Problem, info: Info, instead: str) -> None:
        n = problem.observed.size
        require_memory(4.0 * 8 * n**2, f"the dense projection of {n:,} cells", instead)
        self.problem, self.info = problem, info
        self._A, self._b = problem.equations("independent")

    def _observed(self, Y: Float) -> Float:
        """P Y, (n, K), over the observed layout."""
        return self._P @ Y

    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y, (m, K), and by how much its tables disagree: by what measurements without noise do."""
        X = self._observed(Y)
        violation = float(abs(self._A @ (X + self._constants) - self._b[:, None]).max(initial=0.0))
        return self.problem.tabulate(X), replace(self.info, violation=violation)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K) from (m, K)."""
        return self._P.T @ self.problem.tabulate_transpose(V)

    def variances(self) -> Float:
        """Sums of squares; 0 of what the equations and measurements without noise determine."""
        return (self._root_of(self.problem.tabulate) ** 2).sum(axis=1)

    def functional_covariance(self, W: sparse.csc_array) -> Float:
        """W' P Sigma P' W, (K, K), by roots; 0 of what equations and measurements without noise determine."""
        root = self._root_of(lambda X: W.T @ self.problem.tabulate(X))
        return np.asarray(root @ root.T)

    def _root_of(self, sums: Callable[[Float], Float]) -> Float:
        """A square root of the covariance of sums, (m, r); rows of 0 for those that are known exactly."""
        root, left, before = (sums(own) for own in (self._root, self._left, self._before))
        return np.where((_lengths(left) > RANK_TOLERANCE * _lengths(before))[:, None], root, 0.0)


class SingularEstimate(_DenseEstimate):
    """The estimate under noise of a singular covariance, by its factor.

    Parameters
    ----------
    problem : Problem
        Whose noise is singular.
    info : Info

    Raises
    ------
    MemoryError
        If dense matrices over the observed layout would not fit.
    """

    def __init__(self, problem: Problem, info: Info) -> None:
        F = problem.noise.factor
        super().__init__(problem, info, "give every combination some noise")
        units = np.sqrt(self._A.power(2) @ problem.variances)
        units[units == 0] = 1.0
        A = self._A.toarray() / units[:, None]
        left, singular, right = np.linalg.svd(A @ F, full_matrices=False)
        kept = singular > RANK_TOLERANCE
        moved = F @ right[kept].T
        gain = (moved / singular[kept]) @ left[:, kept].T
        self._P = np.eye(problem.observed.size) - gain @ A
        self._P -= gain @ (A @ self._P)  # what agrees, to rounding
        self._root = self._left = F - moved @ right[kept]
        self._before = F
        self._constants = gain @ (self._b / units)[:, None]
        self.offset = problem.tabulate(self._constants)[:, 0]


class OrthogonalEstimate(_DenseEstimate):
    """The estimate where variances differ by decades.

    Parameters
    ----------
    problem : Problem
        Whose covariance, if any, has entries.
    info : Info

    Raises
    ------
    MemoryError
        If two dense matrices over the observed layout would not fit.
    """

    def __init__(self, problem: Problem, info: Info) -> None:
        super().__init__(problem, info, "use solver='two_pass' or 'cholesky'")
        self._start, Z, self._open = _solutions(problem)
        exact, noisy = problem.exact, ~problem.exact & ~problem.unmeasured
        keeping, free = _split(Z, exact)
        solution, root = _least_squares(_whitening(problem, noisy), free[noisy])
        self._P = np.zeros((len(Z), len(Z)))
        free[_lengths(free) <= RANK_TOLERANCE * _lengths(Z)] = 0  # what exact cells determine
        self._P[:, noisy] = free @ solution
        self._P[:, exact] = keeping - self._P[:, noisy] @ keeping[noisy]
        self._root, self._left, self._before = free @ root, free, Z
        self._constants = self._near(np.zeros_like(self._start), self._start)
        self.offset = problem.tabulate(self._constants)[:, 0]

    def _observed(self, Y: Float) -> Float:
        """The linear part of the observed cells, (n, K)."""
        return self._near(Y, np.zeros_like(self._start))

    def _near(self, Y: Float, start: Float) -> Float:
        """The observed cells, (n, K): a solution near the estimate, and the estimate of the rest, which is small."""
        known = ~self.problem.unmeasured[:, None]
        near = self._P @ np.where(known, Y - start, 0.0)
        X = start + self._before @ near[self._open]
        return X + self._P @ np.where(known, Y - X, 0.0)


def _split(Z: Float, exact: np.ndarray) -> tuple[Float, Float]:
    """What follows from exact cells, (n, e), and a basis of what they leave open, (n, q)."""
    if not exact.any() or not Z.shape[1]:
        return np.zeros((len(Z), int(exact.sum()))), Z
    rows, columns = scaling(sparse.csr_array(Z[exact]))  # a weight is no reason to count less
    known, Z = rows[:, None] * Z[exact] * columns, Z * columns
    singular = linalg.svdvals(known)
    require_clear(singular / (singular.max() or 1.0))
    told = Z @ linalg.orth(known.T, rcond=RANK_TOLERANCE)  # fitted in counts: there roundings of exact cells are alike
    return told @ np.linalg.pinv(told[exact], rcond=0), Z @ linalg.null_space(known, rcond=RANK_TOLERANCE)


def _least_squares(whitening: Float, design: Float) -> tuple[Float, Float]:
    """The least squares solution from noisy cells of a design (n, q), (q, n), and a square root of its covariance."""
    if not design.shape[1]:
        return np.zeros((0, len(design))), np.zeros((0, 0))
    fitted = fit((whitening @ design)[None])
    solution = fitted.inverse[0] @ whitening
    solution = solution + (np.eye(design.shape[1]) - solution @ design) @ solution  # keeps what agrees, to rounding
    return solution, fitted.covariance_root[0]


def _lengths(rows: Float) -> Float:
    """Norm of every row, (q,) from (q, K)."""
    return np.linalg.norm(rows, axis=1)


def _solutions(problem: Problem) -> tuple[Float, Float, Index]:
    """One solution of the equations, a basis of all differences of solutions, (n, 1) and (n, r), and its r own cells.

    Cells that were not measured follow from the others; those that are not estimable stay 0.
    """
    n = problem.observed.size
    A, b = problem.equations("independent")
    # Without b: beside what is large in it, small coefficients would pass for cancelled.
    elimination = eliminate(A, np.flatnonzero(~problem.unmeasured))
    solved, columns, free = elimination.solved.toarray(), elimination.solved_columns, elimination.free_columns
    start, Z = np.zeros(n), np.zeros((n, free.size))
    Z[free, np.arange(free.size)] = 1
    Z[columns] = -solved[:, free]
    used = A[elimination.pivot_rows]
    for _ in range(2):  # the second time from near by, which rounds less
        start[columns] += np.linalg.solve(used[:, columns].toarray(), b[elimination.pivot_rows] - used @ start)
    return problem.completed(start[:, None], constants=True), problem.completed(Z), free


def _whitening(problem: Problem, cells: np.ndarray) -> Float:
    """W with W Sigma W' = I for some cells, (k, k)."""
    deviations = np.sqrt(problem.variances[cells])
    if not problem.is_correlated:
        return np.diag(1 / deviations)
    # The noisiest first: then no row mixes what is known well into what is not.
    order = np.argsort(-deviations, kind="stable")
    covariance = problem.noise.at(np.flatnonzero(cells)) @ np.eye(deviations.size)
    correlation = (covariance / np.outer(deviations, deviations))[np.ix_(order, order)]
    W = np.empty_like(covariance)
    factor = linalg.cholesky(correlation, lower=True)
    W[:, order] = linalg.solve_triangular(factor, np.diag(1 / deviations[order]), lower=True)
    return W

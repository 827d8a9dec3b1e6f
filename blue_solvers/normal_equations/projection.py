"""The estimate as a projection onto the solutions of sparse equations, whoever solves the normal equations.

    x = y - Sigma A' (A Sigma A')^+ (A y - b)

Cells known exactly come first: they are made consistent with one another (a projection of their own, with equal
weights; it changes nothing unless they contradict one another), then everything else is adjusted to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import ConvergenceError, Float, Info, Prepared
from blue_solvers.normal_equations.factorisation import factorise
from constraint_builders import Problem
from constraint_builders.relations.elimination import eliminate

EPSILON = float(np.finfo(float).eps)
ROUNDING = 16  # multiples of the unit roundoff of |A||y| below which a residual says nothing


@dataclass(frozen=True)
class Equations:
    """A x = b with noise of covariance Sigma in x; Sigma is zero on cells that stay as they are.

    Attributes
    ----------
    A : csr_array, (m, n)
    b : ndarray, (m,)
    Sigma : LinearOperator, (n, n)
    Sigma_matrix : csr_array or None
        Sigma, where it is known entry by entry.
    """

    A: sparse.csr_array
    b: Float
    Sigma: LinearOperator
    Sigma_matrix: sparse.csr_array | None

    @cached_property
    def A_transposed(self) -> sparse.csr_array:
        """A' in rows, which multiplies faster than the transposed view."""
        return self.A.T.tocsr()

    @cached_property
    def deviations(self) -> Float:
        """Standard deviation of the noise in every row of A x, (m,)."""
        if self.Sigma_matrix is not None:
            variances = np.asarray((self.A @ self.Sigma_matrix).multiply(self.A).sum(axis=1)).ravel()
        else:
            variances = np.concatenate(
                [
                    np.einsum("ij,ij->j", block, self.Sigma @ block)
                    for block in (self.A[start : start + 64].T.toarray() for start in range(0, self.A.shape[0], 64))
                ]
                or [np.zeros(0)]
            )
        return np.sqrt(variances)

    def normal_matrix(self) -> sparse.csr_array:
        """The sparse A Sigma A', rows and columns scaled to a unit diagonal; needs `Sigma_matrix`."""
        assert self.Sigma_matrix is not None
        scaled = sparse.diags_array(1 / self.deviations) @ self.A
        return sparse.csr_array(scaled @ self.Sigma_matrix @ scaled.T)

    def normal_product(self, Z: Float) -> Float:
        """A Sigma A' Z."""
        return self.A @ (self.Sigma @ (self.A_transposed @ Z))


class NormalSolver(ABC):
    """Solves (A Sigma A') Z = R.

    Attributes
    ----------
    rtol : float
        Standardised residual at which an answer is good enough, relative to that of the data; 0 for direct solvers,
        whose answer is refined once in any case.
    goal : float
        The same that is aimed at, as long as another solution comes nearer to it.
    label : str
        The library that does the work.
    """

    rtol: float = 0.0
    goal: float = 0.0
    label: str

    @abstractmethod
    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        """Z for (m, K) right-hand sides, to standardised residuals of at most `target`, (K,); iterations."""


NormalSolverFactory = Callable[[Equations], NormalSolver]

CHECKED_ENTRIES = 1_000_000  # of anybody's equations, in which nearly dependent rows are looked for
INVERSE_ITERATIONS = 4  # towards the least eigenvalue
TOLD_APART = 1e-13  # least eigenvalue of A Sigma A', scaled to a unit diagonal, from which answers keep enough digits
SWEEPS = 6
DIRECT_SWEEPS = 2
WORST_ACCEPTED = 1e-6  # of the data's standardised residual: a direct solver that leaves more met a singular system


@dataclass(frozen=True)
class Projected:
    """How a projection went.

    Attributes
    ----------
    iterations : int
    residual : float
        Relative to that of the data, each equation in units of its standard deviation.
    violation : float
        Largest absolute residual.
    as_asked : bool
        Whether it came as near as the solver aims at, or to rounding.
    """

    iterations: int
    residual: float
    violation: float
    as_asked: bool


class Stage:
    """One projection onto A x = b."""

    def __init__(self, equations: Equations, make_solver: NormalSolverFactory) -> None:
        self.equations = equations
        self.solver = make_solver(equations)
        self._absolute = abs(equations.A)
        self._deviations = equations.deviations[:, None]

    def project(self, Y: Float, b: Float) -> tuple[Float, Projected]:
        """Y - Sigma A' (A Sigma A')^+ (A Y - b), (n, K), refined until the equations hold."""
        equations, b = self.equations, b[:, None]
        steps = 0

        def correct(X: Float, R: Float, target: Float) -> Float:
            nonlocal steps
            Z, iterations = self.solver.solve(R, target)
            steps += iterations
            return X - equations.Sigma @ (equations.A_transposed @ Z)

        floor = self._sizes(self._absolute @ abs(Y) + abs(b))
        X, R, first = self._refine(Y, lambda X: equations.A @ X - b, correct, floor)
        sizes, goal = self._sizes(R), np.maximum(self.solver.goal * first, ROUNDING * EPSILON * floor)
        residual = float((sizes / np.maximum(first, np.finfo(float).tiny)).max(initial=0.0))
        violation = float(abs(R).max(initial=0.0))
        return X, Projected(steps, residual, violation, bool((sizes <= 2 * goal).all()) or not self.solver.rtol)

    def adjoint(self, U: Float) -> Float:
        """The transpose of the linear part of `project`, (n, K)."""
        equations = self.equations

        def correct(W: Float, R: Float, target: Float) -> Float:
            return W - equations.A_transposed @ self.solver.solve(R, target)[0]

        floor = self._sizes(self._absolute @ abs(equations.Sigma @ U))
        return self._refine(U, lambda W: equations.A @ (equations.Sigma @ W), correct, floor)[0]

    def _refine(
        self,
        X: Float,
        residual: Callable[[Float], Float],
        correct: Callable[[Float, Float, Float], Float],
        floor: Float,
    ) -> tuple[Float, Float, Float]:
        """Correct until the residual is small enough; a direct solver twice, which also heals its rounding.

        The second correction matters most for cells that their own measurement determines far less well than the others
        do: the first leaves in them the rounding error of the measurement, large beside the estimate's own. Where
        rounding is not reached yet, corrections go on as long as they help.
        """
        R = residual(X)
        first = sizes = self._sizes(R)
        goal = np.maximum(self.solver.goal * first, EPSILON * floor)
        least = (first > goal).any() if self.solver.rtol else DIRECT_SWEEPS
        for sweep in range(SWEEPS):
            if sweep >= least and (sizes <= goal).all():
                break
            try:
                corrected = correct(X, R, np.maximum(goal, self.solver.rtol * sizes))
            except ConvergenceError:
                if not sweep:
                    raise
                break
            left = residual(corrected)
            left_sizes = self._sizes(left)
            better = (left_sizes < sizes) | (sweep < least)
            if not better.any():
                break
            if not better.all():  # columns at rounding already
                corrected, left, left_sizes = (
                    np.where(better, *both) for both in ((corrected, X), (left, R), (left_sizes, sizes))
                )
            X, R, sizes = corrected, left, left_sizes
        target = np.maximum(self.solver.rtol * first, ROUNDING * EPSILON * floor)
        allowed = np.maximum(2 * target, WORST_ACCEPTED * first * (self.solver.rtol == 0))
        if not (sizes <= allowed).all():
            raise ConvergenceError(
                f"{self.solver.label} left a standardised residual of {np.nan_to_num(sizes, nan=np.inf).max():.3g}, "
                f"allowed is {allowed.max():.3g}: check that equations with a right-hand side do not contradict "
                "one another, or use another solver ('cholesky', 'dense') or a larger tolerance"
            )
        return X, R, first

    def _sizes(self, R: Float) -> Float:
        """Norm of every column, each equation in units of its standard deviation."""
        return np.linalg.norm(R / self._deviations, axis=0)


class ConstrainedEstimate(Prepared):
    """The BLUE of a problem through its constraint matrix.

    Parameters
    ----------
    problem : Problem
    rows : {"independent", "all"}
        Which equations; direct solvers need independent ones.
    make_solver : callable
        Makes a `NormalSolver` from `Equations`.
    info : Info
        What to report, but for the figures of an apply.
    """

    def __init__(self, problem: Problem, rows: str, make_solver: NormalSolverFactory, info: Info) -> None:
        self.problem = problem
        if problem.matrix is not None and problem.matrix.nnz <= CHECKED_ENTRIES:
            _require_told_apart(equations_of(problem, "independent")[-1])
        self._stages = [
            (Stage(equations, make_solver), equations.b)
            for equations in equations_of(problem, rows)
            if equations.A.shape[0]
        ]
        labels = dict.fromkeys(stage.solver.label for stage, _ in self._stages)
        self.info = Info(f"{info.solver} ({', '.join(labels)})" if labels else info.solver, info.exact, info.reason)
        self.offset = np.zeros(problem.desired.size)
        if any(b.any() for _, b in self._stages) or problem.completion is not None:
            self.offset = self._estimate(np.zeros((problem.observed.size, 1)), affine=True)[0][:, 0]

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, projected = self._estimate(Y, affine=False)
        return X, replace(
            self.info,
            exact=self.info.exact and all(own.as_asked for own in projected),
            iterations=sum(own.iterations for own in projected),
            residual=max((own.residual for own in projected), default=0.0),
            violation=max((own.violation for own in projected), default=0.0),
        )

    def _estimate(self, X: Float, affine: bool) -> tuple[Float, list[Projected]]:
        projected = []
        with one_blas_thread():
            for stage, b in self._stages:
                X, own = stage.project(X, b if affine else np.zeros_like(b))
                projected.append(own)
        if self.problem.completion is not None:
            C, c = self.problem.completion
            X = C @ X + (c[:, None] if affine else 0)
        return self.problem.tabulate(X), projected

    def adjoint(self, V: Float) -> Float:
        U = self.problem.tabulate_transpose(V)
        if self.problem.completion is not None:
            U = self.problem.completion[0].T @ U
        with one_blas_thread():
            for stage, _ in reversed(self._stages):
                U = stage.adjoint(U)
        U[self.problem.unmeasured] = 0
        return U

    def variances(self) -> Float:
        """By entries of the inverse that the pattern of a factor holds; where there are none, one adjoint a cell."""
        if self._stages and self._stages[-1][0].equations.Sigma_matrix is None:
            return super().variances()
        from blue_solvers.normal_equations.selected_inverse import (
            variances_by_selected_inversion,  # it needs the solvers
        )

        return variances_by_selected_inversion(self.problem)


def _require_told_apart(equations: Equations) -> None:
    """Refuse anybody's equations some of which nearly follow from others, in units of their noise."""
    if equations.Sigma_matrix is None or not equations.A.shape[0]:
        return
    z = np.random.default_rng(0).standard_normal((equations.A.shape[0], 1))
    try:
        factor = factorise(equations.normal_matrix())
        for _ in range(INVERSE_ITERATIONS):
            z = factor.solve(z / np.linalg.norm(z))
        least = 1 / float(np.linalg.norm(z))
    except ValueError:
        least = 0.0
    if not least > TOLD_APART:
        raise ValueError(
            "a row of the equations A x = b is nearly a combination of others, beside its noise, and rounding would "
            "decide what it says: leave it out, or make it one exactly"
        )


def equations_of(problem: Problem, rows: str) -> list[Equations]:
    """The projections to make, in order: among exactly known cells, then of everything else onto all equations."""
    A, b = problem.equations(rows)
    noisy_cells = ~problem.exact & ~problem.unmeasured
    noisy = np.flatnonzero((A != 0) @ noisy_cells.astype(float) > 0)
    known_by_table = problem.is_structural and problem.table_variances is not None
    if rows == "independent" and problem.exact.any() and not known_by_table:
        noisy = np.sort(eliminate(A, np.flatnonzero(noisy_cells)).pivot_rows)
    adjusted = Equations(sparse.csr_array(A[noisy]), b[noisy], problem.noise_covariance, noise_matrix(problem))
    if not problem.exact.any():
        return [adjusted]
    exact_A, exact_b = problem.exact_equations
    exact_Sigma = sparse.csr_array(sparse.diags_array(problem.exact.astype(float)))
    return [Equations(exact_A, exact_b, aslinearoperator(exact_Sigma), exact_Sigma), adjusted]


def noise_matrix(problem: Problem) -> sparse.csr_array | None:
    """The noise covariance as a sparse matrix, or None if it is only known as an operator."""
    if isinstance(problem.covariance, LinearOperator):
        return None
    if problem.covariance is not None:
        return problem.covariance
    return sparse.csr_array(sparse.diags_array(np.where(problem.unmeasured, 0.0, problem.variances)))

"""The projection of Theorem 5 by dense linear algebra: the reference for small problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy import linalg, sparse

from blue_solvers.components.orthogonal import fit
from blue_solvers.contract import Info, Prepared, Refusal, Solver, UnsupportedProblemError
from blue_solvers.normal_equations.factorisation import FactorSolver
from blue_solvers.normal_equations.inverses import DenseFactor
from blue_solvers.normal_equations.noisy_equations import Equations, is_uneven, variance_spread
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from blue_solvers.normal_equations.singular_estimate import SingularEstimate
from constraint_builders import Problem
from constraint_builders.arrays import Float, Index
from constraint_builders.memory import require_memory
from constraint_builders.relations.elimination import eliminate, scaling

WIDE_SPREAD = 1e8  # ratio of variances from which the squares in A Sigma A' would lose digits
MOST_OPERATOR_CELLS = 3_000  # of a covariance operator whose entries are found by applying it to every unit vector
RANK_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Dense(Solver):
    """Dense Cholesky factorisation of A Sigma A'; orthogonal transformations where variances differ by decades.

    Memory and time grow as the square and the cube of the rank.
    """

    name: ClassVar[str] = "dense"
    exact_for: ClassVar[str] = "small problems: the reference"
    cost: ClassVar[str] = "memory as the square of the constraints"
    takes_singular_noise: ClassVar[bool] = True

    def refusal(self, problem: Problem) -> str | None:
        """A covariance that is not known entry by entry, and too large to find its entries."""
        if problem.observed.size > MOST_OPERATOR_CELLS and not problem.noise.has_entries:
            return Refusal("its covariance is an operator without entries", "use solver='cg'")
        if problem.noise.is_singular and variance_spread(problem) > WIDE_SPREAD:
            return Refusal(
                f"its covariance is singular, and its variances differ by {variance_spread(problem):.1g}",
                f"make them differ by {WIDE_SPREAD:.0g} at most",
            )
        return None

    def plan(self, problem: Problem) -> Prepared:
        """Factorise once."""
        if not problem.noise.has_entries:
            problem = _with_entries(problem)
        orthogonal = Info(f"{self.name} (LAPACK)", exact=True, reason=REASON)
        if (F := problem.noise.factor) is not None:
            return SingularEstimate(problem, F, orthogonal)
        if variance_spread(problem) > WIDE_SPREAD and not is_uneven(problem):
            return OrthogonalEstimate(problem, orthogonal)
        needed = 3.0 * 8 * problem.rank**2
        what = f"the dense projection with {problem.rank:,} constraints"
        require_memory(needed, what, "use solver='sea_blue', 'cholesky' or 'cg'")
        info = Info(self.name, exact=True, reason=REASON)
        return ConstrainedEstimate(problem, "independent", _dense_solver, info)


def _with_entries(problem: Problem) -> Problem:
    """The same problem with the entries of its covariance operator found."""
    entries = problem.noise @ np.eye(problem.observed.size)
    try:
        return problem.with_covariance(sparse.csr_array((entries + entries.T) / 2))
    except ValueError as error:
        raise UnsupportedProblemError(str(error)) from None


REASON = "the projection of Theorem 5, by dense linear algebra"


def _dense_solver(equations: Equations) -> FactorSolver:
    return FactorSolver(equations, DenseFactor.of(equations.normal_matrix()).solve, DenseFactor.label)


class OrthogonalEstimate(Prepared):
    """The projection through a basis of all solutions, x = start + Z z, and orthogonal transformations of its rows.

    Rows keep their own relative precision however much variances differ, and variances are sums of squares.

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
        n = problem.observed.size
        require_memory(4.0 * 8 * n**2, f"the dense projection of {n:,} cells", "use solver='two_pass' or 'cholesky'")
        self.problem = problem
        self.info = info
        self._A = problem.equations("independent")[0]
        start, Z, self._open = _solutions(problem)
        self._start, self._Z = start[:, None], Z
        exact, noisy = problem.exact, ~problem.exact & ~problem.unmeasured
        keeping, free = _split(Z, exact)
        solution, root = _least_squares(_whitening(problem, noisy), free[noisy])
        self._P = np.zeros((n, n))
        free[_lengths(free) <= RANK_TOLERANCE * _lengths(Z)] = 0  # what exact cells determine
        self._P[:, noisy] = free @ solution
        self._P[:, exact] = keeping - self._P[:, noisy] @ keeping[noisy]
        self._root = free @ root
        self._determined = _lengths(problem.tabulate(free)) <= RANK_TOLERANCE * _lengths(problem.tabulate(Z))
        self.offset = self._observed(np.zeros((n, 1)), affine=True)
        self.offset = problem.tabulate(self.offset)[:, 0]

    def _observed(self, Y: Float, affine: bool) -> Float:
        """The observed cells: a solution near the estimate, and the estimate of what is left, small beside counts."""
        known = ~self.problem.unmeasured[:, None]
        start = self._start if affine else np.zeros_like(self._start)
        near = self._P @ np.where(known, Y - start, 0.0)
        X = start + self._Z @ near[self._open]
        return X + self._P @ np.where(known, Y - X, 0.0)

    def apply(self, Y: Float) -> tuple[Float, Info]:
        observed = self._observed(Y, affine=False)
        violation = float(abs(self._A @ observed).max(initial=0.0))
        return self.problem.tabulate(observed), replace(self.info, violation=violation)

    def adjoint(self, V: Float) -> Float:
        return self._P.T @ self.problem.tabulate_transpose(V)

    def variances(self) -> Float:
        return np.where(self._determined, 0.0, _lengths(self.problem.tabulate(self._root)) ** 2)


def _split(Z: Float, exact: np.ndarray) -> tuple[Float, Float]:
    """What follows from exact cells, (n, e), and a basis of what they leave open, (n, q)."""
    if not exact.any() or not Z.shape[1]:
        return np.zeros((len(Z), int(exact.sum()))), Z
    rows, columns = scaling(sparse.csr_array(Z[exact]))  # a weight is no reason to count less
    known, Z = rows[:, None] * Z[exact] * columns, Z * columns
    return Z @ np.linalg.pinv(known, rcond=RANK_TOLERANCE) * rows, Z @ linalg.null_space(known, rcond=RANK_TOLERANCE)


def _least_squares(whitening: Float, design: Float) -> tuple[Float, Float]:
    """The least squares solution from noisy cells, and a square root of its covariance."""
    if not design.shape[1]:
        return np.zeros((0, len(design))), np.zeros((0, 0))
    fitted = fit((whitening @ design)[None])
    solution = fitted.inverse[0] @ whitening
    solution = solution + (np.eye(design.shape[1]) - solution @ design) @ solution  # keeps what agrees, to rounding
    return solution, fitted.covariance_root[0]


def _lengths(rows: Float) -> Float:
    return np.linalg.norm(rows, axis=1)


def _solutions(problem: Problem) -> tuple[Float, Float, Index]:
    """One solution of the equations, a basis of all differences of solutions, (n,) and (n, r), and its r own cells.

    Cells that were not measured follow from the others; those that nothing determines stay 0.
    """
    n = problem.observed.size
    A, b = problem.equations("independent")
    extended = sparse.csr_array(sparse.hstack([A, -b[:, None]], format="csr"))
    measured = np.flatnonzero(~problem.unmeasured)
    elimination = eliminate(extended, measured)
    solved, columns = elimination.solved.toarray(), elimination.solved_columns
    free = np.setdiff1d(measured, columns)
    start, Z = np.zeros(n), np.zeros((n, free.size))
    Z[free, np.arange(free.size)] = 1
    Z[columns] = -solved[:, free]
    start[columns] = -solved[:, n]
    return problem.completed(start[:, None], constants=True)[:, 0], problem.completed(Z), free


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

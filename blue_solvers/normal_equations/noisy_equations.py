"""The equations A x = b with their noise, and what solves A Sigma A' Z = R."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.contract import Refusal, UnsupportedProblemError, variances_from_weights
from blue_solvers.contract.prepared import NOTHING
from blue_solvers.normal_equations.krylov import Sizes
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float
from constraint_builders.diagonals import diagonal_matrix, scaled
from constraint_builders.relations.elimination import eliminate

Real = TypeVar("Real", bound=np.floating)
EPSILON = float(np.finfo(float).eps)
ROUNDING = 16  # multiples of the unit roundoff of |A||y| below which a residual says nothing
WIDE_SPREAD = 1e8  # of variances, beyond which the squares in A Sigma A' may lose digits of some cells
WIDEST_SPREAD = 1e15  # of variances, beyond which A Sigma A' may keep no digit of what is known best
FEW_BITS = 40  # of a coefficient that nobody rounded
CLEARLY_LESS = 1e-10  # of the least that a figure may vary by, up to which roundings of its weights count as nothing
TOLD_APART, LEAST_TOLD = 1e10, 1e-6  # squared weights of equalities: beyond, and below, rounding would pass for noise


@dataclass(frozen=True)
class Equations:
    """A x = b with noise of covariance Sigma in x; Sigma is zero on cells that stay as they are.

    Attributes
    ----------
    A : csr_array, (m, n)
    b : ndarray, (m,)
    Sigma : csr_array or LinearOperator, (n, n)
    moving : ndarray of bool, (n,)
        Cells that do not.
    uneven : bool
        Whether weights and variances are so unequal that float64 may not hold what solves them; see `is_uneven`.
    independent : bool
        Whether no row follows from the others.
    """

    A: sparse.csr_array
    b: Float
    Sigma: sparse.csr_array | LinearOperator
    moving: Flags
    uneven: bool = False
    independent: bool = False

    @property
    def has_entries(self) -> bool:
        """Whether Sigma is known entry by entry."""
        return sparse.issparse(self.Sigma)

    @cached_property
    def A_transposed(self) -> sparse.csr_array:
        """A' in rows, which multiplies faster than the transposed view."""
        return self.A.T.tocsr()

    @cached_property
    def cross_covariance(self) -> sparse.csr_array:
        """Sigma A', (n, m), of cells and rows of A x; raises as `entries`."""
        return sparse.csr_array(self.entries() @ self.A_transposed)

    @cached_property
    def extended(self) -> Equations:
        """The same in extended precision, but for an operator Sigma."""
        Sigma = self.Sigma.astype(np.longdouble) if sparse.issparse(self.Sigma) else self.Sigma
        return replace(self, A=self.A.astype(np.longdouble), Sigma=Sigma)

    @cached_property
    def rounded(self) -> sparse.csr_array:
        """|A| of coefficients of so many digits that they may have been rounded, when cells were eliminated; 0 else."""
        scaled = np.frexp(self.A.data)[0] * 2.0**FEW_BITS
        sizes = abs(self.A.data) * (np.rint(scaled) != scaled)
        return sparse.csr_array((sizes, self.A.indices, self.A.indptr), shape=self.A.shape)

    @cached_property
    def absolute(self) -> sparse.csr_array:
        """|A|, by which sizes of what rows sum are judged."""
        return abs(self.A)

    @cached_property
    def deviations(self) -> Float:
        """Standard deviation of the noise in every row of A x, (m,).

        Raises
        ------
        UnsupportedProblemError
            If a covariance operator gives a row no variance above 0.
        """
        if self.has_entries:
            variances = np.asarray(self.A.multiply(self.cross_covariance.T).sum(axis=1)).ravel()
        else:
            rows = np.arange(self.A.shape[0])
            variances = variances_from_weights(self.Sigma, rows, rows.size, lambda V: self.A_transposed @ V)
            if not (variances > 0).all():
                raise UnsupportedProblemError(
                    "its covariance operator is singular or not positive definite: every combination of cells needs "
                    "variance above 0"
                )
        return np.sqrt(variances)

    def entries(self) -> sparse.csr_array:
        """Sigma.

        Raises
        ------
        UnsupportedProblemError
            If it is an operator.
        """
        if isinstance(self.Sigma, LinearOperator):
            raise UnsupportedProblemError("its covariance is an operator without entries: use solver='cg'")
        return self.Sigma

    def normal_matrix(self) -> sparse.csr_array:
        """The sparse A Sigma A', rows and columns scaled to a unit diagonal; needs the `entries` of Sigma."""
        inverse = 1 / self.deviations
        return sparse.csr_array(scaled(self.A, inverse) @ scaled(self.cross_covariance, columns=inverse))

    def moved_by(self, Z: NDArray[Real]) -> NDArray[Real]:
        """Sigma A' Z, (n, K) from (rows, K)."""
        return self.cross_covariance @ Z if self.has_entries else self.Sigma @ (self.A_transposed @ Z)


class NormalSolver(ABC):
    """Solves (A Sigma A') Z = R.

    Attributes
    ----------
    rtol : float
        Standardised residual at which an answer is good enough, relative to that of the data; 0 for direct solvers,
        whose answer is refined once in any case.
    goal : float
        The same that is aimed at, as long as another solution comes nearer to it; 0 is as far as rounding permits.
    label : str
        The library that does the work.
    """

    rtol: float = 0.0
    goal: float = 0.0
    label: str

    @abstractmethod
    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        """Z for (m, K) right-hand sides, to standardised residuals of at most `target`, (K,); iterations."""

    def iterate(self, R: Float, sizes: Sizes, target: Float) -> tuple[Float, int]:
        """The same, (rows, K), to other sizes of a residual's columns; of a direct solver as near as it comes."""
        return self.solve(R, target)


NormalSolverFactory = Callable[[Equations], NormalSolver]


def equations_of(problem: Problem, rows: str) -> list[Equations]:
    """The projections to make, in order: among exactly known cells, then of everything else onto all equations."""
    A, b = problem.equations(rows)
    noisy_cells = ~problem.exact & ~problem.unmeasured
    noisy = np.flatnonzero((A != 0) @ noisy_cells.astype(float) > 0)
    known_by_table = problem.is_structural and problem.is_alike_by_geounit and problem.has_only_tables
    if rows == "independent" and problem.exact.any() and not known_by_table:
        noisy = np.sort(eliminate(A, np.flatnonzero(noisy_cells)).pivot_rows)
    told = is_uneven(problem), rows == "independent"
    adjusted = Equations(sparse.csr_array(A[noisy]), b[noisy], _covariance(problem), noisy_cells, *told)
    if not problem.exact.any():
        return [adjusted]
    exact_A, exact_b = problem.exact_equations
    exact_Sigma = diagonal_matrix(problem.exact.astype(float))
    return [Equations(exact_A, exact_b, exact_Sigma, problem.exact, *told), adjusted]


def with_noise_of(problem: Problem, alike: list[Equations]) -> list[Equations]:
    """The equations of a problem that differs from another, whose they are, in the sizes of its noise alone."""
    *exact, adjusted = alike
    return [*exact, replace(adjusted, Sigma=_covariance(problem), uneven=is_uneven(problem))]


def _covariance(problem: Problem) -> sparse.csr_array | LinearOperator:
    return problem.noise.entries() if problem.noise.has_entries else problem.noise_covariance


def variance_spread(problem: Problem, power: int = 2) -> float:
    """Ratio of the largest variance of a noisy cell to the smallest, in units of the leaves that it weighs.

    Where equalities weigh cells, variances that follow from others differ by that much more. `power` is how often the
    weights of areas count.
    """
    smallest, largest = _noise_of_leaves(problem, power)
    return largest / smallest * _squared_ratio(problem) if largest > 0 else 1.0


def least_variance(problem: Problem) -> float:
    """What the variance of a desired cell is at least that is not known exactly: less is rounding.

    That is next to nothing beside the least noise in it, but for how many cells tell of it; or, clearly less than that,
    what roundings of its weights alone may make.
    """
    smallest, largest = _noise_of_leaves(problem, 2)
    if not largest > 0:
        return 0.0
    wanted = 1.0, 1.0
    if problem.has_weights:
        sizes = np.concatenate([extreme_weights(problem.leaves_of(i)) for i in set(problem.desired_levels or (0,))], 1)
        wanted = sizes[0].min(initial=1.0), sizes[1].max(initial=1.0)
    told = min(1.0, max(TOLD_APART / _squared_ratio(problem), LEAST_TOLD))
    least, rounding = smallest * wanted[0] ** 2 * told, largest * (4 * EPSILON * wanted[1]) ** 2
    return max(NOTHING * least, min(rounding, CLEARLY_LESS * least))


def _noise_of_leaves(problem: Problem, power: int) -> tuple[float, float]:
    """The least and the largest variance of a noisy cell, in units of the leaves that it weighs; infinite if beyond.

    Cells that were not measured and that equalities speak of count as measured with the largest variance.
    """
    variances = by_least = by_greatest = problem.noise.different_variances
    if power and problem.has_weights:
        by_block = [extreme_weights(problem.leaves_of(level)) for level in problem.observed_levels or (0,)]
        cells = problem.observed.sizes // [own.shape[1] for own in by_block]
        repeated = [np.repeat(own, size, axis=1) for own, size in zip(by_block, cells.tolist(), strict=True)]
        variances, weights = problem.variances, np.concatenate(repeated, axis=1)
        if problem.has_equalities:
            in_equalities = problem.unmeasured & (abs(problem.equality_rows[0]).sum(axis=0) > 0)
            variances = np.where(in_equalities, variances[np.isfinite(variances)].max(initial=0.0), variances)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            by_least, by_greatest = variances / weights**power
    noisy = (variances > 0) & (variances < np.inf)
    return float(by_greatest[noisy].min(initial=np.inf)), float(by_least[noisy].max(initial=0.0))


def _squared_ratio(problem: Problem) -> float:
    """The square of the largest ratio of what an equality, or a row of A, weighs cells by; infinite if beyond."""
    if problem.relations.independent and not problem.has_equalities:  # of tables or sums
        return 1.0
    rows = problem.equality_rows[0] if problem.relations.independent else problem.constraint_matrix("all")
    least, greatest = extreme_weights(rows)
    with np.errstate(over="ignore"):
        return float(((greatest / least) ** 2).max(initial=1.0))


def is_uneven(problem: Problem) -> bool:
    """Whether A Sigma A' may lose digits of what is known best: it squares what A weighs already.

    Variances alone cost none, however many decades they span: A Sigma A' is scaled to a unit diagonal.
    """
    least, largest = _noise_of_leaves(problem, 0)
    alone = largest / least if largest > 0 else 1.0
    return variance_spread(problem, power=4) > max(WIDEST_SPREAD, alone)


def uneven_refusal(problem: Problem) -> str | None:
    """Why equalities cannot be taken for exact knowledge after an estimate without them, or None."""
    if problem.has_equalities and is_uneven(problem):
        said = "its variances are too unequal, with the weights of areas and equalities"
        return Refusal(said, "use solver='cholesky', 'dense' or 'cg'")
    return None


def extreme_weights(rows: sparse.csr_array) -> Float:
    """The least and the greatest size of an entry of every row, (2, rows); 1 where there is none."""
    starts, filled = rows.indptr[:-1], np.diff(rows.indptr) > 0
    sizes, found = abs(rows.data), np.ones((2, rows.shape[0]))
    for own, extreme in zip(found, (np.minimum, np.maximum), strict=True):
        own[filled] = extreme.reduceat(sizes, starts[filled]) if filled.any() else []
    return found


def largest_of_columns(X: Float) -> Float:
    """Largest absolute value of every column, (n, K) to (K,); 0 where there are no rows, NaN where one is."""
    return np.array([abs(column).max(initial=0.0) for column in X.T])

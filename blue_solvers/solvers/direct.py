"""The projection by one factorisation of A Sigma A', sparse or, for small problems, dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import sparse

from blue_solvers.contract import Info, Prepared, Refusal, Solver, UnsupportedProblemError
from blue_solvers.normal_equations.noisy_equations import WIDE_SPREAD, equations_of, is_uneven, variance_spread
from constraint_builders import Problem
from constraint_builders.memory import require_memory

MOST_OPERATOR_CELLS = 3_000  # of a covariance operator whose entries are found by applying it to every unit vector
REASON = "the projection of Theorem 5, by dense linear algebra"


@dataclass(frozen=True)
class Cholesky(Solver):
    """CHOLMOD through scikit-sparse where it is installed, otherwise SuperLU of scipy, as `info` names.

    The factor's fill decides time and memory; single tables that everything overlaps make it dense.

    References
    ----------
    Chen, Davis, Hager and Rajamanickam, "Algorithm 887: CHOLMOD", 2008; Takahashi, Fagan and Chen, 1973, for variances.
    """

    name: ClassVar[str] = "cholesky"
    exact_for: ClassVar[str] = "any sparse covariance, any equations"
    cost: ClassVar[str] = "a sparse factorisation of A Sigma A'"

    def refusal(self, problem: Problem) -> str | None:
        """A covariance that is not known entry by entry."""
        if not problem.noise.has_entries:
            return Refusal("its covariance is an operator without entries", "use solver='cg'")
        return None

    def plan(self, problem: Problem) -> Prepared:
        """Factorise once."""
        from blue_solvers.normal_equations.factorisation import sparse_solver
        from blue_solvers.normal_equations.projection import ConstrainedEstimate

        info = Info(self.name, exact=True, reason="sparse factorisation of A Sigma A'")
        return ConstrainedEstimate(problem, equations_of(problem, "independent"), sparse_solver, info)


@dataclass(frozen=True)
class Dense(Solver):
    """Dense Cholesky factorisation of A Sigma A'; orthogonal transformations where variances differ by decades.

    Memory and time grow as the square and the cube of the rank.

    References
    ----------
    Generalised least squares (Aitken 1936) as a projection: SEA BLUE, Theorem 5.
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
        from blue_solvers.normal_equations.inverses import dense_solver
        from blue_solvers.normal_equations.projection import ConstrainedEstimate
        from blue_solvers.solvers.dense_estimates import OrthogonalEstimate, SingularEstimate

        if not problem.noise.has_entries:
            problem = _with_entries(problem)
        orthogonal = Info(f"{self.name} (LAPACK)", exact=True, reason=REASON)
        if problem.noise.is_singular:
            return SingularEstimate(problem, orthogonal)
        if variance_spread(problem) > WIDE_SPREAD and not is_uneven(problem):
            return OrthogonalEstimate(problem, orthogonal)
        what = f"the dense projection with {problem.rank:,} constraints"
        require_memory(3.0 * 8 * problem.rank**2, what, "use solver='sea_blue', 'cholesky' or 'cg'")
        info = Info(self.name, exact=True, reason=REASON)
        return ConstrainedEstimate(problem, equations_of(problem, "independent"), dense_solver, info)


def _with_entries(problem: Problem) -> Problem:
    """The same problem with the entries of its covariance operator found."""
    entries = problem.noise @ np.eye(problem.observed.size)
    try:
        return problem.with_covariance(sparse.csr_array((entries + entries.T) / 2))
    except ValueError as error:
        raise UnsupportedProblemError(str(error)) from None

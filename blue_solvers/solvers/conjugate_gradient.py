"""Conjugate gradients on A Sigma A', which is never formed but for cycles of multigrid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import sparse

from blue_solvers.contract import Capability, ConvergenceError, Info, Prepared, Refusal, Solver
from blue_solvers.normal_equations.krylov import Product, Sizes, conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import Equations, NormalSolver, equations_of, variance_spread
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.extras import needing

if TYPE_CHECKING:
    from blue_solvers.normal_equations.projection import ConstrainedEstimate

COSTS_DIGITS = "variances or weights differ by so much that rounding may cost digits: `estimate` proves what it gives"
USUAL = 1e-10
PROMISE = 1e-9  # standard errors
WIDEST_SPREAD = 1e9  # of variances, up to which iterations on the constraints keep the digits of every cell
SEED = 0  # pyamg draws start vectors for its spectral estimates from numpy's global state
ANY = ("all", "independent"), ""
ROWS: dict[str | None, tuple[tuple[str | None, ...], str]] = {  # that each preconditioner takes, the first by default
    None: ANY,
    "jacobi": ANY,
    "multigrid": (("independent",), ", since redundant ones make the matrix singular"),
    "two_pass": ((None,), ", which forms no equations"),
}


@dataclass(frozen=True)
class ConjugateGradient(Solver):
    """Preconditioned conjugate gradients, many right-hand sides in one block.

    Parameters
    ----------
    rtol : float, optional
        Stop when A x - b, each equation in units of its own standard deviation, is this small beside A y - b. It is
        relative to the adjustment, never to the counts: a large population does not make the answer less exact. By
        default as small as rounding permits.
        With "two_pass" what must be so small is the bound on the error of the estimate, in standard deviations of the
        noise, beside the distance from the data to the estimate; by default 1e-10, and the bound itself 1e-9.
    preconditioner : {"jacobi", "multigrid", "two_pass", None}
        "two_pass" is the exact estimate of the nearest problem with one variance for every table of every geounit: for
        noise whose variance differs from cell to cell, or that is correlated. It forms no constraint matrix, and its
        iterations do not grow with the problem but with the ratio of variances within a table, and with the condition
        of the correlations, at one such estimate a step, or two and half the steps (see
        `blue_solvers.structured.iteration`). A sparse covariance is factorised; a covariance
        operator must have a method ``solve(V)``, its inverse times (n, K), and has no bound on the error. Up to 500
        cells may be known exactly in tables that are not (see `blue_solvers.structured.nearest`).
    rows : {"all", "independent"}, optional
        By default all: redundant equations cost little and converge in far fewer iterations. Multigrid takes the
        independent ones, since its cycles need a matrix that is not singular; "two_pass" has no rows.
    max_iterations : int

    References
    ----------
    Hestenes and Stiefel, "Methods of conjugate gradients for solving linear systems", 1952; for the bound on the error
    Prager and Synge, "Approximations in elasticity based on the concept of function space", 1947.
    """

    name: ClassVar[str] = "cg"
    exact_for: ClassVar[str] = "any covariance, operators too, any equations"
    cost: ClassVar[str] = "iterations, to `rtol` of the adjustment"
    rtol: float | None = None
    preconditioner: str | None = "jacobi"
    rows: str | None = None
    max_iterations: int = 10_000

    def __post_init__(self) -> None:
        if self.rtol is not None and not 0 < self.rtol < 1:
            raise ValueError(f"rtol must lie between 0 and 1: got {self.rtol}")
        if self.preconditioner not in ROWS:
            raise ValueError(f"preconditioner must be one of {tuple(ROWS)}: got {self.preconditioner!r}")
        taken, why = ROWS[self.preconditioner]
        if self.rows is None:
            object.__setattr__(self, "rows", taken[0])
        if self.rows not in taken:
            words = " or ".join(f"rows={own!r}" for own in taken)
            chosen = f"preconditioner={self.preconditioner!r}"
            raise ValueError(f"rows must be {words} with {chosen}{why}: got rows={self.rows!r}")

    @classmethod
    def capabilities(cls) -> tuple[Capability, ...]:
        """Around the nearest structured problem, and on the constraints."""
        return (
            Capability(
                'ConjugateGradient(preconditioner="two_pass")',
                cls(preconditioner="two_pass"),
                "a variance per cell, correlated noise",
                "7 to 130 estimates",
            ),
            *super().capabilities(),
        )

    def refusal(self, problem: Problem) -> str | None:
        """Of multigrid a covariance without entries; of "two_pass" equations, and one that cannot be solved with."""
        if self.preconditioner == "two_pass":
            from blue_solvers.structured.nearest import why_no_structure

            return why_no_structure(problem)
        if self.preconditioner == "multigrid" and not problem.noise.has_entries:
            return Refusal(
                "multigrid needs the entries of the covariance, which is an operator", "use preconditioner='jacobi'"
            )
        return None

    def plan(self, problem: Problem) -> Prepared:
        """Build A, and the preconditioner; or plan the nearest structured problem."""
        if self.preconditioner == "two_pass":
            from blue_solvers.structured.iteration import NearestStructuredEstimate

            rtol, most_error = (self.rtol, np.inf) if self.rtol else (USUAL, PROMISE)
            reason = f"conjugate gradients around the exact estimate for equal variances, to {rtol:g} of the adjustment"
            info = _info(f"{self.name} (two_pass preconditioner)", problem, reason)
            return NearestStructuredEstimate(problem, rtol, most_error, self.max_iterations, info)
        return self.plan_as(problem, self.name)

    def plan_as(self, problem: Problem, name: str) -> ConstrainedEstimate:
        """`plan`, reporting as another solver of which this is the engine.

        Parameters
        ----------
        problem : Problem
        name : str

        Returns
        -------
        ConstrainedEstimate
        """
        from blue_solvers.normal_equations.projection import ConstrainedEstimate

        rows = self.rows or "all"
        info = _info(name, problem, f"conjugate gradients on {rows} rows to {_in_words(self.rtol)}")
        return ConstrainedEstimate(problem, equations_of(problem, rows), self.normal_solver, info)

    def normal_solver(self, equations: Equations) -> NormalSolver:
        """These iterations on some equations.

        Parameters
        ----------
        equations : Equations

        Returns
        -------
        NormalSolver
        """
        return _KrylovNormalSolver(equations, self)


@dataclass(frozen=True)
class Multigrid(Solver):
    """Smoothed-aggregation multigrid (pyamg) on the independent rows, its V-cycles accelerated by conjugate gradients.

    Cycles alone need thousands on these matrices (more than 5,000 for the redistricting tables), accelerated ones
    dozens.

    Parameters
    ----------
    rtol : float, optional
        As in `ConjugateGradient`.
    max_cycles : int

    References
    ----------
    Vanek, Mandel and Brezina, "Algebraic multigrid by smoothed aggregation", 1996, as pyamg has it.
    """

    name: ClassVar[str] = "multigrid"
    exact_for: ClassVar[str] = "as `cg`, where the covariance has entries"
    cost: ClassVar[str] = "a hierarchy by smoothed aggregation, then fewer iterations"
    rtol: float | None = None
    max_cycles: int = 2_000

    @property
    def _accelerated(self) -> ConjugateGradient:
        return ConjugateGradient(self.rtol, "multigrid", "independent", self.max_cycles)

    def refusal(self, problem: Problem) -> str | None:
        """A covariance that is not known entry by entry."""
        return self._accelerated.refusal(problem)

    def plan(self, problem: Problem) -> Prepared:
        """Build the hierarchy."""
        return self._accelerated.plan_as(problem, self.name)


def _info(name: str, problem: Problem, reason: str) -> Info:
    """Exact, unless rounding may cost digits of what is applied: the estimate itself is proved."""
    exact = variance_spread(problem) <= WIDEST_SPREAD
    if not exact:
        reason += f"; {COSTS_DIGITS}"
    return Info(name, exact, reason)


class _KrylovNormalSolver(NormalSolver):
    def __init__(self, equations: Equations, options: ConjugateGradient) -> None:
        self._equations, self._options = equations, options
        inverse = 1 / equations.deviations[:, None] ** 2 if options.preconditioner else 1.0
        is_scaled = options.preconditioner != "multigrid"
        self._precondition: Product = partial(np.multiply, inverse) if is_scaled else _multigrid_cycle(equations)
        self.rtol, self.goal = options.rtol or USUAL, options.rtol or 0.0
        self.label = f"{options.preconditioner or 'no'} preconditioner"

    def solve(self, R: Float, target: Float) -> tuple[Float, int]:
        """What solves for R, (m, K), to lengths, in standard deviations, of a target, (K,), and the iterations."""
        deviations = self._equations.deviations[:, None]
        return self.iterate(R, lambda residual, _: np.linalg.norm(residual / deviations, axis=0), target)

    def iterate(self, R: Float, sizes: Sizes, target: Float) -> tuple[Float, int]:
        """What solves for R, (m, K), to sizes of a target, (K,), and the iterations."""
        own, most = self._equations, self._options.max_iterations
        Z, iterations, converged = conjugate_gradients(
            lambda Z: own.A @ own.moved_by(Z), R, self._precondition, sizes, target, most
        )
        if not converged:
            raise ConvergenceError(
                f"cg did not come to {_in_words(self._options.rtol)} in {self._options.max_iterations} iterations with "
                f"preconditioner={self._options.preconditioner!r} on {self._options.rows} rows: try rows='all', "
                "another preconditioner, more iterations, or solver='cholesky'"
            )
        return Z, iterations


def _in_words(rtol: float | None) -> str:
    return f"a relative residual of {rtol:g}" if rtol else "rounding"


def _multigrid_cycle(equations: Equations) -> Product:
    """Build a smoothed-aggregation hierarchy; the result applies one symmetric V-cycle to every column.

    A hierarchy suits A Sigma A' scaled to a unit diagonal, whose rows differ in variance by decades. Classical
    interpolation would assume signs that these matrices do not have.

    Raises
    ------
    ImportError
        If pyamg is not installed.
    """
    with needing("multigrid needs pyamg", "multigrid", "use another solver, such as 'auto'"):
        import pyamg
    deviations = equations.deviations[:, None]
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(SEED)  # noqa: NPY002
    try:
        hierarchy = pyamg.smoothed_aggregation_solver(
            sparse.csr_matrix(equations.normal_matrix()), symmetry="symmetric"
        )
        cycle = hierarchy.aspreconditioner(cycle="V")
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return lambda R: np.stack([cycle.matvec(column) for column in (R / deviations).T], axis=1) / deviations

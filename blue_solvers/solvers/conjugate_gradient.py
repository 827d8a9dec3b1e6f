"""Conjugate gradients on A Sigma A', which is never formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from blue_solvers.constrained import ConstrainedEstimate, Equations, NormalSolver
from blue_solvers.krylov import Product, conjugate_gradients
from blue_solvers.multigrid_cycle import multigrid_cycle
from blue_solvers.solver import ConvergenceError, Float, Info, Prepared, Solver
from constraint_builders import Problem

PRECONDITIONERS = (None, "jacobi", "multigrid")


@dataclass(frozen=True)
class ConjugateGradient(Solver):
    """Preconditioned conjugate gradients, many right-hand sides in one block.

    Parameters
    ----------
    rtol : float
        Stop when A x - b, each equation in units of its own standard deviation, is this small beside A y - b. It is
        relative to the adjustment, never to the counts: a large population does not make the answer less exact.
    preconditioner : {"jacobi", "multigrid", None}
    rows : {"all", "independent"}, optional
        By default all: redundant equations cost little and converge in far fewer iterations. Multigrid takes the
        independent ones, since its cycles need a matrix that is not singular.
    max_iterations : int
    """

    name: ClassVar[str] = "cg"
    rtol: float = 1e-10
    preconditioner: str | None = "jacobi"
    rows: str | None = None
    max_iterations: int = 10_000

    def __post_init__(self) -> None:
        if not 0 < self.rtol < 1:
            raise ValueError(f"rtol must lie between 0 and 1: got {self.rtol}")
        if self.preconditioner not in PRECONDITIONERS:
            raise ValueError(f"preconditioner must be one of {PRECONDITIONERS}: got {self.preconditioner!r}")
        if self.rows is None:
            object.__setattr__(self, "rows", "independent" if self.preconditioner == "multigrid" else "all")
        if self.rows not in ("all", "independent"):
            raise ValueError(f"rows must be 'all' or 'independent': got {self.rows!r}")
        if self.rows == "all" and self.preconditioner == "multigrid":
            raise ValueError(
                "preconditioner='multigrid' needs rows='independent': with redundant rows the matrix is singular"
            )

    def supports(self, problem: Problem) -> str | None:
        """Every problem; multigrid needs a covariance with entries."""
        operator_only = problem.covariance is not None and not hasattr(problem.covariance, "nnz")
        if self.preconditioner == "multigrid" and operator_only:
            return "multigrid needs the entries of the covariance, which is an operator: use preconditioner='jacobi'"
        return None

    def prepare(self, problem: Problem) -> Prepared:
        """Build A, and the preconditioner."""
        return self.prepare_as(problem, self.name)

    def prepare_as(self, problem: Problem, name: str) -> Prepared:
        """`prepare`, reporting as another solver of which this is the engine."""
        assert self.rows is not None
        reason = f"conjugate gradients on {self.rows} rows to a relative residual of {self.rtol:g}"
        info = Info(name, exact=True, reason=reason)
        return ConstrainedEstimate(problem, self.rows, self._normal_solver, info)

    def _normal_solver(self, equations: Equations) -> NormalSolver:
        return _KrylovNormalSolver(equations, self)


class _KrylovNormalSolver(NormalSolver):
    def __init__(self, equations: Equations, options: ConjugateGradient) -> None:
        self._equations = equations
        self._options = options
        self._precondition = _preconditioner(equations, options.preconditioner)
        self.rtol = options.rtol
        self.label = f"{options.preconditioner or 'no'} preconditioner"

    def solve(self, R: Float, target: Float) -> Float:
        deviations = self._equations.deviations[:, None]
        Z, self.iterations, converged = conjugate_gradients(
            self._equations.normal_product,
            R,
            self._precondition,
            lambda residual: np.linalg.norm(residual / deviations, axis=0),
            target,
            self._options.max_iterations,
        )
        if not converged:
            raise ConvergenceError(
                f"cg did not reach rtol={self._options.rtol:g} in {self._options.max_iterations} iterations with "
                f"preconditioner={self._options.preconditioner!r} on {self._options.rows} rows: try rows='all', "
                "another preconditioner, more iterations, or solver='cholesky'"
            )
        return Z


def _preconditioner(equations: Equations, name: str | None) -> Product:
    if name is None:
        return lambda R: R.copy()
    if name == "jacobi":
        inverse = 1 / equations.deviations[:, None] ** 2
        return lambda R: inverse * R
    return multigrid_cycle(equations)

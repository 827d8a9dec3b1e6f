"""The estimate as a projection onto the solutions of sparse equations, whoever solves the normal equations.

    x = y - Sigma A' (A Sigma A')^+ (A y - b)

Cells known exactly come first: they are made consistent with one another (a projection of their own, with equal
weights; it changes nothing unless they contradict one another), then everything else is adjusted to them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import Info, Prepared, UnsupportedProblemError
from blue_solvers.normal_equations.cell_variances import variances_given
from blue_solvers.normal_equations.factorisation import factorise, norm_of_inverse
from blue_solvers.normal_equations.noisy_equations import Equations, NormalSolverFactory, equations_of
from blue_solvers.normal_equations.stage import stage_of
from constraint_builders import Problem
from constraint_builders.arrays import Float

CHECKED_ENTRIES = 1_000_000  # of equations, in which nearly dependent rows are looked for
TOLD_APART = 1e-13  # least eigenvalue of A Sigma A', scaled to a unit diagonal, from which answers keep enough digits


class ConstrainedEstimate(Prepared):
    """The BLUE of a problem through its constraint matrix.

    Parameters
    ----------
    problem : Problem
    equations : list of Equations
        Its own, one projection after another; direct solvers need independent ones.
    make_solver : callable
        Makes a `NormalSolver` from `Equations`.
    info : Info
        What to report, but for the figures of an apply.
    """

    def __init__(
        self, problem: Problem, equations: list[Equations], make_solver: NormalSolverFactory, info: Info
    ) -> None:
        self.problem, self.equations = problem, equations
        if not problem.relations.independent and problem.constraint_matrix("all").nnz <= CHECKED_ENTRIES:
            _require_told_apart(equations_of(problem, "independent")[-1])
        self._stages = [stage_of(own, make_solver(own)) for own in equations if own.A.shape[0]]
        labels = dict.fromkeys(stage.solver.label for stage in self._stages)
        self.info = Info(f"{info.solver} ({', '.join(labels)})" if labels else info.solver, info.exact, info.reason)
        self._origin = np.zeros((problem.observed.size, 1))
        self.offset = np.broadcast_to(0.0, problem.desired.size)
        if any(own.b.any() for own in self.equations) or problem.completed(self._origin, constants=True).any():
            for _ in range(2):  # the second time from near by, which rounds less
                self._origin, projected = self._projected(self._origin, affine=True)
            if not all(own.exact for own in projected):
                self.info = replace(self.info, exact=False)
            self.offset = problem.tabulate(problem.completed(self._origin, constants=True))[:, 0]

    def apply(self, Y: Float) -> tuple[Float, Info]:
        X, projected = self._projected(self._off_origin(Y), affine=False)
        return self.problem.tabulate(self.problem.completed(X)), replace(
            self.info,
            exact=self.info.exact and all(own.exact for own in projected),
            iterations=sum(own.iterations for own in projected),
            residual=max((own.residual for own in projected), default=0.0),
            violation=max((own.violation or 0.0 for own in projected), default=0.0),
        )

    def _off_origin(self, Y: Float) -> Float:
        """Y, (n, K), less the origin as often as it holds that: its estimate is 0, and rounding grows with what is off.

        That is once for measurements which equations with a right-hand side hold for, but for their noise.
        """
        squares = sum([float((own.b / own.deviations) @ (own.b / own.deviations)) for own in self.equations])
        if not squares > 0 or not self._origin.any():
            return Y
        products = sum([(own.b / own.deviations**2) @ (own.A @ Y) for own in self.equations])
        return Y - self._origin * np.rint(products / squares)

    def _projected(self, X: Float, affine: bool) -> tuple[Float, list[Info]]:
        """Columns (n, K) through all stages, and the reports of these."""
        projected = []
        with one_blas_thread():
            for stage in self._stages:
                X, own = stage.project(X, affine)
                projected.append(own)
        return X, projected

    def adjoint(self, V: Float) -> Float:
        U = self.problem.completed_transpose(self.problem.tabulate_transpose(V))
        with one_blas_thread():
            for stage in reversed(self._stages):
                U = stage.adjoint(U)
        U[self.problem.unmeasured] = 0
        return U

    def variances(self, added: Float | float = 0.0) -> Float:
        """By entries of the inverse that the pattern of a factor holds; where there are none, one adjoint a cell.

        For `added`, (m,), see `variances_given`.
        """
        if not self.problem.noise.has_entries:
            return super().variances()
        own = self.equations[-1]
        own = own if own.independent else equations_of(self.problem, "independent")[-1]
        return variances_given(own, self.problem, added)


def _require_told_apart(equations: Equations) -> None:
    """Refuse equations some of which nearly follow from others, in units of their noise."""
    if not (equations.has_entries and equations.A.shape[0]):
        return
    try:
        least = 1 / norm_of_inverse(factorise(equations.normal_matrix()).solve, equations.A.shape[0])
    except UnsupportedProblemError:
        least = 0.0
    if not least > TOLD_APART:
        raise UnsupportedProblemError(
            "a row of the equations A x = b is nearly a combination of others, beside its noise, and rounding would "
            "decide what it says: leave it out, or make it one exactly"
        )

"""One projection onto the solutions of equations, refined until they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from blue_solvers.contract import ConvergenceError
from blue_solvers.normal_equations.extended import ExtendedSweeps
from blue_solvers.normal_equations.noisy_equations import (
    EPSILON,
    ROUNDING,
    Equations,
    NormalSolverFactory,
    largest_of_columns,
)
from blue_solvers.normal_equations.settling import Settling
from constraint_builders.arrays import Float

SWEEPS = 6
DIRECT_SWEEPS = 2
PROBES = 4  # of roundings of coefficients
NEAR = 1e-3  # of what is asked there, which a solver that iterates leaves
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
    """One projection onto A x = b, of rows that are `independent` or not."""

    def __init__(self, equations: Equations, make_solver: NormalSolverFactory, independent: bool = False) -> None:
        self.equations = equations
        self.solver = make_solver(equations)
        self._deviations = equations.deviations[:, None]
        self._settling = Settling(equations, self.solver)
        extended = equations.uneven and not self.solver.rtol and equations.A.shape[0]
        self._extended = ExtendedSweeps(equations, self.solver) if extended else None
        self._may_move = independent and equations.is_rounded

    def project(self, Y: Float, b: Float) -> tuple[Float, Projected]:
        """Y - Sigma A' (A Sigma A')^+ (A Y - b), (n, K), refined until the equations hold."""
        equations, b = self.equations, b[:, None]
        if self._extended is not None:
            X, settled = self._extended.project(Y, b)
            violation = abs(equations.A @ X - b)
            return X, Projected(0, 0.0, float(violation.max(initial=0.0)), bool(settled.all()) and self._is_told(X, b))
        steps = 0

        def correct(X: Float, R: Float, target: Float) -> Float:
            nonlocal steps
            Z, iterations = self.solver.solve(R, target)
            steps += iterations
            return X - equations.moved_by(Z)

        floor = self._sizes(equations.absolute @ abs(Y) + abs(b))
        X, R, first = self._refine(Y, lambda X: equations.A @ X - b, correct, lambda _: floor)
        if self.solver.settles:
            X, R, more = self._settling.settle(X, R, b)
            steps += more if self.solver.rtol else 0
        sizes, goal = self._sizes(R), np.maximum(self.solver.goal * first, ROUNDING * EPSILON * floor)
        residual = float((sizes / np.maximum(first, np.finfo(float).tiny)).max(initial=0.0))
        violation = float(abs(R).max(initial=0.0))
        as_near = bool((sizes <= 2 * goal).all()) or not self.solver.rtol
        return X, Projected(steps, residual, violation, as_near and self._is_told(X, b))

    def _is_told(self, X: Float, b: Float) -> bool:
        """Whether roundings of the coefficients of A move every column by roundings of its largest value at most."""
        if not self._may_move:
            return True
        terms = EPSILON * (self.equations.absolute @ abs(X) + abs(b))
        allowed = ROUNDING * EPSILON * np.maximum(largest_of_columns(X), abs(b).max(initial=0.0))
        signs = np.where(np.random.default_rng(0).random(terms.shape) < 0.5, -1.0, 1.0)
        target = NEAR * self._sizes(terms)
        for _ in range(PROBES):
            try:
                change = self.solver.solve(signs * terms, target)[0]
            except ConvergenceError:
                return False
            if not (largest_of_columns(self.equations.moved_by(change)) <= allowed).all():
                return False
            signs = np.where(change < 0, -1.0, 1.0)  # towards those that change most
        return True

    def adjoint(self, U: Float) -> Float:
        """The transpose of the linear part of `project`, (n, K)."""
        equations = self.equations
        if self._extended is not None:
            return self._extended.adjoint(U)

        def correct(W: Float, R: Float, target: Float) -> Float:
            return W - equations.A_transposed @ self.solver.solve(R, target)[0]

        def floor(W: Float) -> Float:
            return self._sizes(equations.absolute @ abs(equations.Sigma @ W))

        return self._refine(U, lambda W: equations.A @ (equations.Sigma @ W), correct, floor)[0]

    def _refine(
        self,
        X: Float,
        residual: Callable[[Float], Float],
        correct: Callable[[Float, Float, Float], Float],
        terms: Callable[[Float], Float],
    ) -> tuple[Float, Float, Float]:
        """Correct until the residual is small enough; a direct solver twice, which also heals its rounding.

        The second correction matters most for cells that their own measurement determines far less well than the others
        do: the first leaves in them the rounding error of the measurement, large beside the estimate's own. Where
        rounding is not reached yet, corrections go on as long as they help. `terms` are the sizes of what a residual is
        summed of: a vector may keep so little of itself that roundings of what it was say nothing of what it is.
        """
        R = residual(X)
        first = sizes = self._sizes(R)
        floor = terms(X)
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
            goal = np.maximum(self.solver.goal * first, EPSILON * np.minimum(floor, ROUNDING * terms(X)))
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
        standardised = R / self._deviations
        return np.sqrt(np.einsum("ij,ij->j", standardised, standardised))

"""One projection onto the solutions of equations, refined until they hold.

Where weights and variances are so unequal that float64 does not hold what solves the equations, the factor stays in
float64 while cells are held in extended precision, and so is what is left of the equations: every sweep then gains as
many digits as the factor has, until rounding of the extended numbers is reached.

Elsewhere equations settle in counts, not in standard deviations: in units of its noise an equation of much noise is as
good as solved while it is off by many roundings of the figures. Cells that such equations determine by what is known
exactly have no standard error by which that would be small.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from blue_solvers.contract import ConvergenceError, Info, UnsupportedProblemError
from blue_solvers.normal_equations.krylov import conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING, Equations, NormalSolver, largest_of_columns
from constraint_builders.arrays import Float

SWEEPS = 6
DIRECT_SWEEPS = 2
EXTENDED_SWEEPS = 60  # enough for what gains least
PROBES = 4  # of roundings of coefficients, and of what extended sweeps gain
NEAR = 1e-3  # of what is asked there, which a solver that iterates leaves
WORST_ACCEPTED = 1e-6  # of the data's standardised residual: a direct solver that leaves more met a singular system
GAIN = 0.5  # of what is left, that an extended sweep may leave: a factor that leaves more has lost its digits
SETTLED = 4.0  # roundings of a row's terms, and of the largest value, that it may be off by
CONTRADICTIONS = (1.0, 4.0, 16.0)  # the same by which values that are known exactly contradict one another
AT_ONCE = 1e-8  # of what rows are off by: as far as one solution goes, the next begins there
LESS_AT_ONCE = 1e3  # times that, where contradictions between values that are known exactly are more, or rounding
MOST_AT_ONCE = 1e-5  # of what rows are off by, from which on iterations are not asked for less
ITERATIONS = 1_000  # towards any solution, with equal weights
Long = NDArray[np.longdouble]


class Stage:
    """One projection onto A x = b, by what solves with A Sigma A'; see `stage_of`."""

    def __init__(self, equations: Equations, solver: NormalSolver) -> None:
        self.equations, self.solver = equations, solver
        self._deviations = equations.deviations[:, None]

    def project(self, Y: Float, affine: bool = False) -> tuple[Float, Info]:
        """Y - Sigma A' (A Sigma A')^+ (A Y - b), (n, K), refined until the equations hold; b = 0 unless `affine`.

        It is exact where it came as near as the solver aims at, or to rounding.
        """
        equations = self.equations
        b = equations.b[:, None] * affine
        steps = 0

        def correct(X: Float, R: Float, target: Float) -> Float:
            """X, (n, K), corrected by what solves for R, (m, K), to a target, (K,)."""
            nonlocal steps
            Z, iterations = self.solver.solve(R, target)
            steps += iterations
            return np.subtract(X, moved := equations.moved_by(Z), out=moved if equations.has_entries else None)

        floor = self._sizes(equations.absolute @ abs(Y) + abs(b))
        X, R, first = self._refine(Y, lambda X: equations.A @ X - b, correct, lambda _: floor)
        if not self.solver.goal:
            X, R, more = settle(equations, self.solver, X, R, b)
            steps += more if self.solver.rtol else 0
        sizes, goal = self._sizes(R), np.maximum(self.solver.goal * first, ROUNDING * EPSILON * floor)
        residual = float((sizes / np.maximum(first, np.finfo(float).tiny)).max(initial=0.0))
        violation = float(abs(R).max(initial=0.0))
        is_exact = ((sizes <= 2 * goal).all() or not self.solver.rtol) and self._is_told(X, b)
        return X, Info(self.solver.label, bool(is_exact), "", steps, residual, violation)

    def _is_told(self, X: Float, b: Float) -> bool:
        """Whether roundings of coefficients of A move columns of X (n, K) by no more than those of their largest."""
        if not (self.equations.independent and self.equations.rounded.data.any()):
            return True
        terms = EPSILON * (self.equations.rounded @ abs(X) + abs(b))
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

        def correct(W: Float, R: Float, target: Float) -> Float:
            """W, (n, K), corrected by what solves for R, (m, K), to a target, (K,)."""
            return W - equations.A_transposed @ self.solver.solve(R, target)[0]

        def floor(W: Float) -> Float:
            """Sizes, (K,), of the terms of what is left of W, (n, K)."""
            return self._sizes(equations.absolute @ abs(equations.Sigma @ W))

        return self._refine(U, lambda W: equations.A @ (equations.Sigma @ W), correct, floor)[0]

    def _refine(
        self,
        X: Float,
        residual: Callable[[Float], Float],
        correct: Callable[[Float, Float, Float], Float],
        terms: Callable[[Float], Float],
    ) -> tuple[Float, Float, Float]:
        """Correct X, (n, K), until the residual is small enough; a direct solver twice, which also heals its rounding.

        The second correction matters most for cells that their own measurement determines far less well than the others
        do: the first leaves in them the rounding error of the measurement, large beside the estimate's own. Where
        rounding is not reached yet, corrections go on as long as they help. `terms` are the sizes of what a residual is
        summed of: a vector may keep so little of itself that roundings of what it was say nothing of what it is.
        """
        R = residual(X)
        first = sizes = self._sizes(R)
        floor = terms(X)
        goal = np.maximum(self.solver.goal * first, EPSILON * floor)
        least, shares = 0 if self.solver.rtol else DIRECT_SWEEPS, np.full(first.shape, self.solver.rtol)
        for sweep in range(SWEEPS):
            if sweep >= least and (sizes <= goal).all():
                break
            target = np.maximum(goal, shares * sizes)
            try:
                corrected = correct(X, R, target)
            except ConvergenceError:
                if not sweep and (sizes > ROUNDING * EPSILON * floor).any():  # otherwise no solution is nearer
                    raise
                break
            left = residual(corrected)
            left_sizes = self._sizes(left)
            better = (left_sizes < sizes) | (sweep < least)
            again = (shares > 0) & (shares < MOST_AT_ONCE) & (sizes > ROUNDING * EPSILON * floor)
            better &= ~again | (left_sizes <= LESS_AT_ONCE * target)
            again &= ~better  # asked for less: rounding grew in iterations towards what it does not permit
            shares[again] *= LESS_AT_ONCE
            if not (better | again).any():
                break
            if not better.all():  # columns at rounding already, or asked again
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
        """Norm of every column, (K,) from (rows, K), each equation in units of its standard deviation."""
        standardised = R / self._deviations
        return np.sqrt(np.einsum("ij,ij->j", standardised, standardised))


class ExtendedStage(Stage):
    """A projection in extended precision, by a direct solver of A Sigma A', Sigma having entries.

    Raises
    ------
    UnsupportedProblemError
        If the factor has too few digits for sweeps to gain any.
    """

    def __init__(self, equations: Equations, solver: NormalSolver) -> None:
        super().__init__(equations, solver)
        self._equations = equations.extended
        self._require_gain()

    def project(self, Y: Float, affine: bool = False) -> tuple[Float, Info]:
        """As of any stage, (n, K); exact where the last sweep moved roundings only."""
        own, b = self._equations, self.equations.b[:, None] * affine
        X, _, settled = self._swept(Y.astype(np.longdouble), lambda X: own.A @ X - b, own.moved_by, b)
        violation = float(abs(self.equations.A @ X - b).max(initial=0.0))
        return X, Info(self.solver.label, settled and self._is_told(X, b), "", violation=violation)

    def adjoint(self, U: Float) -> Float:
        """U - A' (A Sigma A')^-1 A Sigma U, (n, K); without weight of moving cells where all of that is rounding."""
        A, At, Sigma = self._equations.A, self._equations.A_transposed, self._equations.entries()
        nothing, moving = np.zeros((A.shape[0], 1)), self._equations.moving
        W, Z, _ = self._swept(U.astype(np.longdouble), lambda W: A @ (Sigma @ W), lambda Z: At @ Z, nothing)
        terms = abs(U) + abs(At) @ abs(Z)
        deviations = np.sqrt(Sigma.diagonal()[moving, None])
        noise, rounded = (np.linalg.norm((deviations * own[moving]).astype(float), axis=0) for own in (W, terms))
        return np.where((noise <= EPSILON * rounded) & moving[:, None], 0.0, W)

    def _swept(
        self, Y: Long, residual: Callable[[Long], Long], moved_by: Callable[[Long], Long], b: Float
    ) -> tuple[Float, Long, bool]:
        """Y, (n, K), less what Z moves, Z, (m, K), and whether the last sweep moved roundings only."""
        X, Z = Y, np.zeros((self._equations.A.shape[0], Y.shape[1]), dtype=np.longdouble)
        largest = np.maximum(largest_of_columns(Y.astype(float)), abs(b).max(initial=0.0))
        before = np.full(Y.shape[1], np.inf)
        for _ in range(EXTENDED_SWEEPS):
            change = self._solved(residual(X))
            moved = moved_by(change)
            X, Z = X - moved, Z + change
            step = largest_of_columns(moved.astype(float))
            if (step <= EPSILON**2 * largest).all() or not (step < before).any():
                break
            before = step
        found = X.astype(float)
        return found, Z, bool((step <= ROUNDING * EPSILON * np.maximum(largest, largest_of_columns(found))).all())

    def _solved(self, R: Long) -> Long:
        """What solves with A Sigma A' for R, (m, K), in float64."""
        return self.solver.solve(R.astype(float), np.zeros(R.shape[1]))[0].astype(np.longdouble)

    def _require_gain(self) -> None:
        """Refuse a factor by which what is left of any right-hand side does not become much less with every sweep."""
        deviations = self._equations.deviations[:, None]
        R = (np.random.default_rng(0).standard_normal(deviations.shape) * deviations).astype(np.longdouble)
        sizes = np.empty(1 + PROBES)  # of what solves for what is left, in units of the noise of the equations
        for sweep in range(sizes.size):
            Z = self._solved(R)
            sizes[sweep] = np.linalg.norm(Z.astype(float) * deviations)
            R = R - self._equations.A @ self._equations.moved_by(Z)
        if not (sizes[1:] <= GAIN * sizes[:-1]).all():
            raise UnsupportedProblemError(
                "its variances, with the weights of areas and equalities, are so unequal that rounding would "
                "decide what is known well: give weights and variances nearer to one another"
            )


def stage_of(equations: Equations, solver: NormalSolver) -> Stage:
    """A projection by a solver of A Sigma A', in extended precision where a direct one would lose digits."""
    extended = equations.uneven and not solver.rtol and equations.A.shape[0]
    return ExtendedStage(equations, solver) if extended else Stage(equations, solver)


def settle(equations: Equations, solver: NormalSolver, X: Float, R: Float, b: Float) -> tuple[Float, Float, int]:
    """Move what nearly solves A x = b to where every row holds to rounding, along Sigma A' only.

    Nothing is done where every row is off by roundings of its terms, or of the largest value, at most.

    Parameters
    ----------
    equations : Equations
    solver : NormalSolver
    X : ndarray, (n, K)
    R : ndarray, (m, K)
        A X - b, as float64 has it.
    b : ndarray, (m, 1)

    Returns
    -------
    X : ndarray, (n, K)
    R : ndarray, (m, K)
    iterations : int
    """
    terms = equations.absolute @ abs(X) + abs(b)
    if (abs(R) <= SETTLED * EPSILON * terms).all():
        return X, R, 0
    largest = np.maximum(largest_of_columns(X), abs(b).max(initial=0.0))
    allowed = np.maximum(EPSILON * np.maximum(terms, largest), np.finfo(float).tiny)
    steps, beyond, share = 0, _beyond(R, allowed), AT_ONCE
    for _ in range(SWEEPS):
        if (beyond <= SETTLED).all():
            break
        try:
            settled, iterations = _settled(equations, solver, X, b, allowed, np.maximum(1.0, share * beyond))
        except ConvergenceError:
            settled, iterations = X, 0
        steps += iterations
        left = _beyond(_off(equations, settled, b), allowed)
        better = left < beyond
        if not better.any():
            if (share * beyond <= 1).all():
                break
            share *= LESS_AT_ONCE
        X, beyond = np.where(better, settled, X), np.where(better, left, beyond)
        R = equations.A @ X - b
    return X, R, steps


def _settled(
    equations: Equations, solver: NormalSolver, X: Float, b: Float, allowed: Float, target: Float
) -> tuple[Float, int]:
    """The solutions of A x = A g nearest to X, (n, K), where g is any solution of A x = b, as near as there is."""
    A, moving = equations.A, equations.moving[:, None].astype(float)
    squares = A.power(2) @ moving
    inverse_squares = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
    off, steps = _off(equations, X, b), 0

    def pulled(Z: Float) -> Float:
        """What rows, (m, K), make of the cells that move, (n, K)."""
        return moving * (equations.A_transposed @ Z)

    def sizes(R: Float, columns: NDArray[np.intp]) -> Float:
        """By how much what is left, (m, k), exceeds what is allowed in some columns, (k,)."""
        return _beyond(R, allowed[:, columns])

    for multiple in CONTRADICTIONS:
        Z, iterations, converged = conjugate_gradients(
            lambda Z: A @ pulled(Z), off, lambda R: inverse_squares * R, sizes, multiple * target, ITERATIONS
        )
        steps += iterations
        if converged:
            break
    else:
        raise ConvergenceError
    apart = _off(equations, pulled(Z), np.zeros_like(b))
    Z, iterations = solver.iterate(apart, sizes, target)
    return X - equations.moved_by(Z), steps + iterations


def _off(equations: Equations, X: Float, b: Float) -> Float:
    """A X - b, (m, K), whose rounding would be in the range of nothing."""
    return np.asarray(equations.extended.A @ X.astype(np.longdouble) - b, dtype=float)


def _beyond(R: Float, allowed: Float) -> Float:
    """By how much the worst row of every column of (m, K) exceeds what is allowed."""
    return largest_of_columns(R / allowed)

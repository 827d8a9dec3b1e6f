"""The estimate under any noise, by iterations whose every step is an exact estimate under equal variances.

The nearest structured problem gives every table of every geounit one variance; S is the diagonal matrix of these. Its
estimate P is known in closed form, or in two passes over a spine, and S^-1 P S is its transpose. The estimate is
P y + x, where

    P' Sigma^-1 P x = P' Sigma^-1 (y - P y),    x in the range of P.

Conjugate gradients solve this with one P a step, preconditioned by S. Their eigenvalues lie between the least and the
greatest ratio of the structured variances to the true ones, so the iterations do not grow with the problem. Nothing
else is needed: no constraint matrix, and every estimate agrees with itself exactly.

With uncorrelated noise at one place P S f P' preconditions them instead: two P a step, half the steps or fewer. What of
the inverse of the information is due to a cell depends on its leverage l, the share of its own measurement in its
structured estimate. A cell of leverage 1 is told by itself alone, and its true variance is its part; one of leverage 0
is told by the others, whatever its own precision. Between them, with D the ratio of its structured variance to its own,

    f = (l + u) / (l D + u),    u = (1 - l) / SHARPENED.

How many steps that saves depends most on the mean leverage, which is the number of free cells over that of all: none at
0.02, a third to four fifths from a fifth on. Over a spine it saves a quarter of the steps, and they take twice as long.

An error is as large as its residual r shows (Prager and Synge): its square, in units of the noise, is at most
r' Sigma r, and by the Cauchy-Schwarz inequality no linear combination of cells misses its estimate by more than the
root of that of its own standard errors. Of weights with the residual r the variance is too large by r' Sigma r at most,
so that variances take half the digits of the weights: half the iterations.

Rounding takes x and r out of the ranges of P and P', where Sigma^-1 may be large. Both are projected before r is worked
out afresh, and the iterations begin again from there until it is small enough.

Where the structured problem does without some tables (`nearest`), x, r and P are over the cells of the others, and
Sigma^-1 becomes B' Sigma^-1 B, B the sums that give all cells from these; the bound is with Sigma of the cells kept.

References
----------
Prager and Synge, Approximations in elasticity based on the concept of function space, 1947.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from scipy import sparse

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.contract import ConvergenceError, Info, Prepared, variances_from_weights
from blue_solvers.normal_equations.cell_variances import variances_by_selected_inversion
from blue_solvers.normal_equations.factorisation import factorise
from blue_solvers.normal_equations.krylov import Product, conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING, WIDE_SPREAD, variance_spread
from blue_solvers.structured.nearest import structure_of
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float

SWEEPS = 6  # two or three are taken
RESTART = 1e-11  # of a residual: below it, rounding that leaves the range of P' would be all that is iterated on
SHOWN = 1e-4  # of a residual, that a correction may leave which is to show how large the error is
UNTOLD = 1e-19  # of a correction's square in the structured noise: what measurements say less of, rounding alone does
HELPED = 0.5  # of a residual: a correction that leaves more met rounding
EXACT_WITHIN = 1e-8  # standard errors, beside rounding: an estimate that may be further off is not called exact
LEAST_ERROR = 1e-3  # of the least deviation: a functional of unit length that is not known is never known better
HALF_THE_DIGITS = 0.5  # of the root of a tolerance, what is left being at most twice what is asked for
MOST_CELLS, MOST_EQUATIONS = 20_000, 5_000  # that a factorisation takes in seconds, where iterations take minutes
SHARPENED = 5.0  # 2 to 15 take as many steps within a tenth, of uniform and log-uniform variances in ratio 100
LEAST_LEVERAGE = 0.2  # on average, from which two estimates a step take less work than one
TINY = float(np.finfo(float).tiny)


class NearestStructuredEstimate(Prepared):
    """The BLUE through that of the nearest structured problem; see the module.

    Its `info.residual` is the size of what the data still pull at the estimate, relative to the start. Every iterate is
    consistent, so that `info.violation` is rounding only. `info.error_bound` includes the rounding of the data and what
    the offset lacks; it is None where tables were measured in part, what is missing then not being bounded by the ratio
    of variances, and where the covariance is an operator, whose inverse is believed.

    Parameters
    ----------
    problem : Problem
        For which `why_no_structure` is None.
    rtol : float
        Stop when the bound on the error of the estimate, in standard deviations of the noise, is this small beside the
        adjustment that the estimate makes to the data; of the adjoint likewise.
    most_error : float
        What the bound on the error of every linear combination must be at most, in its standard errors.
    max_iterations : int
    info : Info
        What to report, but for the figures of an apply.
    """

    def __init__(self, problem: Problem, rtol: float, most_error: float, max_iterations: int, info: Info) -> None:
        self.problem = problem
        self._rtol, self._most_error = rtol, most_error
        self._max_iterations = max_iterations
        self.info = info
        self._observed, self._desired, self._everywhere, variances, self._cells = structure_of(problem)
        moved = (variances > 0) & np.isfinite(variances)
        self._is_partial = bool((moved & problem.unmeasured).any())
        self._certain = problem.noise.has_entries and not self._is_partial
        self._deviations = np.sqrt(np.where(moved, variances, 0.0))[:, None]
        self._S = self._deviations[self._cells] ** 2
        self._inverse_S = np.divide(1.0, self._S, out=np.zeros_like(self._S), where=self._S > 0)
        least = float(self._deviations[moved].min(initial=np.inf))
        self._nothing = min(ROUNDING * EPSILON * float(self._deviations.max(initial=0.0)), LEAST_ERROR * least)
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], self._deviations.shape)
        self._measure_noise(moved & ~problem.unmeasured)
        self._magnification = float(self._rounding(self._weigh(self._signs * self._deviations))[0])
        self._precondition = self._preconditioner()
        start = np.asarray(getattr(self._observed, "offset", np.zeros(self._S.size)))[:, None]  # 0 without equalities
        self._of_offset = replace(info, exact=True, error_bound=0.0)
        constant, self._of_offset = self._estimate(np.zeros_like(self._deviations), start)
        self.offset = constant[:, 0]

    def _measure_noise(self, used: Flags) -> None:
        """Products with Sigma^-1, with Sigma of the cells kept, and how variances of those `used`, (n,), compare."""
        problem, squares = self.problem, self._deviations[:, 0] ** 2
        ratios = problem.variances[used] / squares[used]
        self._greatest, self._least = float(ratios.max(initial=1.0)), float(ratios.min(initial=1.0))
        # Size of a residual, over its length in the structured noise, that rounding alone may make:
        self._floor = ROUNDING * EPSILON * float(np.sqrt(self._greatest))
        if problem.is_correlated:
            kept = sparse.eye_array(squares.size, format="csr")[self._cells]
            self._weigh = _inverse_of_noise(problem)
            self._spread_noise = lambda R: kept @ (problem.noise @ (kept.T @ R))
            return
        variances = np.where(used, problem.variances, self._greatest * squares)[:, None]
        precisions = np.divide(1.0, variances, out=np.zeros_like(variances), where=used[:, None])
        own = variances[self._cells]
        self._weigh, self._spread_noise = lambda X: precisions * X, lambda R: own * R

    def _preconditioner(self) -> Product:
        """S of every cell, or, where two estimates a step are less work than twice the steps, P S f."""
        S, problem, moved = self._S, self.problem, self._S > 0
        has_all = self._cells.size == problem.observed.size
        if has_all and not (problem.is_correlated or problem.is_placed) and self._certain and moved.any():
            leverages = (self._observed.variances()[:, None] * self._inverse_S).clip(0, 1)
            if float(leverages[moved].mean()) >= LEAST_LEVERAGE:
                between = softened(S, self._weigh(S), leverages)
                return lambda R: self._observed.apply(between * R)
        return lambda R: S * R

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._estimate(Y, self._observed.apply(Y[self._cells]))

    def _estimate(self, Y: Float, start: Float) -> tuple[Float, Info]:
        """The desired cells, (m, K), of the BLUE from Y (n, K), from a consistent start that has all that is exact."""
        everywhere = self._everywhere.tabulate(start)
        away = Y - everywhere
        weighted = self._weigh(away)
        adjustment = np.sqrt(np.maximum(_products(away, weighted), 0.0))
        pull = self._transposed(self._everywhere.tabulate_transpose(weighted))
        rounding = self._rounding(self._weigh(self._signs * (abs(Y) + abs(everywhere))))
        aim = np.minimum(self._rtol * adjustment, self._most_error)
        X, sizes, iterations = self._solve(pull, np.maximum(aim, rounding))
        estimate = start + X
        info = replace(
            self.info,
            exact=float(sizes.max(initial=0.0)) <= EXACT_WITHIN and self._of_offset.exact,
            iterations=iterations,
            residual=float((sizes / np.maximum(self._sizes(pull), TINY)).max(initial=0.0)),
            violation=self._observed.apply_checked(estimate)[1],
            error_bound=float((sizes + rounding).max(initial=0.0)) + (self._of_offset.error_bound or 0.0)
            if self._certain
            else None,
        )
        return self._desired.tabulate(estimate), info

    def adjoint(self, V: Float) -> Float:
        return self._weights(V, self._rtol)

    def variances(self) -> Float:
        """By entries of an inverse where there are few equations, otherwise from the weights of every cell.

        A variance is known to `rtol` of itself.
        """
        problem, size = self.problem, self.problem.desired.size
        known = problem.noise.has_entries and not problem.recodes_cross and variance_spread(problem) <= WIDE_SPREAD
        if known and problem.observed.size <= MOST_CELLS and problem.rank <= MOST_EQUATIONS:
            return variances_by_selected_inversion(problem)
        rtol = HALF_THE_DIGITS * float(np.sqrt(self._rtol)) if self._certain else self._rtol
        weights = partial(self._weights, rtol=rtol)
        return variances_from_weights(problem.noise_covariance, np.arange(size), size, weights)

    def _weights(self, V: Float, rtol: float) -> Float:
        """Weights of the measurements in V' x, (n, K), to an error of every column of `rtol` of its standard error."""
        pulls = self._desired.tabulate_transpose(V)
        pull = self._transposed(pulls)
        deviations = self._deviations[self._cells]
        scaled = deviations * pulls
        nothing = self._nothing * np.maximum(_lengths(V), _lengths(pulls))
        known = np.minimum(_lengths(scaled), _lengths(deviations * pull)) <= nothing  # known exactly, but for rounding
        pull[:, known] = 0
        target = np.maximum(rtol * self._least_errors(pull), self._floor * _lengths(scaled))
        X, _, _ = self._solve(pull, target)
        weights = self._weigh(self._everywhere.tabulate(X))
        weights[self._cells] += self._observed.adjoint(pulls - self._everywhere.tabulate_transpose(weights))
        weights[self.problem.unmeasured] = 0
        weights[np.ix_(~self.problem.exact, known)] = 0
        return weights

    def _transposed(self, R: Float) -> Float:
        """P' R = S^-1 P S R, (kept, K)."""
        found = self._observed.apply(self._S * R)
        found *= self._inverse_S
        return found

    def _information(self, X: Float) -> Float:
        """P' B' Sigma^-1 B X, (kept, K)."""
        return self._transposed(self._everywhere.tabulate_transpose(self._weigh(self._everywhere.tabulate(X))))

    def _rounding(self, W: Float) -> Float:
        """Sizes, (K,), of the residuals that roundings of W (n, K) may make, W being Sigma^-1 times something."""
        return self._floor * _lengths(self._deviations * W)

    def _least_errors(self, pull: Float) -> Float:
        """Least standard errors of functionals, (K,): those of their estimates along P S `pull` alone."""
        along = self._S * pull
        squares = _products(pull, along)
        everywhere = self._everywhere.tabulate(along)
        precisions = _products(everywhere, self._weigh(everywhere))
        return np.divide(squares, np.sqrt(precisions), out=np.zeros_like(squares), where=precisions > 0)

    def _sizes(self, R: Float) -> Float:
        """The error, in units of the noise, that every column of residuals shows at most, (K,)."""
        return np.sqrt(np.maximum(_products(R, self._spread_noise(R)), 0.0))

    def _solve(self, pull: Float, target: Float) -> tuple[Float, Float, int]:
        """X in the range of P with P' Sigma^-1 X = `pull`, (kept, K); sizes of what is left, checked, (K,); iterations.

        What is left is at most twice `target`, or what Sigma^-1 makes of the rounding of X: where that is more, as
        little as corrections that help leave.
        """
        X, R, steps = np.zeros_like(pull), self._transposed(pull), 0
        badly = ROUNDING * self._sizes(R - pull)  # how well P is known: badly beside exact cells
        aim = allowed = np.maximum(target, badly)
        sizes = self._sizes(R)
        with one_blas_thread():
            for _ in range(SWEEPS):
                if (sizes <= aim).all():
                    break
                goal = np.maximum(aim, RESTART * sizes)
                most = steps if (sizes <= 2 * allowed).all() else self._max_iterations
                Z, taken, converged = conjugate_gradients(
                    self._information, R, self._precondition, lambda R, _: self._sizes(R), goal, most
                )
                steps += taken
                if not converged:
                    break
                corrected = self._observed.apply(X + Z)
                left = self._transposed(pull - self._information(corrected))
                shown = self._sizes(left)
                better = shown < sizes
                helped = bool(((shown < HELPED * sizes) & (sizes > aim)).any())
                X, R, sizes = np.where(better, corrected, X), np.where(better, left, R), np.minimum(shown, sizes)
                scaled = abs(X) * np.sqrt(self._inverse_S)
                allowed = np.maximum(aim, self._magnification * scaled.max(axis=0, initial=0.0))
                if not helped:
                    break
            if not (sizes <= 2 * allowed).all():
                raise ConvergenceError(self._advice(steps))
            if self._is_partial and steps:
                X, errors, more = self._corrected(X, pull, aim)
                sizes, steps = np.maximum(sizes, errors), steps + more
        return X, sizes, steps

    def _corrected(self, X: Float, pull: Float, aim: Float) -> tuple[Float, Float, int]:
        """X of `_solve`, (kept, K), with corrections as long as they help; its errors, (K,), in units of the noise.

        An error is as large as what corrects it. Where cells were not measured a residual shows less: by how little
        others tell of them; of those that nothing tells of there is none. Then the iterations of all corrections.
        """
        best, least, steps = X, np.full(X.shape[1], np.inf), 0
        for _ in range(SWEEPS):
            left = self._transposed(pull - self._information(X))
            goal = SHOWN * self._sizes(left)
            Z, taken, _ = conjugate_gradients(
                self._information, left, self._precondition, lambda R, _: self._sizes(R), goal, self._max_iterations
            )
            squares, steps = np.maximum(_products(left, Z), 0.0), steps + taken
            errors = np.sqrt(np.where(squares > UNTOLD * _products(Z, self._inverse_S * Z), squares, 0.0))
            helped = ((errors < HELPED * least) & (errors > aim)).any()
            best, least = np.where(errors < least, X, best), np.minimum(errors, least)
            if not helped:
                break
            X = self._observed.apply(X + Z)
        return best, least, steps

    def _advice(self, steps: int) -> str:
        spread = "the noise being correlated"
        if not self.problem.is_correlated:
            spread = f"variances within a table being in a ratio of up to {self._greatest / self._least:.3g}"
        return (
            f"cg did not reach rtol={self._rtol:g} in {steps} iterations with preconditioner='two_pass', "
            f"{spread}: try preconditioner='jacobi', more iterations, or solver='cholesky'"
        )


def softened(S: Float, D: Float, leverages: Float) -> Float:
    """S f, between the structured and the true variance of every cell; 0 where S is.

    Parameters
    ----------
    S, D : ndarray, (n, 1)
        Structured variances, and their ratios to the true ones.
    leverages : ndarray, (n, 1)
        Between 0 and 1.
    """
    others = (1 - leverages) / SHARPENED
    return np.divide(S * (leverages + others), leverages * D + others, out=np.zeros_like(S), where=S > 0)


def _inverse_of_noise(problem: Problem) -> Product:
    """Products with Sigma^-1 of correlated noise: a sparse covariance is factorised once."""
    if not problem.noise.has_entries:
        if solve := problem.noise.solve:
            return solve
        raise ValueError("the covariance is an operator without a method solve(V), its inverse times V: give one")
    inverse = 1 / np.sqrt(problem.variances)
    unscaled = sparse.diags_array(inverse)
    factor, inverse = factorise(sparse.csr_array(unscaled @ problem.noise.entries() @ unscaled)), inverse[:, None]
    return lambda X: inverse * factor.solve(inverse * X)


def _products(U: Float, V: Float) -> Float:
    """Scalar product of every pair of columns, (K,) from (n, K)."""
    return np.einsum("ij,ij->j", U, V)


def _lengths(R: Float) -> Float:
    """Norm of every column, (K,) from (n, K)."""
    return np.linalg.norm(R, axis=0)

"""The estimate under any noise, by iterations whose every step is an exact estimate under equal variances.

The nearest structured problem gives every table of every geounit one variance. Its estimate P0 is known in closed form,
or in two passes over a spine, and Q = s^-1 P0 s is an orthogonal projection, s the standard deviations of that problem.
With D = s Sigma^-1 s, for uncorrelated noise the ratios of the true precisions to its own, the estimate is P0 y + s z,
where

    Q D z = Q D s^-1 (y - P0 y),    z in the range of Q.

Conjugate gradients solve this with one Q and one D a step. Nothing else is needed: no constraint matrix, and every
iterate agrees with itself exactly. Q D Q has its eigenvalues between the least and the greatest of D, so the iterations
do not grow with the problem, and a residual r bounds what is missing: |r|^2 over the least eigenvalue is at least the
squared error in units of the noise, and by the Cauchy-Schwarz inequality no linear combination of cells misses its
estimate by more than |r| / sqrt(least eigenvalue) of its own standard errors.

Rounding takes z and r out of the range of Q, where D may be large. Both are projected before r is worked out afresh,
and the iterations begin again from there until it is small enough.

Where the structured problem does without some tables (`kept_tables`), z and Q are over the cells of the others, and D
becomes B' D B, B the sums that give all cells from these, in the scale of s.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.components import Components
from blue_solvers.components.corrections import Corrected
from blue_solvers.contract import ConvergenceError, Info, Prepared
from blue_solvers.normal_equations.krylov import conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING
from blue_solvers.structured.nearest import structure_of
from blue_solvers.structured.scaled_precision import scaled_precision
from constraint_builders import Problem
from constraint_builders.arrays import Float

SWEEPS = 6  # two or three are taken
RESTART = 1e-11  # of a residual: below it, rounding that leaves the range of Q would be all that is iterated on
HELPED = 0.5  # of a residual: a correction that leaves more met rounding
EXACT_WITHIN = 1e-8  # standard errors, beside rounding: an estimate that may be further off is not called exact
LEAST_ERROR = 1e-3  # of the least deviation: a functional of unit length that is not known is never known better
TINY = float(np.finfo(float).tiny)


class NearestStructuredEstimate(Prepared):
    """The BLUE through that of the nearest structured problem; see the module.

    Its `info.residual` is the size of what the data still pull at the estimate, relative to the start. Every iterate is
    consistent, so that `info.violation` is rounding only. `info.error_bound` includes the rounding of the data and what
    the offset lacks; it is None where tables were measured in part, what is missing then not being bounded by the ratio
    of variances, and where the covariance is an operator, of whose eigenvalues only an estimate is known.

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
        structure = structure_of(problem)
        self._desired, self._observed, self._kept = structure.desired, structure.observed, structure.kept
        noisy = (structure.variances > 0) & np.isfinite(structure.variances)
        deviations = np.sqrt(np.where(noisy, structure.variances, 0.0))
        self._cells = slice(None) if self._kept is None else self._kept.cells
        self._scale = deviations[:, None]
        self._inverse_scale = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=noisy)[:, None]
        self._deviations, self._inverse_deviations = self._scale[self._cells], self._inverse_scale[self._cells]
        least = deviations[noisy].min(initial=np.inf)
        self._nothing = min(ROUNDING * EPSILON * deviations.max(initial=0.0), LEAST_ERROR * least)
        self._precision = scaled_precision(problem, deviations)
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], (deviations.size, 1))
        self._magnification = float(_sizes(self._weighed(self._signs[self._cells]))[0])
        start = _offset(self._observed, self._deviations.size)
        self._of_offset = replace(info, exact=True, error_bound=0.0)
        constant, self._of_offset = self._estimate(np.zeros_like(self._scale), start)
        self.offset = (constant + _offset(self._desired, problem.desired.size))[:, 0]

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._estimate(Y, self._observed.apply(Y[self._cells]))

    def _estimate(self, Y: Float, start: Float) -> tuple[Float, Info]:
        """The desired cells of the BLUE from Y, from a consistent start that agrees with all that is exact."""
        everywhere = start if self._kept is None else self._kept.spread(start)
        away = self._inverse_scale * (Y - everywhere)
        weighted = self._precision.product(away)
        adjustment = np.sqrt(np.maximum(_products(away, weighted), 0.0))
        pull = self._project(self._gather(weighted))
        rounding = _sizes(self._precision.product(self._signs * self._inverse_scale * (abs(Y) + abs(everywhere))))
        aim = np.minimum(self._rtol * adjustment, self._most_error)
        Z, sizes, iterations = self._solve(pull, self._target(aim, rounding))
        estimate = start + self._deviations * Z
        unit = float(np.sqrt(self._precision.least))
        info = replace(
            self.info,
            exact=float(sizes.max(initial=0.0)) / unit <= EXACT_WITHIN and self._of_offset.exact,
            iterations=iterations,
            residual=float((sizes / np.maximum(_sizes(pull), TINY)).max(initial=0.0)),
            violation=self._desired.violation(estimate),
            error_bound=float((sizes + ROUNDING * EPSILON * rounding).max(initial=0.0)) / unit
            + (self._of_offset.error_bound or 0.0)
            if self._precision.certain
            else None,
        )
        return self._desired.apply(estimate), info

    def adjoint(self, V: Float) -> Float:
        pulls = self._desired.adjoint(V)
        scaled = self._deviations * pulls
        pull = self._project(scaled)
        rounding = self._nothing * np.maximum(_sizes(V), _sizes(pulls))
        known = np.minimum(_sizes(scaled), _sizes(pull)) <= rounding  # what is known exactly pulls with that alone
        pull[:, known] = 0
        Z, _, _ = self._solve(pull, self._target(self._rtol * self._least_errors(pull), _sizes(scaled)))
        weights = self._inverse_scale * self._precision.product(self._spread(Z))
        along = weights if self._kept is None else self._kept.gather(weights)
        weights[self._cells] += self._observed.adjoint(pulls - along)
        weights[self.problem.unmeasured] = 0
        weights[np.ix_(~self.problem.exact, known)] = 0
        return weights

    def _spread(self, Z: Float) -> Float:
        """B Z: all observed cells from the kept ones."""
        return Z if self._kept is None else self._inverse_scale * self._kept.spread(self._deviations * Z)

    def _gather(self, W: Float) -> Float:
        """B' W."""
        return W if self._kept is None else self._deviations * self._kept.gather(self._inverse_scale * W)

    def _weighed(self, Z: Float) -> Float:
        """B' D B Z."""
        return self._gather(self._precision.product(self._spread(Z)))

    def _target(self, size: Float, rounding: Float) -> Float:
        """Residuals that leave errors of `size`, or are as small as rounding permits."""
        return np.maximum(np.sqrt(self._precision.least) * size, ROUNDING * EPSILON * rounding)

    def _least_errors(self, along: Float) -> Float:
        """What the standard error of every functional s^-1 F is at least: that of its estimate along Q F alone."""
        squares = _products(along, along)
        precisions = _products(along, self._weighed(along))
        return np.divide(squares, np.sqrt(precisions), out=np.zeros_like(squares), where=precisions > 0)

    def _project(self, Z: Float) -> Float:
        """Q Z."""
        estimate = self._observed.apply(self._deviations * Z)
        estimate *= self._inverse_deviations
        return estimate

    def _product(self, Z: Float) -> Float:
        """Q B' D B Z."""
        return self._project(self._weighed(Z))

    def _solve(self, pull: Float, target: Float) -> tuple[Float, Float, int]:
        """Z in the range of Q with Q D Z = `pull`; what is left, checked afresh; iterations.

        What is left is at most twice `target`, or what D makes of the rounding of Z: where that is more, as little as
        corrections that help leave.
        """
        Z = np.zeros_like(pull)
        R = self._project(pull)
        aim = allowed = np.maximum(target, ROUNDING * _sizes(R - pull))  # how well Q is known: badly beside exact cells
        sizes = _sizes(R)
        steps = 0
        with one_blas_thread():
            for _ in range(SWEEPS):
                if (sizes <= aim).all():
                    break
                goal = np.maximum(aim, RESTART * sizes)
                most = steps if (sizes <= 2 * allowed).all() else self._max_iterations
                correction, iterations, converged = conjugate_gradients(
                    self._product, R, lambda R: R, lambda R, _: _sizes(R), goal, most
                )
                steps += iterations
                if not converged:
                    break
                # Rounding takes it out of the range of Q, where D may be large.
                corrected = self._project(Z + correction)
                left = self._project(pull - self._product(corrected))
                better = _sizes(left) < sizes
                Z, R = np.where(better, corrected, Z), np.where(better, left, R)
                allowed = np.maximum(aim, ROUNDING * EPSILON * self._magnification * abs(Z).max(axis=0))
                helped = (_sizes(R) < HELPED * sizes) & (sizes > aim)
                sizes = _sizes(R)
                if not helped.any():
                    break
        if not (sizes <= 2 * allowed).all():
            raise ConvergenceError(self._advice(steps))
        return Z, sizes, steps

    def _advice(self, steps: int) -> str:
        return (
            f"cg did not reach rtol={self._rtol:g} in {steps} iterations with preconditioner='two_pass', "
            f"{self._precision.spread}: try preconditioner='jacobi', more iterations, or solver='cholesky'"
        )


def _offset(form: Components, size: int) -> Float:
    """Constant part of an exact estimate, (size, 1): zero without equalities."""
    return form.offset[:, None] if isinstance(form, Corrected) else np.zeros((size, 1))


def _products(U: Float, V: Float) -> Float:
    """Scalar product of every pair of columns."""
    return np.einsum("ij,ij->j", U, V)


def _sizes(R: Float) -> Float:
    """Norm of every column."""
    return np.linalg.norm(R, axis=0)

"""The estimate under any noise, by iterations whose every step is an exact estimate under equal variances.

The nearest structured problem gives every table of every geounit one variance. Its estimate P0 is known in closed form,
or in two passes over a spine, and Q = s^-1 P0 s is an orthogonal projection, s the standard deviations of that problem.
With D = s Sigma^-1 s, for uncorrelated noise the ratios of the true precisions to its own, the estimate is P0 y + s z,
where

    Q D z = Q D s^-1 (y - P0 y),    z in the range of Q.

Conjugate gradients solve this with one Q and one D a step, or with one Q and one inverse of D on the multipliers of
the estimate, whichever is done sooner (`ways`). Where noise is uncorrelated, and at one place, one more Q a step
preconditions them and halves the steps (`softened_steps`). Nothing else is needed: no constraint matrix, and every
estimate agrees with itself exactly. Q D Q has its eigenvalues between the least and the greatest of D, so the
iterations do not grow with the problem, and a residual r bounds what is missing: r' D^-1 r is at least the squared
error in units of the noise, and by the Cauchy-Schwarz inequality no linear combination of cells misses its estimate by
more than the root of that of its own standard errors. Whatever way found an estimate, its residual is worked out
afresh.

Rounding takes z and r out of the range of Q, where D may be large. Both are projected before r is worked out afresh,
and the iterations begin again from there until it is small enough.

Where the structured problem does without some tables (`kept_tables`), z and Q are over the cells of the others, and D
becomes B' D B, B the sums that give all cells from these, in the scale of s. Its inverse is not known: the bound is
|r| over the root of the least eigenvalue of D, which is never smaller.

Of weights with the residual r the variance is too large by r' D^-1 r at most, so that variances take half the digits of
the weights: half the iterations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blue_solvers.blas_threads import one_blas_thread
from blue_solvers.components import Components
from blue_solvers.components.corrections import Corrected
from blue_solvers.contract import ConvergenceError, Info, Prepared, variances_from_weights
from blue_solvers.normal_equations.cell_variances import variances_by_selected_inversion
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING, variance_spread
from blue_solvers.structured.nearest import Structure, serves_both_ways, structure_of
from blue_solvers.structured.scaled_precision import scaled_precision
from blue_solvers.structured.softened_steps import SoftenedSteps, softened_steps
from blue_solvers.structured.ways import (
    Way,
    gaps_in,
    multipliers_are_sooner,
    on_estimate,
    on_multipliers,
    sizes_in,
)
from constraint_builders import Problem
from constraint_builders.arrays import Float

SWEEPS = 6  # two or three are taken
RESTART = 1e-11  # of a residual: below it, rounding that leaves the range of Q would be all that is iterated on
HELPED = 0.5  # of a residual: a correction that leaves more met rounding
EXACT_WITHIN = 1e-8  # standard errors, beside rounding: an estimate that may be further off is not called exact
LEAST_ERROR = 1e-3  # of the least deviation: a functional of unit length that is not known is never known better
HALF_THE_DIGITS = 0.5  # of the root of a tolerance, what is left being at most twice what is asked for
MOST_CELLS, MOST_EQUATIONS = 20_000, 5_000  # that a factorisation takes in seconds, where iterations take minutes
WIDEST_SPREAD = 1e8  # of variances, up to which the squares in A Sigma A' keep the digits of every cell
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
        self._around(structure_of(problem))
        multipliers = self._multipliers()
        if multipliers is not None:
            trial = np.random.default_rng(1).standard_normal(self._scale.shape)
            pull = self._project(self._weighed(trial))
            if multipliers_are_sooner(self._way, multipliers, pull, self._precision.ratio, self._projections()):
                if not serves_both_ways(problem):
                    self._around(structure_of(problem, of_multipliers=True))
                self._sooner = self._multipliers() or self._way
                self.info = replace(info, reason=f"{info.reason}, on its multipliers")
        start = _offset(self._observed, self._deviations.size)
        self._of_offset = replace(info, exact=True, error_bound=0.0)
        constant, self._of_offset = self._estimate(np.zeros_like(self._scale), start)
        self.offset = (constant + _offset(self._desired, problem.desired.size))[:, 0]

    def _around(self, structure: Structure) -> None:
        """Iterate around this structured problem, on the estimate."""
        self._desired, self._observed, self._kept = structure.desired, structure.observed, structure.kept
        noisy = (structure.variances > 0) & np.isfinite(structure.variances)
        deviations = np.sqrt(np.where(noisy, structure.variances, 0.0))
        self._cells = slice(None) if self._kept is None else self._kept.cells
        self._scale = deviations[:, None]
        self._inverse_scale = np.divide(1.0, deviations, out=np.zeros_like(deviations), where=noisy)[:, None]
        self._deviations, self._inverse_deviations = self._scale[self._cells], self._inverse_scale[self._cells]
        least = deviations[noisy].min(initial=np.inf)
        self._nothing = min(ROUNDING * EPSILON * deviations.max(initial=0.0), LEAST_ERROR * least)
        self._precision = scaled_precision(self.problem, deviations)
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], (deviations.size, 1))
        self._magnification = float(_lengths(self._weighed(self._signs[self._cells]))[0])
        self._softened = self._softened_steps(structure)
        whole = self._kept is None
        self._way = on_estimate(self._project, self._weighed, self._precision, whole, self._softened[0])
        self._sooner = self._way

    def apply(self, Y: Float) -> tuple[Float, Info]:
        return self._estimate(Y, self._observed.apply(Y[self._cells]))

    def _estimate(self, Y: Float, start: Float) -> tuple[Float, Info]:
        """The desired cells of the BLUE from Y, from a consistent start that agrees with all that is exact."""
        everywhere = start if self._kept is None else self._kept.spread(start)
        away = self._inverse_scale * (Y - everywhere)
        weighted = self._precision.product(away)
        adjustment = np.sqrt(np.maximum(_products(away, weighted), 0.0))
        pull = self._project(self._gather(weighted))
        rounding = _lengths(self._precision.product(self._signs * self._inverse_scale * (abs(Y) + abs(everywhere))))
        aim = np.minimum(self._rtol * adjustment, self._most_error)
        Z, sizes, iterations = self._solve(pull, self._target(aim, rounding), weighted)
        estimate = start + self._deviations * Z
        unit = float(np.sqrt(self._precision.least))
        info = replace(
            self.info,
            exact=float(sizes.max(initial=0.0)) / unit <= EXACT_WITHIN and self._of_offset.exact,
            iterations=iterations,
            residual=float((sizes / np.maximum(self._sizes(pull), TINY)).max(initial=0.0)),
            violation=self._desired.violation(estimate),
            error_bound=float((sizes + ROUNDING * EPSILON * rounding).max(initial=0.0)) / unit
            + (self._of_offset.error_bound or 0.0)
            if self._precision.certain
            else None,
        )
        return self._desired.apply(estimate), info

    def adjoint(self, V: Float) -> Float:
        return self._weights(V, self._rtol)

    def variances(self) -> Float:
        """By entries of an inverse where there are few equations, otherwise from the weights of every cell.

        A variance is known to `rtol` of itself.
        """
        if self._has_few_equations():
            return variances_by_selected_inversion(self.problem)
        rtol = HALF_THE_DIGITS * float(np.sqrt(self._rtol)) if self._precision.certain else self._rtol
        return variances_from_weights(self.problem, lambda V: self._weights(V, rtol))

    def _has_few_equations(self) -> bool:
        problem = self.problem
        known = problem.noise.has_entries and variance_spread(problem) <= WIDEST_SPREAD
        if not known or problem.recodes_cross or problem.observed.size > MOST_CELLS:
            return False
        return problem.rank <= MOST_EQUATIONS

    def _weights(self, V: Float, rtol: float) -> Float:
        """P' V, to an error of every column of `rtol` of its standard error."""
        pulls = self._desired.adjoint(V)
        scaled = self._deviations * pulls
        pull = self._project(scaled)
        rounding = self._nothing * np.maximum(_lengths(V), _lengths(pulls))
        known = np.minimum(_lengths(scaled), _lengths(pull)) <= rounding  # what is known exactly pulls with that alone
        pull[:, known] = 0
        Z, _, _ = self._solve(pull, self._target(rtol * self._least_errors(pull), _lengths(scaled)))
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

    def _sizes(self, R: Float) -> Float:
        """Of every column of residuals the error that it shows; see `sizes_in`."""
        return sizes_in(self._precision, R, self._kept is None)

    def _project(self, Z: Float) -> Float:
        """Q Z."""
        estimate = self._observed.apply(self._deviations * Z)
        estimate *= self._inverse_deviations
        return estimate

    def _product(self, Z: Float) -> Float:
        """Q B' D B Z."""
        return self._project(self._weighed(Z))

    def _solve(self, pull: Float, target: Float, raw: Float | None = None) -> tuple[Float, Float, int]:
        """Z in the range of Q with Q D Z = `pull`; what is left, checked afresh; iterations.

        Of estimates, whose `pull` is the projection of `raw`, what multipliers show may stand for the residual; of
        weights it must itself be small.

        What is left is at most twice `target`, or what D makes of the rounding of Z: where that is more, as little as
        corrections that help leave.
        """
        Z = np.zeros_like(pull)
        R = self._project(pull)
        badly = ROUNDING * _lengths(R - pull)  # how well Q is known: badly beside exact cells
        aim = allowed = np.maximum(target, badly)
        sizes = self._sizes(R)
        steps = 0
        way = self._sooner
        with one_blas_thread():
            for _ in range(SWEEPS):
                if (sizes <= aim).all():
                    break
                goal = np.maximum(aim, RESTART * sizes)
                enough = bool((sizes <= 2 * allowed).all())
                found = way(R, goal, steps if enough else self._max_iterations, None if steps else raw)
                steps += found.steps
                helped = False
                if found.converged:
                    # Rounding takes it out of the range of Q, where D may be large.
                    corrected = self._project(Z + found.Z)
                    left = self._project(pull - self._product(corrected))
                    shown = self._sizes(left)
                    if found.W is not None and raw is not None:
                        shown = np.minimum(shown, self._gaps(pull, corrected, found.W - self._weighed(Z)))
                    better = shown < sizes
                    helped = bool(((shown < HELPED * sizes) & (sizes > aim)).any())
                    Z, R, sizes = np.where(better, corrected, Z), np.where(better, left, R), np.minimum(shown, sizes)
                    allowed = np.maximum(aim, ROUNDING * EPSILON * self._magnification * abs(Z).max(axis=0))
                if helped:
                    continue
                if way is self._way or enough:
                    break
                way = self._way  # rounding costs the multipliers more where variances differ by many decades
        if not (sizes <= 2 * allowed).all():
            raise ConvergenceError(self._advice(steps))
        return Z, sizes, steps

    def _multipliers(self) -> Way | None:
        """The way on multipliers, where the inverse of D is known and no tables are left out."""
        inverse = self._precision.inverse if self._kept is None else None
        return None if inverse is None else on_multipliers(self._project, self._precision, inverse, self._softened[1])

    def _softened_steps(self, structure: Structure) -> tuple[SoftenedSteps | None, SoftenedSteps | None]:
        """On the estimate and on its multipliers, of uncorrelated noise at one place.

        Over a spine they save less than the two passes cost: Rhode Island takes 0.7 to 0.8 of the steps in ratio 100
        and 10^4, 1.0 to 1.4 of the time.
        """
        D = self._precision.diagonal
        if D is None or self._kept is not None or self.problem.places is not None:
            return None, None
        squares, variances = self._scale**2, structure.observed.variances()[:, None]
        leverages = np.divide(variances, squares, out=np.zeros_like(squares), where=squares > 0).clip(0, 1)
        apply, least = self._observed.apply, self._precision.least
        estimate = softened_steps(apply, D, leverages, self._scale, least, of_multipliers=False)
        return estimate, softened_steps(apply, D, leverages, self._scale, least, of_multipliers=True)

    def _projections(self) -> tuple[int, int]:
        """How many a step takes, on the estimate and on its multipliers."""
        estimate, multipliers = (1 if steps is None else 2 for steps in self._softened)
        return estimate, multipliers

    def _gaps(self, pull: Float, Z: Float, W: Float) -> Float:
        """What multipliers W show of the errors of Z; of what D Z weighs cells with they show nothing."""
        return gaps_in(self._precision, Z, W - self._project(W), pull)

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


def _lengths(R: Float) -> Float:
    """Norm of every column."""
    return np.linalg.norm(R, axis=0)

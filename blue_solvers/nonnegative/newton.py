"""Dual semismooth Newton: one multiplier for every coarse row, the cells eliminated.

For multipliers ``lam`` the cells are ``x = clip(target - M' lam / weight, lower, upper)`` and the rows
``z = answer + variance lam``. The dual function is convex, once differentiable
and piecewise quadratic, with gradient ``-(M x - z)``. A full Newton step is a weighted least-squares (BLUE) solve with
the cells that sit on a bound removed; it is damped by a line search on the dual function.

Its matrix is ``M_F diag(1 / weight_F) M_F' + diag(variance)`` for the free cells F. Rows that are held exactly and
repeat one another, if only at the free cells of the moment, make it singular. Their diagonal is raised by a fraction of
itself, the residual relative to the largest count: that bounds the step and vanishes with the residual (Levenberg and
Marquardt).

References
----------
Li, Sun and Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving Lasso problems", SIAM J.
Optim. 28 (2018), for the method; Hager and Zhang, SIAM J. Optim. 16 (2005), for the approximate Wolfe conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, cg

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.nonnegative.quadratic_program import NotConvergedError, QuadraticProgram, Solution
from blue_solvers.normal_equations.factorisation import factorise
from constraint_builders.arrays import Flags, Float

EPSILON = float(np.finfo(float).eps)
TARGET = 1e-13  # residual of the rows at which the steps end, relative to the largest count
EXACT_TARGET = (
    1e-14  # where some are held exactly: what these miss costs their prices, and one more step less than proofs
)
ACCEPTED = 1e-9  # relative residual below which steps that no longer halve it are rounding
MAX_STEPS = 200
MAX_HALVINGS = 60

# Line search, on the dual function and its slope along the step.
SUFFICIENT_DECREASE = 1e-4
FLATTENED = 0.8
AS_STEEP = 0.9

# Diagonal of rows held exactly, relative to itself; and how much less a row gets that no free cell moves.
LEAST_SHIFT = 1e-12
LARGEST_SHIFT = 1e-3
RELAXED = 0.25

DENSE_ROWS = 1500
SPARSE_ENTRIES_PER_ROW = 40  # above this the factors fill in
COUNTED_PAIRS, FEW_PAIRS = 1e8, 1e6
CG_STEPS = 2000
CG_ACCURACY = 1e-1  # relative, of a step far from the solution; then it tightens, but not beyond need


@dataclass(frozen=True)
class State:
    """The dual function at some multipliers.

    Attributes
    ----------
    multipliers : ndarray, (m,)
    cells : ndarray, (d,)
    free : ndarray of bool, (d,)
        Cells off their bounds.
    residual : ndarray, (m,)
        M x - z: minus the gradient.
    value : float
    rounding : float
        How far rounding may have moved `value`.
    """

    multipliers: Float
    cells: Float
    free: Flags
    residual: Float
    value: float
    rounding: float

    @cached_property
    def error(self) -> float:
        """Largest residual, in counts."""
        return float(abs(self.residual).max(initial=0.0))


def minimise(p: QuadraticProgram, start: Float | None = None, most: int = MAX_STEPS) -> Solution:
    """Solve a program whose cell weights are all positive.

    Parameters
    ----------
    p : QuadraticProgram
    start : ndarray, (m,), optional
        First multipliers, by default zero.
    most : int
        Steps.

    Returns
    -------
    Solution

    Raises
    ------
    NotConvergedError
        If the residual stays above 1e-9 of the largest count, as it does when no cells within their bounds meet the
        exact rows.
    """
    solution, error = descend(p, np.zeros(p.answer.size) if start is None else start, most)
    if not error <= ACCEPTED * p.scale:
        raise NotConvergedError(
            f"no fit after {solution.iterations} Newton steps: rows are off by {error:.3g}. If some tables are known "
            "exactly, check that non-negative cells can meet them all; otherwise please report the problem"
        )
    return solution


@np.errstate(over="ignore", invalid="ignore")  # of steps that are shortened then
def descend(p: QuadraticProgram, start: Float, most: int = MAX_STEPS) -> tuple[Solution, float]:
    """The best point of so many Newton steps at most from multipliers, (m,), and its largest residual, in counts.

    By weak duality no cells meet the rows where the dual function passes all that the objective could be.
    """
    state = best = evaluate(p, start)
    system = NewtonSystem(p)
    steps, scale, target = 0, p.scale, EXACT_TARGET if (p.variance == 0).any() else TARGET
    while state.error > target * scale and steps < most and -state.value - state.rounding <= p.most:
        previous = state
        state = _line_search(p, state, system.direction(state))
        steps += 1
        best = state if state.error < best.error else best
        if previous.error <= ACCEPTED * scale and state.error > 0.5 * previous.error:
            break
    return Solution(best.cells, best.multipliers, steps), best.error


def evaluate(p: QuadraticProgram, multipliers: Float) -> State:
    """The dual function at multipliers, (rows,), of a program whose cell weights are all positive."""
    pull = p.transposed @ multipliers
    unbounded = p.target - pull / p.weight
    cells = np.minimum(np.maximum(unbounded, p.lower), p.upper)
    deviation = p.variance * multipliers
    of_cells = 0.5 * p.weight * (cells - p.target) ** 2 + pull * cells
    of_rows = multipliers * (p.answer + 0.5 * deviation)
    return State(
        multipliers,
        cells,
        (p.lower < unbounded) & (unbounded < p.upper),
        p.products @ cells - p.answer - deviation,
        float(of_rows.sum() - of_cells.sum()),
        10 * EPSILON * float(abs(of_rows).sum() + abs(of_cells).sum()),
    )


def _line_search(p: QuadraticProgram, state: State, direction: Float) -> State:
    """The first acceptable point along a direction, (m,): by bisection on the slope of the dual function.

    A point is acceptable that is low and flat enough, by the approximate Wolfe conditions. Where the function stays as
    steep the step is doubled: rows held exactly are flat while their cells sit on bounds.
    """
    slope = -float(state.residual @ direction)
    low, high, length = 0.0, np.inf, 1.0
    trial, rough = state, state.error > ACCEPTED * p.scale
    for _ in range(MAX_HALVINGS):
        trial = evaluate(p, state.multipliers + length * direction)
        trial_slope = -float(trial.residual @ direction)
        decreased = trial.value <= state.value + SUFFICIENT_DECREASE * length * slope
        flattened = trial.value <= state.value + state.rounding and trial_slope <= FLATTENED * abs(slope)
        if (decreased or flattened) and not (rough and trial_slope <= AS_STEEP * slope):
            break
        low, high = (length, high) if trial_slope < 0 else (low, length)
        length = 0.5 * (low + high) if high < np.inf else 2 * low
    return trial


class NewtonSystem:
    """The linear systems of the Newton steps of one program, at changing sets of free cells.

    Parameters
    ----------
    program : QuadraticProgram
    solve : callable, optional
        `dense`, `factored` or `iterated`; by default what is least work for the program.
    """

    def __init__(self, program: QuadraticProgram, solve: LinearSolve | None = None) -> None:
        self._program, self._linear_solve = program, solve or _linear_solve(program)
        guard = self._diagonal(program.upper > program.lower)
        self._guard = np.where(guard > 0, guard, 1.0)

    def direction(self, state: State) -> Float:
        """The Newton direction, (m,): the matrix's inverse times the residual of `state`."""
        return self._linear_solve(self._program, state, self._added_diagonal(state))

    def _diagonal(self, free: Flags) -> Float:
        """The diagonal of M_F diag(1 / weight_F) M_F', (rows,), of free cells, (cells,)."""
        return np.asarray(self._program.squares @ np.where(free, 1 / self._program.weight, 0.0))

    def _added_diagonal(self, state: State) -> Float:
        """What is added to ``M_F diag(1 / weight_F) M_F'``.

        A row held exactly whose cells all sit on bounds would have nothing on its diagonal: it gets what it would have
        with all its cells free, and less every time that it is found so without being met.
        """
        variance, scale = self._program.variance, self._program.scale
        diagonal = self._diagonal(state.free) + variance
        shift = np.minimum(LARGEST_SHIFT, np.maximum(LEAST_SHIFT, state.error / scale))
        relative = np.where(variance > 0, LEAST_SHIFT, shift)
        added = variance + np.where(diagonal > 0, relative * diagonal, self._guard)
        self._guard[(diagonal == 0) & (abs(state.residual) > ACCEPTED * scale)] *= RELAXED
        return added


LinearSolve = Callable[[QuadraticProgram, State, Float], Float]


def dense(p: QuadraticProgram, state: State, added: Float) -> Float:
    """The Newton direction, (rows,), by a Cholesky factorisation of the dense matrix of rows that free cells meet."""
    if isinstance(p.products, np.ndarray):
        rows = p.products[:, state.free]
        matrix = (rows / p.weight[state.free]) @ rows.T
    else:
        matrix = _gram(p, state).toarray()
    met, direction = np.flatnonzero(matrix.diagonal()), state.residual / added
    if not met.size:
        return direction
    if met.size < added.size:
        matrix = matrix[np.ix_(met, met)]
    matrix.flat[:: met.size + 1] += added[met]
    _, direction[met], failed = linalg.lapack.dposv(matrix.T, state.residual[met], lower=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the matrix of a Newton step is not positive definite")
    return direction


def factored(p: QuadraticProgram, state: State, added: Float) -> Float:
    """The Newton direction, (rows,), by a sparse factorisation, for rows that nest as those of a tree do."""
    matrix = p.grams.matrix(np.where(state.free, 1 / p.weight, 0.0), added)
    try:
        return factorise(matrix, kept=p.grams.order).solve(state.residual)
    except UnsupportedProblemError as indefinite:
        raise np.linalg.LinAlgError("the matrix of a Newton step is not positive definite") from indefinite


def iterated(p: QuadraticProgram, state: State, added: Float) -> Float:
    """The Newton direction, (rows,), by conjugate gradients; no matrix is formed.

    The preconditioner is the inverse for evenly spread free cells where the rows are tables, else the diagonal.
    """
    inverse = np.where(state.free, 1 / p.weight, 0.0)
    needed = 0.1 * TARGET * p.scale / state.error
    if p.tables is None:
        precondition: Callable[[Float], Float] = partial(np.multiply, 1 / (p.squares @ inverse + added))
    else:
        free = state.free if state.free.any() else np.ones_like(state.free)
        precondition = p.tables.inverse(p.variance, float(p.weight[free].mean() / free.mean()))
    shape = (added.size, added.size)
    products, transposed = p.products, p.transposed
    return cg(
        LinearOperator(shape, matvec=lambda v: products @ (inverse * (transposed @ v)) + added * v, dtype=float),
        state.residual,
        rtol=min(CG_ACCURACY, max(needed, state.error / p.scale)),
        maxiter=CG_STEPS,
        M=LinearOperator(shape, matvec=precondition, dtype=float),
    )[0]


def _gram(p: QuadraticProgram, state: State) -> sparse.csc_array:
    rows = p.M[:, np.flatnonzero(state.free)]
    rows.data *= np.repeat(p.weight[state.free] ** -0.5, np.diff(rows.indptr))
    return rows @ rows.T


def _linear_solve(p: QuadraticProgram) -> LinearSolve:
    """Judged by the rows and how many pairs of them meet."""
    rows = p.variance.size
    if isinstance(p.products, np.ndarray):
        return dense
    if p.tables is not None:
        return iterated
    pairs = float((np.diff(p.M.indptr).astype(float) ** 2).sum())
    meeting = np.inf
    if pairs <= COUNTED_PAIRS:
        meeting = p.grams.places.size if pairs <= FEW_PAIRS else p.once("pairs", lambda: (abs(p.M) @ abs(p.M).T).nnz)
    if meeting <= SPARSE_ENTRIES_PER_ROW * rows and rows > SPARSE_ENTRIES_PER_ROW:
        return factored
    return dense if rows <= DENSE_ROWS else iterated

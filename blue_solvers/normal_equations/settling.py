"""The last digits of equations whose noise is of many sizes, in counts instead of standard deviations.

In units of its noise an equation of much noise is as good as solved while it is off by many roundings of the figures.
Cells that such equations determine by what is known exactly have no standard error by which that would be small.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.contract import ConvergenceError
from blue_solvers.normal_equations.krylov import conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import EPSILON, Equations, NormalSolver, largest_of_columns
from constraint_builders.arrays import Float

ROUNDS = 6
SETTLED = 4.0  # roundings of a row's terms, and of the largest value, that it may be off by
CONTRADICTIONS = (1.0, 4.0, 16.0)  # the same by which values that are known exactly contradict one another
AT_ONCE = 1e-8  # of what rows are off by: as far as one solution goes, the next begins there
LESS_AT_ONCE = 1e3  # times that, where contradictions between values that are known exactly are more
ITERATIONS = 1_000  # towards any solution, with equal weights


class Settling:
    """Moves what nearly solves A x = b to where every row holds to rounding, along Sigma A' only.

    Parameters
    ----------
    equations : Equations
    solver : NormalSolver
    """

    def __init__(self, equations: Equations, solver: NormalSolver) -> None:
        self._equations, self._solver = equations, solver

    @cached_property
    def _moving(self) -> sparse.csr_array:
        """A over the cells that do not stay as they are."""
        return sparse.csr_array(self._equations.A @ sparse.diags_array(self._equations.moving.astype(float)))

    @cached_property
    def _transposed(self) -> sparse.csr_array:
        return self._moving.T.tocsr()

    @cached_property
    def _inverse_squares(self) -> Float:
        squares = np.asarray(self._moving.power(2).sum(axis=1))[:, None]
        return np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)

    def settle(self, X: Float, R: Float, b: Float) -> tuple[Float, Float, int]:
        """Settled cells, their rows, and iterations.

        Nothing is done where every row is off by roundings of the largest value at most.

        Parameters
        ----------
        X : ndarray, (n, K)
        R : ndarray, (m, K)
            A X - b, as float64 has it.
        b : ndarray, (m, 1)
        """
        equations = self._equations
        largest = np.maximum(largest_of_columns(X), abs(b).max(initial=0.0))
        if (largest_of_columns(R) <= SETTLED * EPSILON * largest).all():
            return X, R, 0
        terms = equations.absolute @ abs(X) + abs(b)
        allowed = np.maximum(EPSILON * np.maximum(terms, largest), np.finfo(float).tiny)
        steps, beyond, share = 0, _beyond(R, allowed), AT_ONCE
        for _ in range(ROUNDS):
            if (beyond <= SETTLED).all():
                break
            try:
                settled, iterations = self._settled(X, b, allowed, np.maximum(1.0, share * beyond))
            except ConvergenceError:
                settled, iterations = X, 0
            steps += iterations
            left = _beyond(self._off(settled, b), allowed)
            better = left < beyond
            if not better.any():
                if (share * beyond <= 1).all():
                    break
                share *= LESS_AT_ONCE
            X, beyond = np.where(better, settled, X), np.where(better, left, beyond)
        return X, equations.A @ X - b, steps

    def _off(self, X: Float, b: Float) -> Float:
        """A X - b, whose rounding would be in the range of nothing."""
        return np.asarray(self._equations.extended @ X.astype(np.longdouble) - b, dtype=float)

    def _settled(self, X: Float, b: Float, allowed: Float, target: Float) -> tuple[Float, int]:
        """The solutions of A x = A g that are nearest to X, where g is any solution of A x = b, as near as there is."""
        off = self._off(X, b)

        def sizes(R: Float, columns: NDArray[np.intp]) -> Float:
            return _beyond(R, allowed[:, columns])

        steps = 0
        for multiple in CONTRADICTIONS:
            Z, iterations, converged = conjugate_gradients(
                lambda Z: self._moving @ (self._transposed @ Z),
                off,
                lambda R: self._inverse_squares * R,
                sizes,
                multiple * target,
                ITERATIONS,
            )
            steps += iterations
            if converged:
                break
        else:
            raise ConvergenceError
        apart = self._off(self._transposed @ Z, np.zeros_like(b))
        Z, iterations = self._solver.iterate(apart, sizes, target)
        return X - self._equations.moved_by(Z), steps + iterations


def _beyond(R: Float, allowed: Float) -> Float:
    """By how much the worst row of every column exceeds what is allowed."""
    return largest_of_columns(R / allowed)

"""Projections of equations whose weights and variances are so unequal that float64 does not hold what solves them.

The factor stays in float64. Cells are held in extended precision, and so is what is left of the equations: every sweep
then gains as many digits as the factor has, until rounding of the extended numbers is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.contract import UnsupportedProblemError
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING, Equations, NormalSolver, largest_of_columns
from constraint_builders.arrays import Float

SWEEPS = 60  # enough for what gains least
PROBES = 4
GAIN = 0.5  # of what is left, that a sweep may leave: a factor that leaves more has lost its digits
Long = NDArray[np.longdouble]


class ExtendedSweeps:
    """Projections in extended precision, by a direct solver of A Sigma A'.

    Parameters
    ----------
    equations : Equations
        Whose Sigma has entries.
    solver : NormalSolver

    Raises
    ------
    UnsupportedProblemError
        If the factor has too few digits for sweeps to gain any.
    """

    def __init__(self, equations: Equations, solver: NormalSolver) -> None:
        self._equations, self._solver = equations, solver
        self._require_gain()

    @cached_property
    def _transposed(self) -> sparse.csr_array:
        return self._equations.A_transposed.astype(np.longdouble)

    @cached_property
    def _Sigma(self) -> sparse.csr_array:
        return self._equations.entries().astype(np.longdouble)

    def project(self, Y: Float, b: Float) -> tuple[Float, NDArray[np.bool_]]:
        """Cells X with A X = b, (n, K), and for every column whether the last sweep moved roundings only."""
        A = self._equations.extended
        X, _, settled = self._swept(Y.astype(np.longdouble), lambda X: A @ X - b, self._moved_by, b)
        return X, settled

    def adjoint(self, U: Float) -> Float:
        """U - A' (A Sigma A')^-1 A Sigma U; without weight of moving cells where all of that is rounding."""
        A, nothing = self._equations.extended, np.zeros((self._equations.A.shape[0], 1))
        W, Z, _ = self._swept(
            U.astype(np.longdouble), lambda W: A @ (self._Sigma @ W), lambda Z: self._transposed @ Z, nothing
        )
        terms = abs(U) + abs(self._transposed) @ abs(Z)
        moving = self._equations.moving
        deviations = np.sqrt(self._Sigma.diagonal()[moving, None])
        noise, rounded = (np.linalg.norm((deviations * own[moving]).astype(float), axis=0) for own in (W, terms))
        return np.where((noise <= EPSILON * rounded) & moving[:, None], 0.0, W)

    def _moved_by(self, Z: Long) -> Long:
        return self._Sigma @ (self._transposed @ Z)

    def _swept(
        self, Y: Long, residual: Callable[[Long], Long], moved_by: Callable[[Long], Long], b: Float
    ) -> tuple[Float, Long, NDArray[np.bool_]]:
        """Y less what Z moves, Z, and for every column whether the last sweep moved roundings only."""
        X, Z = Y, np.zeros((self._equations.A.shape[0], Y.shape[1]), dtype=np.longdouble)
        largest = np.maximum(largest_of_columns(Y.astype(float)), abs(b).max(initial=0.0))
        before = np.full(Y.shape[1], np.inf)
        for _ in range(SWEEPS):
            change = self._solver.solve(residual(X).astype(float), np.zeros(Y.shape[1]))[0].astype(np.longdouble)
            moved = moved_by(change)
            X, Z = X - moved, Z + change
            step = largest_of_columns(moved.astype(float))
            if (step <= EPSILON**2 * largest).all() or not (step < before).any():
                break
            before = step
        return X.astype(float), Z, step <= ROUNDING * EPSILON * largest

    def _require_gain(self) -> None:
        """Refuse a factor by which what is left of any right-hand side does not become much less with every sweep."""
        deviations = self._equations.deviations[:, None]
        R = np.random.default_rng(0).standard_normal(deviations.shape) * deviations
        Z = self._solver.solve(R, np.zeros(1))[0].astype(np.longdouble)
        size = self._size(Z)
        for _ in range(PROBES):
            R = R - self._equations.extended @ self._moved_by(Z)
            Z = self._solver.solve(R.astype(float), np.zeros(1))[0].astype(np.longdouble)
            before, size = size, self._size(Z)
            if not size <= GAIN * before:
                raise UnsupportedProblemError(
                    "its variances, with the weights of areas and equalities, are so unequal that rounding would "
                    "decide what is known well: give weights and variances nearer to one another"
                )

    def _size(self, Z: Long) -> float:
        """In units of the noise of the equations."""
        return float(np.linalg.norm(Z.astype(float) * self._equations.deviations[:, None]))

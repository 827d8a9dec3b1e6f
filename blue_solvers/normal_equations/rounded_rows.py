"""Equations whose coefficients were rounded when cells were eliminated: whether that moves what solves them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from blue_solvers.contract import ConvergenceError
from blue_solvers.normal_equations.column_maxima import largest_of_columns
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING, Equations, NormalSolver
from constraint_builders.arrays import Float

PROBES = 4
NEAR = 1e-3  # of what is asked, which a solver that iterates leaves
FEW_BITS = 40  # of a coefficient that nobody rounded


class RoundedRows:
    """What the rounding of the coefficients of A may do to cells X with A X = b.

    Parameters
    ----------
    equations : Equations
        Independent ones.
    solver : NormalSolver
    """

    def __init__(self, equations: Equations, solver: NormalSolver) -> None:
        self._equations, self._solver = equations, solver

    @cached_property
    def _are_rounded(self) -> bool:
        """Whether some coefficient has so many digits that it may have been."""
        scaled = np.frexp(self._equations.A.data)[0] * 2.0**FEW_BITS
        return bool((np.rint(scaled) != scaled).any())

    def tell(self, X: Float, b: Float) -> NDArray[np.bool_]:
        """For every column of X, (n, K), whether it moves by roundings of its largest value at most."""
        told = np.ones(X.shape[1], dtype=bool)
        if not self._are_rounded:
            return told
        terms = EPSILON * (self._equations.absolute @ abs(X) + abs(b))
        allowed = ROUNDING * EPSILON * np.maximum(largest_of_columns(X), abs(b).max(initial=0.0))
        signs = np.where(np.random.default_rng(0).random(terms.shape) < 0.5, -1.0, 1.0)
        target = NEAR * np.linalg.norm(terms / self._equations.deviations[:, None], axis=0)
        for _ in range(PROBES):
            try:
                change = self._solver.solve(signs * terms, target)[0]
            except ConvergenceError:
                return np.zeros_like(told)
            told &= largest_of_columns(self._equations.moved_by(change)) <= allowed
            signs = np.where(change < 0, -1.0, 1.0)  # towards those that change most
        return told

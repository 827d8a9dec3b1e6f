"""The exact estimate of tables without geography: the sweeps over intersections, and of few cells their matrix."""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import Protocol

import numpy as np

from blue_solvers.components.lattice.form import LatticeForm
from blue_solvers.components.lattice.plan import TooManyCellsError
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.memory import free_memory

MOST_ENTRIES = 1 << 17  # of a matrix of desired by observed cells: 1 MiB, read in 10 microseconds
MOST_PRODUCTS = 1 << 21  # of entries and columns: 70 microseconds
FEW_CELLS = 1 << 17  # with their matrices 40 MiB: not worth a look at the free memory


class Components(Protocol):
    """The exact estimate of a problem under assumptions A1 to A3."""

    def apply(self, Y: Float) -> Float:
        """P Y, (n, K) to (m, K)."""

    def adjoint(self, V: Float) -> Float:
        """P' V, (m, K) to (n, K)."""

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a marginal and the sums of a finer one in the estimate from Y."""


def components_of(problem: Problem) -> Components:
    """The sweeps, or two passes where recodes make too many groups for them; of few cells the matrix of either."""
    structured = StructuredProblem.of(problem)
    cells = structured.observed.size + structured.desired.size
    is_small = structured.observed.size * structured.desired.size <= MOST_ENTRIES
    form: Components
    try:
        form = LatticeForm(structured, free_memory() if cells > FEW_CELLS else inf, compiled=not is_small)
    except TooManyCellsError:
        form = TreeForm(structured)
    return MatrixForm(form, structured.observed.size) if is_small else form


class MatrixForm:
    """The exact estimate of few cells through the entries of P, worked out by another form.

    A product with some hundred rows and columns takes less time than the calls of any other form; with many columns it
    does not, and they go there.

    Parameters
    ----------
    form : Components
        That works them out, when the first estimate is made.
    cells : int
        Observed ones, n.

    Attributes
    ----------
    form : Components
        Which rounds less where variances differ by many decades, as iterations need.
    """

    def __init__(self, form: Components, cells: int) -> None:
        self.form, self._cells = form, cells

    @cached_property
    def _matrix(self) -> Float:
        return np.ascontiguousarray(self.form.apply(np.eye(self._cells)))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        if self._matrix.size * Y.shape[1] > MOST_PRODUCTS:
            return self.form.apply(Y)
        return self._matrix @ np.ascontiguousarray(Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        if self._matrix.size * V.shape[1] > MOST_PRODUCTS:
            return self.form.adjoint(V)
        return self._matrix.T @ np.ascontiguousarray(V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return self.form.variances()

    def violation(self, Y: Float) -> float:
        """Of the other form's estimate from Y the largest disagreement, and how far this one is from it."""
        return self.form.violation(Y) + float(abs(self.form.apply(Y) - self.apply(Y)).max(initial=0.0))

"""The exact estimate of tables without geography: the sweeps over intersections, and of few cells their matrix."""

from __future__ import annotations

from typing import Protocol

from blue_solvers.components.assumptions import group_count, too_large
from blue_solvers.components.lattice.form import LatticeForm
from blue_solvers.components.lattice.plan import TooManyCellsError
from blue_solvers.components.matrix_form import MatrixForm
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.memory import free_memory

MOST_ENTRIES = 1 << 16  # of the matrices of few cells: half a MiB, read in 5 microseconds
MANY_GROUPS = 600  # two passes take their matrices apart: 1,160 are prepared in 2.6 s for 12.4, 384 in 0.34 s for 0.15


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
    """Of few cells small matrices, otherwise the sweeps, or two passes where recodes make too many groups for them."""
    structured = StructuredProblem.of(problem)
    try:
        if MatrixForm.entries(structured) <= MOST_ENTRIES:
            return MatrixForm(structured)
        recoded = not problem.factors.issubset(problem.domain.schema.names)
        if recoded and group_count(problem) > MANY_GROUPS and too_large(problem) is None:
            return TreeForm(structured)
        return LatticeForm(structured, free_memory())
    except TooManyCellsError:
        return TreeForm(structured)

"""The decomposition of tables into components that equal variances keep apart."""

from __future__ import annotations

from typing import Protocol

from blue_solvers.components.array_form import ArrayForm, array_size
from blue_solvers.components.table_form import TableForm
from blue_solvers.solver import Float
from constraint_builders import Problem

ARRAY_ADVANTAGE = 2  # an array up to this many times input and output moves fewer bytes than tables one by one


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
    """The form of the decomposition that moves the fewest bytes for a problem."""
    assert problem.schema is not None
    tables = list(problem.observed_tables) + list(problem.desired_tables)
    plain = all(factor in problem.schema.names for table in tables for factor in table.factors)
    slots = array_size(problem.schema, tables)
    if plain and slots > ARRAY_ADVANTAGE * (problem.observed.size + problem.desired.size):
        return TableForm(problem)
    return ArrayForm(problem)


__all__ = ["ArrayForm", "Components", "TableForm", "components_of"]

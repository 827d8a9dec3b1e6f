"""What a configured solver is exact for, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blue_solvers.contract.solver import Solver
    from constraint_builders import Problem


@dataclass(frozen=True)
class Capability:
    """One way to an estimate.

    Attributes
    ----------
    call : str
        What to give to `blue`, in code.
    solver : Solver
    exact_for, cost : str
        In words, for people who choose.
    """

    call: str
    solver: Solver
    exact_for: str
    cost: str

    def refusal(self, problem: Problem) -> str | None:
        """Why this is not a way to the BLUE of a plain problem (see `Solver`), or None."""
        return self.solver.refusal(problem) or self.solver.why_inexact(problem)

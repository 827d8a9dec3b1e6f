"""How long the two passes take to prepare, and how much memory, from their plan alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.splitting import Undivided
from blue_solvers.components.tree.tree_plan import TreePlan, plan_of
from constraint_builders import Problem
from constraint_builders.memory import format_bytes

FIRST_SECONDS, FURTHER_SECONDS = 5.0, 0.2  # of processor, for the first geounit and each further one
FIRST_BYTES = 1e9
# Measured on one core of 2.5 GHz, persons' tables of the demographic and housing characteristics:
SECONDS_A_MULTIPLICATION = 2e-9  # of b^3, for a piece of b numbers, for every class and every pair
SECONDS_AN_ENTRY = 3e-8  # of a matrix that is put together from pieces
SECONDS_TO_SPLIT = 1e-7  # for every entry of the matrices of a component
SECONDS_A_STEP = 3e-5  # of a piece, for every class and every pair
NUMBER_BYTES = 8.0
MATRICES = 12  # held for every piece, class and pair while they are worked out


@dataclass(frozen=True)
class ProjectedWork:
    """What preparing an exact estimate by two passes is projected to take.

    Attributes
    ----------
    seconds : float
        Of one processor.
    bytes : float
        Of coefficients, and of what they are worked out in; beside measurements and estimates.
    geounits : int
    """

    seconds: float
    bytes: float
    geounits: int

    @property
    def is_large(self) -> bool:
        """Whether it is more than 5 seconds or 1 GB, and 0.2 seconds for each further geounit."""
        allowed = FIRST_SECONDS + FURTHER_SECONDS * (self.geounits - 1)
        return self.seconds > allowed or self.bytes > FIRST_BYTES

    def __str__(self) -> str:
        return f"about {self.seconds:,.0f} s of processor and {format_bytes(self.bytes)} more memory"


def projected_work(problem: Problem) -> ProjectedWork:
    """Project what ``blue(problem, "two_pass")`` takes before its first estimate, without any of the work.

    Parameters
    ----------
    problem : Problem
        With equal variances within every table of every geounit; areas nest.

    Raises
    ------
    ValueError
        If variances differ within a table of a geounit, or there are no tables.
    """
    nested = None if problem.areas is None else problem.tree
    plan = plan_of(StructuredProblem.of(problem if nested is None else nested.problem))
    entries = plan.class_rank.size + plan.families.parent.size
    seconds, held, most = 0.0, 0.0, 0.0
    for key in {plan.design_key(component) for component in plan.components if component.size > 1}:
        division = plan.division(key)
        for size in (piece.size for piece in division.pieces):
            seconds += entries * (SECONDS_AN_ENTRY * size**2 + SECONDS_A_MULTIPLICATION * size**3 + SECONDS_A_STEP)
            most = max(most, NUMBER_BYTES * MATRICES * entries * size**2)
        kept = sum(_entries(plan, division))
        held += NUMBER_BYTES * kept
        seconds += SECONDS_AN_ENTRY * kept + SECONDS_TO_SPLIT * division.size**2
    return ProjectedWork(seconds, held + most, plan.spine.size)


def _entries(plan: TreePlan, division: Undivided) -> Iterator[int]:
    """Numbers in the coefficients that are kept of a component."""
    families, m = plan.families, division.size
    yield m**2 * (plan.class_rank.size + families.geounits.size + 2 * families.parent.size + 1)
    for level in plan.levels:
        for _, table in level.tables:
            if table.name in division.seeing:
                yield level.class_count * m * division.seeing[table.name]

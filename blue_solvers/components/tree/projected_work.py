"""How long the two passes take to prepare, and how much memory, from their plan alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blue_solvers.components.component_products import PUT_TOGETHER
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.splitting import Division
from blue_solvers.components.tree.tree_plan import TreePlan
from constraint_builders import Problem
from constraint_builders.memory import format_bytes
from constraint_builders.schema_order import in_schema_order

FIRST_SECONDS, FURTHER_SECONDS = 5.0, 0.2  # CPU time, for the first geounit and each further one
FIRST_BYTES = 1e9
# Measured on one core of 2.5 GHz, persons' tables of the demographic and housing characteristics:
SECONDS_A_MULTIPLICATION = 2e-9  # of b^3, for a piece of b numbers, for every class and every pair
SECONDS_AN_ENTRY = 6e-8  # of a matrix that is kept
SECONDS_TO_SPLIT = 1e-7  # for every entry of the matrices of a component
SECONDS_A_STEP = 3e-5  # of a piece, for every class and every pair
MERGES = 2  # times that children are added up to what their parent has, for each of their pairs
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
    largest : int
        Size of the largest matrices: numbers of a component, or of the largest of the pieces that it falls into.
    """

    seconds: float
    bytes: float
    geounits: int
    largest: int

    @property
    def is_large(self) -> bool:
        """Whether it is more than 5 seconds or 1 GB, and 0.2 seconds for each further geounit."""
        allowed = FIRST_SECONDS + FURTHER_SECONDS * (self.geounits - 1)
        return self.seconds > allowed or self.bytes > FIRST_BYTES

    def __str__(self) -> str:
        return f"about {self.seconds:,.0f} CPU s and {format_bytes(self.bytes)} more memory"


def projected_work(problem: Problem) -> ProjectedWork:
    """Project what ``blue(problem, "two_pass")`` takes before its first estimate, without any of the work.

    Parameters
    ----------
    problem : Problem
        With equal variances within every table of every geounit; areas nest.

    Returns
    -------
    ProjectedWork

    Raises
    ------
    ValueError
        If variances differ within a table of a geounit, or there are no tables.
    """
    problem = in_schema_order(problem).problem
    nested = None if problem.areas is None else problem.tree
    plan = TreePlan(StructuredProblem.of(problem if nested is None else nested.problem))
    several = {key for key, own in zip(plan.design_keys, plan.components, strict=True) if own.size > 1}
    divisions = [plan.division(key) for key in several]
    work = np.array([(0.0, 0.0, 0.0), *(_work(plan, division) for division in divisions)])
    entries, seconds = work[:, 0].sum(), work[:, 1].sum() + SECONDS_AN_ENTRY * work[:, 0].sum()
    largest = max((piece.size for division in divisions for piece in division.pieces), default=1)
    return ProjectedWork(float(seconds), float(8 * (entries + work[:, 2].max())), plan.spine.size, largest)


def _work(plan: TreePlan, division: Division) -> tuple[float, float, float]:
    """Numbers in a component's coefficients that are kept, seconds beside those for each, and numbers held meanwhile.

    At most: pieces keep no rows that say nothing of a geounit, and what products take in place of pieces is made later.
    """
    kept, seconds, most = 0.0, SECONDS_TO_SPLIT * division.size**2, 0.0
    for piece in division.pieces:
        classes = np.zeros(plan.class_rank.size)  # how many numbers of the piece they have
        for number, level in enumerate(plan.levels):
            own = slice(level.first_class, level.first_class + level.class_count)
            classes[own] = (~plan.empty_kinds(number, plan.class_rank[own])[:, piece.kinds]).sum(axis=1)
            kept += classes[own].sum() * sum(len(piece.rows.get(table.name, ())) for _, table in level.tables)
        parents, children = classes[plan.class_of[plan.parents]], classes[plan.pair_class]
        above = parents[plan.pair_parent]
        kept += (classes**2).sum() + (parents**2).sum() + (children * (above + children)).sum()
        kept += classes[plan.levels[0].class_of[0]] ** 2
        seconds += SECONDS_A_MULTIPLICATION * ((classes**3).sum() + MERGES * (above**3).sum())
        seconds += SECONDS_A_STEP * (classes.size + above.size)
        most = max(most, MATRICES * ((above**2).sum() / 2 + piece.size**2))
    if division.size <= PUT_TOGETHER:
        rows = {name: frame.length for name, frame in division.frames.items()}
        seeing = sum(level.class_count * rows.get(t.name, 0) for level in plan.levels for _, t in level.tables)
        kept += division.size * (seeing + (plan.parents.size + plan.pair_parent.size) * division.size)
    return kept, seconds, most

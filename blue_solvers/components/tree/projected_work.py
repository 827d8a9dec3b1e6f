"""How long the two passes take to prepare, and how much memory, from their plan alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.piecewise import PUT_TOGETHER
from blue_solvers.components.tree.splitting import Division, Piece
from blue_solvers.components.tree.tree_plan import TreePlan, plan_of
from constraint_builders import Problem
from constraint_builders.memory import format_bytes
from constraint_builders.schema_order import in_schema_order

FIRST_SECONDS, FURTHER_SECONDS = 5.0, 0.2  # of processor, for the first geounit and each further one
FIRST_BYTES = 1e9
# Measured on one core of 2.5 GHz, persons' tables of the demographic and housing characteristics:
SECONDS_A_MULTIPLICATION = 2e-9  # of b^3, for a piece of b numbers, for every class and every pair
SECONDS_AN_ENTRY = 3e-8  # of a matrix that is put together from pieces
SECONDS_TO_SPLIT = 1e-7  # for every entry of the matrices of a component
SECONDS_A_STEP = 3e-5  # of a piece, for every class and every pair
NUMBER_BYTES = 8.0
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
    order = in_schema_order(problem)
    problem = problem if order is None else order.problem
    nested = None if problem.areas is None else problem.tree
    plan = plan_of(StructuredProblem.of(problem if nested is None else nested.problem))
    seconds, held, most, largest = 0.0, 0.0, 0.0, 1
    for key in {plan.design_key(component) for component in plan.components if component.size > 1}:
        division = plan.division(key)
        for piece in division.pieces:
            own = _PieceSizes(plan, piece)
            squares = (own.classes**2).sum() + (own.above**2).sum()
            cubes = (own.classes**3).sum() + (1 if piece.is_batched else MERGES) * (own.above**3).sum()
            at_once = squares if piece.is_batched else (own.above**2).sum() / 2 + piece.size**2
            seconds += SECONDS_AN_ENTRY * squares + SECONDS_A_MULTIPLICATION * cubes
            seconds += SECONDS_A_STEP * (own.classes.size + own.above.size)
            most = max(most, NUMBER_BYTES * MATRICES * float(at_once))
            largest = max(largest, piece.size)
        kept = sum(_entries(plan, division))
        held += NUMBER_BYTES * kept
        seconds += SECONDS_AN_ENTRY * kept
        seconds += SECONDS_TO_SPLIT * division.size**2
    return ProjectedWork(float(seconds), held + most, plan.spine.size, largest)


class _PieceSizes:
    """How many numbers of a piece classes have, geounits with children, the children of pairs and their parents."""

    def __init__(self, plan: TreePlan, piece: Piece) -> None:
        self.classes = np.full(plan.class_rank.size, float(piece.size))
        for number, level in enumerate(() if piece.is_batched else plan.levels):
            own = slice(level.first_class, level.first_class + level.class_count)
            self.classes[own] = (~plan.empty_kinds(number, plan.class_rank[own])[:, piece.kinds]).sum(axis=1)
        self.parents, self.children = self.classes[plan.class_of[plan.parents]], self.classes[plan.pair_class]
        self.above = self.parents[plan.pair_parent]


def _entries(plan: TreePlan, division: Division) -> Iterator[int]:
    """Numbers in the coefficients that are kept of a component, and in what products take in place of its pieces.

    At most: large pieces keep no rows that say nothing of a geounit.
    """
    for piece in division.pieces:
        own = _PieceSizes(plan, piece)
        yield int((own.classes**2).sum() + (own.parents**2).sum() + (own.children * own.above).sum())
        yield int((own.children**2).sum() + own.classes[plan.levels[0].class_of[0]] ** 2)
        for level in plan.levels:
            count = int(own.classes[level.first_class : level.first_class + level.class_count].sum())
            for _, table in level.tables:
                if table.name in piece.rows:
                    yield count * len(piece.rows[table.name])
    if not division.coordinates.are_numbers and division.size <= PUT_TOGETHER:
        yield (plan.parents.size + plan.pair_parent.size) * division.size**2
        for level in plan.levels:
            for _, table in level.tables:
                yield level.class_count * division.size * division.seeing.get(table.name, 0)

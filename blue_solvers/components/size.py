"""How large the matrices of a problem's recodes are."""

from __future__ import annotations

from math import prod

from blue_solvers.components.grouping import Grouping, groupings_of
from constraint_builders import Problem

MOST_GROUPS = 2_000  # size of the largest dense matrix that is worked with, one for every component


def groupings_in_use(problem: Problem) -> list[Grouping]:
    """How the recodes of observed and desired tables, and structural zeros, divide the variables."""
    assert problem.schema is not None
    told_apart = () if problem.zeros is None else problem.zeros.axes
    return groupings_of(problem.schema, [*problem.observed_tables, *problem.desired_tables], told_apart)


def too_many_groups(problem: Problem) -> str | None:
    """Why recodes would make matrices too large, or None."""
    groups = prod(grouping.sizes.size for grouping in groupings_in_use(problem))
    if groups <= MOST_GROUPS:
        return None
    return (
        f"its recodes cut the cells into {groups:,} groups, more than {MOST_GROUPS:,}: use "
        "ConjugateGradient(preconditioner='two_pass'), which leaves tables out, or solver='cg'"
    )

"""How large the matrices of a problem's recodes are."""

from __future__ import annotations

from math import prod

from blue_solvers.components.grouping import Grouping, groupings_of
from blue_solvers.contract import Refusal
from constraint_builders import Problem

ASTRONOMICAL = 10**300
MANY_TIMES = 10.0  # the cells of the tables, from which those of all variables together are not held
HELD_BYTES = 1e8  # below which they are held all the same
MOST_GROUPS = 1_500  # size of the largest dense matrices, one for every component: half a minute's work


def as_float(count: int) -> float:
    """A number of cells, which may be astronomical, as a float."""
    return float(min(count, ASTRONOMICAL))


def groupings_in_use(problem: Problem) -> list[Grouping]:
    """How the recodes of observed and desired tables, and structural zeros, divide the variables."""
    tables = [*problem.observed_tables, *problem.desired_tables]
    return groupings_of(problem.domain.schema, tables, problem.zero_axes)


def group_count(problem: Problem) -> int:
    """Into how many groups recodes cut the cells: the size of the largest matrices."""
    return prod(grouping.sizes.size for grouping in groupings_in_use(problem))


def too_many_groups(problem: Problem) -> str | None:
    """Why recodes would make matrices too large, or None."""
    groups = group_count(problem)
    if groups <= MOST_GROUPS:
        return None
    return Refusal(
        f"its recodes cut the cells into {groups:,} groups, more than {MOST_GROUPS:,}",
        "use ConjugateGradient(preconditioner='two_pass'), which leaves tables out, or solver='cg'",
    )


def too_many_tied(numbers: int) -> Refusal:
    """Why what structural zeros and tables tie together is too large."""
    return Refusal(
        f"its structural zeros and recodes tie {numbers:,} numbers of a geounit together, more than {MOST_GROUPS:,}",
        "sum over variables that zeros or recodes tie, or use solver='cholesky' or 'cg'",
    )


def holds_many_times_its_tables(problem: Problem, places: int) -> bool:
    """Whether the passes, which hold the cells of all variables together, would hold many times those of the tables."""
    held = places * as_float(prod(grouping.levels for grouping in groupings_in_use(problem)))
    tables = problem.observed.size + problem.desired.size
    return 8.0 * held > HELD_BYTES and held > MANY_TIMES * tables

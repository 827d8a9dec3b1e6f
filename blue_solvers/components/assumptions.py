"""What the decomposition into components takes, and why it does not take the rest."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from blue_solvers.components.grouping import Grouping, axes_in_use, groupings_of
from blue_solvers.contract import Refusal
from constraint_builders import Problem
from constraint_builders.memory import format_bytes, free_memory

GENERAL = "use solver='cholesky' or 'cg'"
SWEEP_BYTES = 200.0  # for each cell of tables: matrices of groups, and where their cells are
MANY_TIMES = 10.0  # the cells of the tables, from which those of all variables together are not held
HELD_BYTES = 1e8  # below which they are held all the same
MOST_GROUPS = 1_500  # size of the largest dense matrices, one for every component: half a minute's work


def flat_refusal(problem: Problem) -> str | None:
    """Why the forms without geography do not take a problem, or None: uncorrelated noise in tables of a schema.

    Variances that differ within tables are those of the heuristic, which takes no recodes.
    """
    if not problem.is_tabular or problem.is_correlated:
        return beyond_assumptions(problem, "a place")
    if problem.has_areas:
        return Refusal("it has areas", "use solver='two_pass' where they nest, 'areas' elsewhere")
    if problem.is_placed:
        return Refusal("it has a spine of geounits", "use solver='two_pass'")
    if not problem.has_only_tables:
        return Refusal("it has structural zeros or equalities", "use solver='two_pass', 'cholesky' or 'cg'")
    has_recodes = not problem.factors.issubset(problem.domain.schema.names)
    if problem.is_alike_by_geounit:
        return _recodes_too_large(problem) if has_recodes else None
    if problem.has_unmeasured:
        return Refusal("some cells of a table were not measured", GENERAL)
    if has_recodes:
        return Refusal("variances differ within tables and there are recodes", GENERAL)
    return None


def tree_refusal(problem: Problem) -> str | None:
    """Why the two passes do not take a problem, or None: equal variances within every table of every geounit."""
    if problem.is_tree_of_sums:
        return None
    if problem.has_areas and problem.tree is not None:
        return tree_refusal(problem.tree.problem)
    if problem.has_areas:
        return Refusal("its areas do not nest, or their noise is correlated", "use solver='areas', 'cholesky' or 'cg'")
    if problem.summing is not None:
        return Refusal("its nodes do not form a tree", GENERAL)
    return beyond_assumptions(problem, "a geounit") or too_large(problem)


def beyond_assumptions(problem: Problem, place: str) -> str | None:
    """Why a problem is not of tables with uncorrelated noise, equal within each of `place`, or None."""
    if not problem.is_tabular:
        return Refusal("it has no tables, only a matrix", GENERAL)
    if problem.is_correlated:
        return Refusal("its noise is correlated (assumption A2)", GENERAL)
    if not problem.is_alike_by_geounit:
        return Refusal(f"variances differ within a table of {place} (assumption A3)", GENERAL)
    return None


def _recodes_too_large(problem: Problem) -> str | None:
    """Why neither the passes nor the sweeps would fit; sweeps hold the tables and their intersections."""
    refusal = too_large(problem)
    if refusal is None or too_many_groups(problem) is not None:
        return refusal
    tables = [*problem.desired_tables, *problem.observed_tables]
    if SWEEP_BYTES * sum([table.size << len(table.factors) for table in tables]) <= free_memory():
        return None  # whatever they have in common: each variable of each whole, or its groups, or neither
    from blue_solvers.components.lattice.plan import SweepPlan, TooManyCellsError

    axes = axes_in_use(problem.domain.schema, tables)
    desired, observed = ([axes.of(table) for table in own] for own in (problem.desired_tables, problem.observed_tables))
    try:
        SweepPlan(axes, observed, desired, free_memory() / SWEEP_BYTES)
    except TooManyCellsError:
        return refusal
    return None


def too_large(problem: Problem) -> str | None:
    """Why the passes would not fit: one number for every slot of every geounit, small matrices of all groups."""
    from blue_solvers.components.tree.projected_work import MATRICES, projected_work

    refusal, groupings = too_many_groups(problem), groupings_in_use(problem)
    if refusal is not None and not problem.has_zeros:
        return refusal
    by_component = prod((g.sizes.size**2 + g.has_contrasts for g in groupings), start=1.0)
    cells = 8.0 * problem.domain.spine.size * _slots(groupings)
    free = free_memory()
    if cells > free:
        return _does_not_fit(cells, "cells of all its variables together", free)
    parents = 1 + int(np.count_nonzero(problem.domain.spine.child_counts))
    matrices = MATRICES * 8.0 * parents * by_component  # if no geounits were alike, nor fell apart
    if refusal is not None or matrices > free:
        work = projected_work(problem)
        if work.largest > MOST_GROUPS:
            tied = f"its structural zeros and recodes tie {work.largest:,} numbers of a geounit together"
            instead = "sum over variables that zeros or recodes tie, or use solver='cholesky' or 'cg'"
            return Refusal(f"{tied}, more than {MOST_GROUPS:,}", instead)
        if work.bytes > free:
            return _does_not_fit(work.bytes, f"matrices of {work.largest:,} groups", free)
    return None


def _does_not_fit(needed: float, what: str, free: float) -> str:
    said = f"it has {format_bytes(needed)} of {what} and {format_bytes(free)} are free"
    return Refusal(said, "use fewer geounits, or solver='cholesky' or 'cg'")


def groupings_in_use(problem: Problem) -> tuple[Grouping, ...]:
    """How the recodes of observed and desired tables, and structural zeros, divide the variables."""
    return groupings_of(problem.domain.schema, problem.factors, problem.zero_axes)


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


def holds_many_times_its_tables(problem: Problem, places: int) -> bool:
    """Whether the passes, which hold the cells of all variables together, would hold many times those of the tables."""
    held = places * _slots(groupings_in_use(problem))
    tables = problem.observed.size + problem.desired.size
    return 8.0 * held > HELD_BYTES and held > MANY_TIMES * tables


def _slots(groupings: Sequence[Grouping]) -> float:
    """Numbers of a geounit, one for every combination of levels; infinitely many beyond all float64."""
    return prod((grouping.levels for grouping in groupings), start=1.0)

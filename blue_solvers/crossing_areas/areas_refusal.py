"""What the components of areas take, and why they do not take the rest."""

from __future__ import annotations

from blue_solvers.components.size import groupings_in_use, too_many_groups
from blue_solvers.components.unmeasured_in_equalities import too_many_unmeasured
from blue_solvers.contract import Refusal
from blue_solvers.crossing_areas.table_slots import contrasts_of
from blue_solvers.normal_equations.noisy_equations import is_uneven
from constraint_builders import Problem
from constraint_builders.description.areas import LEAF, calls_others_leaves

MOST_COMPONENTS = 4_096  # each has a factorisation
GENERAL = "use solver='cholesky' or 'cg'"


def areas_refusal(problem: Problem) -> str | None:
    """Why components do not take a problem, or None: equal variances within every table of an area, or geounit."""
    if not problem.is_tabular:
        return Refusal("it has no tables, only a matrix", GENERAL)
    if problem.is_correlated:
        return Refusal("its noise is correlated (assumption A2)", GENERAL)
    if not problem.is_alike_by_geounit:
        return Refusal("variances differ within a table of an area (assumption A3)", GENERAL)
    if not problem.has_areas and calls_others_leaves(problem.domain.spine):
        return Refusal(f"its geolevel {LEAF!r} is not of all geounits without children", f"rename it, or {GENERAL}")
    if problem.has_equalities and is_uneven(problem):
        return Refusal("its variances are too unequal, with the weights of areas and equalities", GENERAL)
    schema, groupings = problem.domain.schema, groupings_in_use(problem)
    count = sum(2 ** len(own) for own in {contrasts_of(schema, groupings, table) for table in problem.desired_tables})
    if count > MOST_COMPONENTS:
        return Refusal(f"its tables have up to {count:,} components, more than {MOST_COMPONENTS:,}", GENERAL)
    return too_many_groups(problem) or too_many_unmeasured(problem)

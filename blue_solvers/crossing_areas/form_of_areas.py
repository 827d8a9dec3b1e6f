"""The form of the estimate over areas that costs least."""

from __future__ import annotations

from blue_solvers.components import Components
from blue_solvers.crossing_areas.alike_leaves import AlikeLeavesForm
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.clusters import Clusters
from blue_solvers.crossing_areas.component_problem import anything_will_do
from blue_solvers.crossing_areas.empty_leaves import without_empty_leaves
from blue_solvers.crossing_areas.one_table import OneTableForm, has_one_table
from constraint_builders import Areas, Problem


def form_of_areas(problem: Problem) -> Components:
    """The exact estimate of a problem for which `areas_refusal` is None.

    By clusters of leaves where these are few, all cells as one where there is one table. Geounits are areas, which
    nest, and a single place is an area of one leaf.
    """
    if problem.areas is None:
        areas = Areas(1, {}) if problem.spine is None else Areas.from_spine(problem.spine)
        problem = problem.replace(spine=None, areas=areas)
    problem = without_empty_leaves(problem)
    any_will_do = anything_will_do(problem)  # sums of what nothing determines tell nothing of the leaves
    clusters = None if any_will_do else Clusters.of(problem)
    if clusters is not None:
        return AlikeLeavesForm(problem, clusters)
    return OneTableForm(problem) if has_one_table(problem) else AreaForm(problem)

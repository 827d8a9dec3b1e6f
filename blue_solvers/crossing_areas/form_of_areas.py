"""The form of the estimate over areas that costs least; equalities on top of it."""

from __future__ import annotations

import numpy as np

from blue_solvers.components import Components
from blue_solvers.components.corrections import Corrected
from blue_solvers.crossing_areas.alike_leaves import AlikeLeavesForm
from blue_solvers.crossing_areas.area_form import AreaForm
from blue_solvers.crossing_areas.clusters import Clusters
from blue_solvers.crossing_areas.component_problem import anything_will_do
from blue_solvers.crossing_areas.one_table import OneTableForm, has_one_table
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Flags, Index
from constraint_builders.description.zeros import StructuralZeros


def exact_form_of_areas(problem: Problem, known: Index | None = None) -> Components:
    """The exact estimate of a problem for which `areas_refusal` is None.

    Parameters
    ----------
    problem : Problem
    known : ndarray of int, optional
        Observed cells whose measurement is exact, whatever variance the problem gives them.
    """
    problem = _of_areas(problem)
    if problem.equalities is not None or (known is not None and known.size):
        return Corrected(problem, known, form_of_areas)
    return form_of_areas(problem)


def form_of_areas(problem: Problem) -> Components:
    """The same of a problem of areas, but for its equalities.

    By clusters of leaves where these are few, all cells as one where there is one table.
    """
    any_will_do = anything_will_do(problem)  # sums of what nothing determines tell nothing of the leaves
    clusters = None if any_will_do else Clusters.of(problem)
    if clusters is not None:
        return AlikeLeavesForm(problem, clusters)
    return OneTableForm(problem) if has_one_table(problem) else AreaForm(problem)


def _of_areas(problem: Problem) -> Problem:
    """The same over areas: geounits are areas, which nest, and a single place is an area of one leaf."""
    if problem.areas is not None:
        return problem
    spine = problem.domain.spine
    areas = Areas.from_spine(spine) if problem.spine is not None else Areas(1, {})
    zeros = problem.zeros
    if zeros is not None:
        zeros = StructuralZeros.of(
            problem.domain.schema, zeros.axes, _at_leaves(zeros.empty[problem.domain.leaves], areas)
        )
    return problem.replace(spine=None, areas=areas, zeros=zeros)


def _at_leaves(flags: Flags, areas: Areas) -> Flags:
    """Flags of leaves, (leaves, ...), among those of all areas."""
    found = np.zeros((areas.size, *flags.shape[1:]), dtype=bool)
    found[areas.members[-1]] = flags
    return found

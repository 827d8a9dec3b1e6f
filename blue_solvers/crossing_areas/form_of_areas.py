"""The estimate over areas, whatever places a problem has; equalities on top of it."""

from __future__ import annotations

import numpy as np

from blue_solvers.components import Components
from blue_solvers.components.conditioning import NO_CELLS, conditioned
from blue_solvers.crossing_areas.area_form import AreaForm
from constraint_builders import Areas, Problem
from constraint_builders.arrays import Flags, Index
from constraint_builders.description.zeros import StructuralZeros


def exact_form_of_areas(problem: Problem, known: Index = NO_CELLS) -> Components:
    """The exact estimate of a problem for which `areas_refusal` is None.

    Parameters
    ----------
    problem : Problem
    known : ndarray of int, optional
        Observed cells whose measurement is exact, whatever variance the problem gives them.
    """
    return conditioned(_of_areas(problem), known, AreaForm)


def _of_areas(problem: Problem) -> Problem:
    """The same over areas: geounits are areas, which nest, and a single place is an area of one leaf."""
    if problem.has_areas:
        return problem
    areas, zeros = Areas.from_spine(problem.domain.spine), problem.zeros
    if zeros is not None:
        at_leaves = _at_leaves(zeros.empty[problem.domain.leaves], areas)
        zeros = StructuralZeros.of(problem.domain.schema, zeros.axes, at_leaves)
    return problem.replace(spine=None, areas=areas, zeros=zeros)


def _at_leaves(flags: Flags, areas: Areas) -> Flags:
    """Flags of leaves, (leaves, ...), among those of all areas."""
    found = np.zeros((areas.size, *flags.shape[1:]), dtype=bool)
    found[areas.members[-1]] = flags
    return found

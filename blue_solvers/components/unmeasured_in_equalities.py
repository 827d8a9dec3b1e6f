"""Cells that equalities speak of in tables that were not measured: to the exact forms they are pseudo-measured."""

from __future__ import annotations

import numpy as np

from blue_solvers.components.structured_problem import equal_variances
from blue_solvers.contract import Refusal
from constraint_builders import Problem
from constraint_builders.arrays import Index
from constraint_builders.relations.marginals import refines

MOST_PSEUDO_MEASURED = 1_500  # cells: the size of the dense matrix of all pairs of them


def unmeasured_in_equalities(problem: Problem) -> Index:
    """Cells of tables that were not measured in a geounit and of some of whose cells equalities speak.

    Those do not count that a table measured in the same geounit can be summed to.
    """
    found = np.zeros(problem.observed.size, dtype=bool)
    if not (problem.has_equalities and problem.has_unmeasured):
        return np.flatnonzero(found)
    found[problem.equality_rows[0].indices] = True
    tables, levels, schema = problem.observed_tables, problem.observed_levels, problem.domain.schema
    absent = [np.isinf(own) for own in equal_variances(problem)]
    for index, table in enumerate(tables):
        cells = found[problem.observed.block(index)].reshape(-1, table.size)
        missing = np.flatnonzero(cells.any(axis=1))
        for other, fine in enumerate(tables):
            if missing.size and levels[other] == levels[index] and refines(schema, fine, table):
                missing = missing[absent[other][missing]]
        cells[...] = False
        cells[missing] = True
    return np.flatnonzero(found)


def too_many_unmeasured(problem: Problem) -> str | None:
    """Why so many cells cannot be pseudo-measured, or None."""
    count = unmeasured_in_equalities(problem).size
    if count <= MOST_PSEUDO_MEASURED:
        return None
    return Refusal(
        f"its equalities speak of tables with {count:,} cells that nothing measured determines, more than "
        f"{MOST_PSEUDO_MEASURED:,}",
        "use solver='cholesky' or 'cg'",
    )

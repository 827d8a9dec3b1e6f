"""How far the weighted squares of the residuals of whole tables are spread."""

from __future__ import annotations

import numpy as np

from blue_solvers.verification.weighed_noise import NotCertifiedError, WeighedNoise
from blue_solvers.verification.wide import Separated
from constraint_builders import Problem
from constraint_builders.arrays import Float


def table_deviations(problem: Problem) -> Float | None:
    """Standard deviations of the tables' weighted squares, from the parts that they share; None where parts mix."""
    if problem.table_variances is None:
        return None
    try:
        family = Separated(problem, WeighedNoise.of(problem))
    except NotCertifiedError:
        return None
    tables, density = family.tables, family.densities(family.steepest)
    independent = np.ones_like(density)
    for finer, _, levels in tables.by_axis:
        independent[finer] *= levels - 1
    without = {(table, axis): coarser for table, coarser, axis in tables.up[:, :3].tolist()}
    variances = []
    for number, (table, variance) in enumerate(zip(problem.observed_tables, problem.table_variances, strict=True)):
        within = [number] if 0 < variance < np.inf else []
        for axis in table.axes:
            within += [without[own, axis] for own in within]
        own = tables.sizes[within] / (variance * table.size)
        variances.append(float((2 * independent[within] * (1 - own / density[within]) ** 2).sum()))
    return np.sqrt(np.array(variances))

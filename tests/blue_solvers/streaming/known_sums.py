"""A spine of which linear combinations of measured cells are known exactly."""

import numpy as np

from blue_solvers import blue
from constraint_builders import Problem
from tests.helpers.partitioned import invented_problem
from tests.helpers.spines import consistent_measurements


def with_equalities(seed: int) -> tuple[Problem, np.ndarray]:
    """Combinations within a geounit, of several geounits of one level and of several, one implied by the others."""
    problem = invented_problem(seed)
    rng = np.random.default_rng(seed)
    y = consistent_measurements(problem, seed)
    measured = ~problem.unmeasured
    rows = np.zeros((5, problem.observed.size))
    totals = [name for name in problem.observed.names if name[1] == "total"]
    for name in totals[:2]:
        rows[0, problem.observed.slice(name)] = 1
    for row, count in ((1, 3), (2, 40)):
        chosen = rng.choice(np.flatnonzero(measured), count, replace=False)
        rows[row, chosen] = rng.choice([-1, 1, 2], count)
    rows[3, np.flatnonzero(measured)[-4:]] = 1
    rows[4] = rows[1] - 2 * rows[2]
    rows *= measured
    other = y + np.where(problem.variances > 0, rng.normal(0, 3, y.size), 0)
    x = blue(problem.observing(), "two_pass") @ other  # agrees with all that is exact
    known = Problem(
        problem.schema,
        {
            level: {
                table: variance
                for (where, table), variance in zip(problem.observed.names, problem.geounit_variances, strict=True)
                if where == level
            }
            for level in problem.spine.levels
        },
        spine=problem.spine,
        desired=["detailed", "b", "total"],
        equalities=(rows, rows @ x),
    )
    return known, y

"""Noticing that geounits are missing from measurements of a spine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from constraint_builders.layout import Float
from constraint_builders.problem import Problem
from constraint_builders.spine import Spine

MOST_DEVIATIONS = 20.0  # so far from zero no noise comes, Laplace's tails over 10^9 counts included


def refuse_missing_children(problem: Problem, y: Float) -> None:
    """Refuse measurements in which a geounit's count is not that of its children together, by far more than noise.

    Then children are missing: a partition was not copied, say. For every table measured at a geounit and at all its
    children the sums of all cells are compared.

    Parameters
    ----------
    problem : Problem
        On a spine, with one variance for each table of a geounit.
    y : ndarray, (n,)
        Over its observed layout.

    Raises
    ------
    ValueError
        If one differs by more than `MOST_DEVIATIONS` standard deviations; it is named.
    """
    spine = problem.spine
    assert spine is not None
    for name in dict.fromkeys(table.name for table in problem.observed_tables):
        counts, variances = _sums(problem, spine, name, y)
        children = np.flatnonzero(spine.parent >= 0)
        of_children, variance_of_children = (
            np.bincount(spine.parent[children], weights=column[children], minlength=spine.size)
            for column in (counts, variances)
        )
        variance = variances + variance_of_children
        compared = (spine.child_counts > 0) & np.isfinite(variance)
        excess = np.where(compared, counts - of_children, 0.0)
        worst = int(np.argmax(abs(excess) - MOST_DEVIATIONS * np.sqrt(np.where(compared, variance, np.inf))))
        if compared[worst] and abs(excess[worst]) > MOST_DEVIATIONS * np.sqrt(variance[worst]) + 0.5:
            level, code = spine.levels[spine.level_of[worst]], spine.geocodes[worst]
            raise ValueError(
                f"{level} {code!r} counts {counts[worst]:,.0f} in table {name!r}, its {spine.child_counts[worst]} "
                f"children {of_children[worst]:,.0f}: no noise explains that; a partition is missing, or "
                "within= should leave the level out"
            )


def _sums(problem: Problem, spine: Spine, name: str, y: Float) -> tuple[Float, NDArray[np.float64]]:
    """Sum of all cells of a table in every geounit, 0 where not measured, and its variance, infinite there."""
    assert problem.geounit_variances is not None
    counts, variances = np.zeros(spine.size), np.full(spine.size, np.inf)
    for index, table in enumerate(problem.observed_tables):
        if table.name == name:
            members = spine.members[problem.observed_levels[index]]
            variance = problem.geounit_variances[index]
            sums = y[problem.observed.block(index)].reshape(members.size, -1).sum(axis=1)
            counts[members] = np.where(np.isfinite(variance), sums, 0.0)
            variances[members] = variance * table.size
    return counts, variances

"""Leaves that are known to be wholly empty: areas hold all but these."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from constraint_builders import Areas, Problem
from constraint_builders.description.areas import LEAF

OF_ALL = "Leaf, those that are empty too"


def speaks_of_whole_leaves(problem: Problem) -> bool:
    """Whether a problem of areas has structural zeros, and all are of leaves in which nothing is counted."""
    return problem.areas is not None and problem.zeros is not None and not problem.zeros.axes


def without_empty_leaves(problem: Problem) -> Problem:
    """The same problem, in the same layouts, over the leaves that may hold something, if it `speaks_of_whole_leaves`.

    Areas keep their places, and those that hold no leaf any more are 0, as is every table of them.
    """
    areas, zeros = problem.areas, problem.zeros
    if areas is None or zeros is None:
        return problem
    left = np.flatnonzero(~zeros.empty[areas.members[-1]])
    kept = sparse.csr_array((np.ones(left.size), (left, np.arange(left.size))), shape=(areas.leaves, max(left.size, 1)))
    layers = {OF_ALL if level == LEAF else level: areas.layer(level).incidence @ kept for level in areas.levels}
    return problem.replace(areas=Areas(kept.shape[1], layers), zeros=None)

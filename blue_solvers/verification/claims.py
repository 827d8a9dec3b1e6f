"""Figures that are claimed of tables beside the observed ones: those that were wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table


@dataclass(frozen=True)
class Claim:
    """A desired table.

    Attributes
    ----------
    index : int
        Its number among the desired ones.
    level : int
    table : Table
    figures : ndarray, (geounits * cells,)
        NaN where nothing is claimed.
    """

    index: int
    level: int
    table: Table
    figures: Float


def claims(problem: Problem, x: Float, desired: Float) -> list[Claim]:
    """The desired tables, but for those that are observed and of which x says the same."""
    observed = {own: i for i, own in enumerate(zip(problem.observed_levels, problem.observed_tables, strict=True))}
    found = []
    for index, own in enumerate(zip(problem.desired_levels, problem.desired_tables, strict=True)):
        figures = desired[problem.desired.block(index)]
        twin = observed.get(own)
        if twin is None or not np.array_equal(figures, x[problem.observed.block(twin)]):
            found.append(Claim(index, *own, figures))
    return found


def matrix_of_claims(problem: Problem, made: Sequence[Claim]) -> sparse.csr_array:
    """Their cells as sums of the counts, (cells, detailed cells of all leaves)."""
    wanted = problem.replace(
        observed=problem.desired, observed_tables=problem.desired_tables, observed_levels=problem.desired_levels
    )
    return sparse.csr_array(wanted.marginal_matrix()[problem.desired.cells([claim.index for claim in made])])

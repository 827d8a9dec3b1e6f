"""The estimate where the same table, and no other, was measured and is wanted in all areas: a series of each, say.

All its cells then share one problem over areas, of one number in each, as they are: no components, no change of basis.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from blue_solvers.crossing_areas.area_form import COMPONENT
from blue_solvers.crossing_areas.component_problem import NOTHING, anything_will_do, equal_variances
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from blue_solvers.normal_equations.sparse_normal import SparseNormalSolver
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float


def has_one_table(problem: Problem) -> bool:
    """Whether all observed and desired tables are one, without cells that are known to be empty."""
    return (
        problem.zeros is None
        and len({table.name for table in (*problem.observed_tables, *problem.desired_tables)}) == 1
    )


class OneTableForm:
    """The estimate of a table in all areas; it has the methods of `Components`.

    Parameters
    ----------
    problem : Problem
        For which `areas_refusal` is None, and that `has_one_table`.
    """

    def __init__(self, problem: Problem) -> None:
        self._cells = problem.observed_tables[0].size
        areas = problem.domain.areas
        levels = [areas.levels[level] for level in problem.observed_levels]
        observed = {level: {"total": own} for level, own in zip(levels, equal_variances(problem), strict=True)}
        desired = {areas.levels[level]: ["total"] for level in problem.desired_levels}
        undetermined: Literal["nan", "error"] = "nan" if anything_will_do(problem) else "error"
        one = Problem(Schema({NOTHING: 1}), observed, desired, areas=areas, undetermined=undetermined)
        one = one if one.undetermined is None else one.determined  # as if it had been measured as 0
        self._estimate = ConstrainedEstimate(one, "independent", SparseNormalSolver, COMPONENT)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._estimate.apply(self._by_area(Y))[0].reshape(-1, Y.shape[1])

    def violation(self, Y: Float) -> float:
        """Largest disagreement between areas, in any cell."""
        return self._estimate.apply(self._by_area(Y))[1].violation or 0.0

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._estimate.adjoint(self._by_area(V)).reshape(-1, V.shape[1])

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return np.repeat(self._estimate.variances(), self._cells)

    def _by_area(self, X: Float) -> Float:
        """(areas * cells, K) as (areas, cells * K)."""
        return X.reshape(-1, self._cells * X.shape[1])

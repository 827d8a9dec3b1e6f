"""SEA BLUE where variances differ inside a table: Algorithm 2's second branch.

The collection step weights every count by its own variance. Going down, every table is the best estimate from its own
collected counts given the estimates of the tables below it: an oblique projection. It is not the BLUE, since it uses no
estimate that mixes cells of several tables (Table 3 and Example 13 of the paper).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy import sparse

from blue_solvers.contract import Info, Prepared
from blue_solvers.crossing_areas.area_form import subsets
from blue_solvers.crossing_areas.component_problem import together
from blue_solvers.normal_equations.projection import ConstrainedEstimate
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.marginals import cell_map, refines

ITERATIONS = ConjugateGradient(1e-12)


class ObliqueDownPass(Prepared):
    """The heuristic's linear map and its transpose.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise (assumption A2) and without recodes.
    info : Info
    """

    def __init__(self, problem: Problem, info: Info) -> None:
        self.problem, self.info, self.offset = problem, info, np.broadcast_to(0.0, problem.desired.size)
        schema = problem.domain.schema
        kept = subsets(table.axes for table in problem.desired_tables)
        tables = [make_table(schema, tuple(schema.names[axis] for axis in sorted(own))) for own in kept]
        collections = {table: _collection(problem, table) for table in tables}
        self._collects = {table.name: collects for table, (collects, _) in collections.items()}
        self._fits = {table.name: _fit(schema, table, variances) for table, (_, variances) in collections.items()}

    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y, (m, K), and the largest difference between a table's sums and the estimates below it."""
        estimates, violation = dict[Hashable, Float](), 0.0
        for name, fit in self._fits.items():
            below = [estimates[coarse] for coarse in fit.problem.observed.names[:-1]]
            own = fit.apply(np.concatenate([*below, self._collects[name] @ Y]))[0]
            together, estimates[name] = np.concatenate([*below, own]), own
            violation = max(violation, *(float(abs(part.A @ together).max(initial=0.0)) for part in fit.equations))
        X = np.concatenate([estimates[table.name] for table in self.problem.desired_tables])
        return X, replace(self.info, violation=violation)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        pending: dict[Hashable, Float] = {
            name: np.zeros((fit.problem.desired.size, V.shape[1])) for name, fit in self._fits.items()
        }
        for index, table in enumerate(self.problem.desired_tables):
            pending[table.name] += V[self.problem.desired.block(index)]
        result = np.zeros((self.problem.observed.size, V.shape[1]))
        for name, fit in reversed(self._fits.items()):
            *below, own = np.split(fit.adjoint(pending[name]), fit.problem.observed.offsets[1:-1])
            result += self._collects[name].T @ own
            for coarse, part in zip(fit.problem.observed.names, below, strict=False):
                pending[coarse] += part
        return result


def _fit(schema: Schema, table: Table, variances: Float) -> ConstrainedEstimate:
    """The best estimate of a table from its collected counts, of variances (cells,), given its margins as exact."""
    below = combinations(table.factors, len(table.factors) - 1) if table.factors else ()
    known: dict[str, float | Float] = {make_table(schema, factors).name: 0.0 for factors in below}
    problem = Problem(schema, known | {table.name: variances.reshape(table.shape)}, [table.name])
    return ITERATIONS.plan_as(problem, ITERATIONS.name)


def _collection(problem: Problem, table: Table) -> tuple[sparse.csr_array, Float]:
    """Equation 1: counts from all observed tables that contain them, weighted by inverse variance; their variances."""
    schema, tables = problem.domain.schema, enumerate(problem.observed_tables)
    cells = {i: cell_map(schema, fine, table) for i, fine in tables if refines(schema, fine, table)}
    own = [np.bincount(cell, problem.variances[problem.observed.block(i)], table.size) for i, cell in cells.items()]
    variances, weights = together(np.array(own))
    rows = np.concatenate(list(cells.values()))
    shares = np.concatenate([share[cell] for share, cell in zip(weights, cells.values(), strict=True)])
    pairs = rows, problem.observed.cells(list(cells))
    collects = sparse.csr_array((shares, pairs), shape=(table.size, problem.observed.size))
    return collects, variances

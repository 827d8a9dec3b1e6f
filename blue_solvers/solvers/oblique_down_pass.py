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

from blue_solvers.contract import Info, Prepared
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.marginals import Margin, refines

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
        self.problem, self.info, self.offset = problem, info, np.zeros(problem.desired.size)
        schema = problem.domain.schema
        tables = _downward_closure(schema, problem.desired_tables)
        self._collections = {table.name: _Collection(problem, table) for table in tables}
        self._fits = {t.name: _fit(schema, t, self._collections[t.name].variances) for t in tables}

    def apply(self, Y: Float) -> tuple[Float, Info]:
        """P Y, and the largest difference between a table's sums and the estimates below it."""
        estimates, violation = dict[Hashable, Float](), 0.0
        for name, fit in self._fits.items():
            below = [estimates[coarse] for coarse in fit.problem.observed.names[:-1]]
            own = fit.apply(np.concatenate([*below, self._collections[name].apply(Y)]))[0]
            gaps = fit.problem.constraint_matrix("all") @ np.concatenate([*below, own])
            estimates[name], violation = own, max(violation, float(abs(gaps).max(initial=0.0)))
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
            self._collections[name].add_adjoint(own, result)
            for coarse, part in zip(fit.problem.observed.names, below, strict=False):
                pending[coarse] += part
        return result


def _downward_closure(schema: Schema, tables: tuple[Table, ...]) -> list[Table]:
    """All marginals of the tables, fewest variables first."""
    factors = {chosen for t in tables for k in range(len(t.factors) + 1) for chosen in combinations(t.factors, k)}
    return sorted((make_table(schema, chosen) for chosen in factors), key=lambda table: (len(table.axes), table.axes))


def _fit(schema: Schema, table: Table, variances: Float) -> Prepared:
    """The best estimate of a table from its collected counts given its margins over all variables but one, as exact."""
    below = combinations(table.factors, len(table.factors) - 1) if table.factors else ()
    known: dict[str, float | Float] = {make_table(schema, factors).name: 0.0 for factors in below}
    return ITERATIONS.plan(Problem(schema, known | {table.name: variances.reshape(table.shape)}, [table.name]))


class _Collection:
    """Equation 1: every count from all observed tables that contain it, weighted by inverse variance."""

    def __init__(self, problem: Problem, table: Table) -> None:
        schema = problem.domain.schema
        places = [i for i, fine in enumerate(problem.observed_tables) if refines(schema, fine, table)]
        margins = [Margin(schema, problem.observed_tables[i], table) for i in places]
        blocks = [problem.observed.block(i) for i in places]
        own = [margin.apply(problem.variances[block]) for block, margin in zip(blocks, margins, strict=True)]
        exact = np.equal(own, 0)
        with np.errstate(divide="ignore"):
            weights = np.where(exact.any(axis=0), exact, np.divide(1.0, own))
        total = weights.sum(axis=0)
        self._parts = list(zip(blocks, margins, (weights / total)[:, :, None], strict=True))
        self.variances = np.where(exact.any(axis=0), 0.0, 1 / total)

    def apply(self, Y: Float) -> Float:
        return np.asarray(sum(weight * margin.apply(Y[block]) for block, margin, weight in self._parts))

    def add_adjoint(self, V: Float, result: Float) -> None:
        for block, margin, weight in self._parts:
            result[block] += margin.transpose(weight * V)

"""SEA BLUE where variances differ inside a table: Algorithm 2's second branch.

The collection step weights every count by its own variance. Going down, every table is the best estimate from its own
collected counts given the estimates of the tables below it: an oblique projection. It is not the BLUE, since it uses no
estimate that mixes cells of several tables (Table 3 and Example 13 of the paper).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy import sparse

from blue_solvers.contract import Info, Prepared
from blue_solvers.normal_equations.noisy_equations import Equations
from blue_solvers.normal_equations.stage import Stage
from blue_solvers.solvers.conjugate_gradient import ConjugateGradient
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.marginals import Margin, margin_matrix, refines

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
        self._tables = _downward_closure(schema, problem.desired_tables)
        self._collections = {t.name: _Collection(problem, t) for t in self._tables}
        self._fits = {t.name: _Fit(schema, t, self._collections[t.name].variances) for t in self._tables}

    def apply(self, Y: Float) -> tuple[Float, Info]:
        estimates = self._estimates(Y)
        return np.concatenate([estimates[table.name] for table in self.problem.desired_tables]), self.info

    def violation(self, Y: Float) -> float | None:
        """Largest disagreement between a desired table's marginals in the estimate from Y."""
        estimates = self._estimates(Y)
        return max(self._fits[table.name].violation(estimates[table.name], estimates) for table in self._tables)

    def _estimates(self, Y: Float) -> dict[str, Float]:
        estimates: dict[str, Float] = {}
        for table in self._tables:
            collected = self._collections[table.name].apply(Y)
            estimates[table.name] = self._fits[table.name].apply(collected, estimates)
        return estimates

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        pending = {table.name: np.zeros((table.size, V.shape[1])) for table in self._tables}
        offsets = self.problem.desired.offsets
        for i, table in enumerate(self.problem.desired_tables):
            pending[table.name] += V[offsets[i] : offsets[i + 1]]
        result = np.zeros((self.problem.observed.size, V.shape[1]))
        for table in reversed(self._tables):
            self._collections[table.name].add_adjoint(
                self._fits[table.name].adjoint(pending[table.name], pending), result
            )
        return result


def _downward_closure(schema: Schema, tables: tuple[Table, ...]) -> list[Table]:
    """All marginals of the tables, fewest variables first."""
    factors = {chosen for t in tables for k in range(len(t.factors) + 1) for chosen in combinations(t.factors, k)}
    return sorted((make_table(schema, chosen) for chosen in factors), key=lambda table: (len(table.axes), table.axes))


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


class _Fit:
    """Best estimate of a table from its collected counts given its margins over all variables but one.

    x = z + D B' (B D B')^+ (h - B z) with D the variances of the collected counts, B the sums to those margins and
    h the estimates below: a projection of z and h together, in which h is known exactly.
    """

    def __init__(self, schema: Schema, table: Table, variances: Float) -> None:
        below = [table.factors[:i] + table.factors[i + 1 :] for i in range(len(table.factors))]
        self._tables = [make_table(schema, factors) for factors in below]
        sums = [margin_matrix(schema, table, coarse) for coarse in self._tables]
        B = sparse.csr_array(sparse.vstack([sparse.csr_array((0, table.size)), *sums], format="csr"))
        self._gaps = sparse.csr_array(sparse.hstack([B, -sparse.eye_array(B.shape[0])], format="csr"))
        self._stops = np.cumsum([table.size, *(coarse.size for coarse in self._tables)])[:-1]
        rows = np.flatnonzero(B @ variances > 0)
        everything = np.concatenate([variances, np.zeros(B.shape[0])])
        Sigma, self._none = sparse.csr_array(sparse.diags_array(everything)), np.zeros(rows.size)
        equations = Equations(self._gaps[rows], self._none, Sigma, everything > 0)
        self._stage = Stage(equations, ITERATIONS.normal_solver)

    def apply(self, collected: Float, estimates: dict[str, Float]) -> Float:
        return self._stage.project(self._with_below(collected, estimates), self._none)[0][: len(collected)]

    def violation(self, own: Float, estimates: dict[str, Float]) -> float:
        """Largest difference between the table's sums and the estimates below it."""
        return float(abs(self._gaps @ self._with_below(own, estimates)).max(initial=0.0))

    def _with_below(self, own: Float, estimates: dict[str, Float]) -> Float:
        return np.concatenate([own, *(estimates[coarse.name] for coarse in self._tables)])

    def adjoint(self, V: Float, pending: dict[str, Float]) -> Float:
        """Transpose: the part for the collected counts; the part for the margins is added to `pending`."""
        everywhere = np.zeros((self._gaps.shape[1], V.shape[1]))
        everywhere[: len(V)] = V
        weights, *parts = np.split(self._stage.adjoint(everywhere), self._stops)
        for coarse, part in zip(self._tables, parts, strict=True):
            pending[coarse.name] += part
        return weights

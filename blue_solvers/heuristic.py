"""SEA BLUE where variances differ inside a table: Algorithm 2's second branch.

The collection step weights every count by its own variance. Going down, every table is the best estimate from its own
collected counts given the estimates of the tables below it: an oblique projection. It is not the BLUE, since it uses no
estimate that mixes cells of several tables (Table 3 and Example 13 of the paper).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from blue_solvers.krylov import conjugate_gradients
from blue_solvers.solver import ConvergenceError, Float
from constraint_builders import Problem
from constraint_builders.marginals import Margin
from constraint_builders.schema import Schema
from constraint_builders.table import Table, make_table

RTOL = 1e-13
MAX_ITERATIONS = 10_000


class ObliqueDownPass:
    """The heuristic's linear map and its transpose.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise (assumption A2) and without recodes.
    """

    def __init__(self, problem: Problem) -> None:
        assert problem.schema is not None
        self._problem = problem
        self._tables = _downward_closure(problem.schema, problem.desired_tables)
        self._collections = {t.name: _Collection(problem, t) for t in self._tables}
        self._fits = {t.name: _Fit(problem.schema, t, self._collections[t.name].variances) for t in self._tables}

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        estimates = self._estimates(Y)
        return np.concatenate([estimates[table.name] for table in self._problem.desired_tables])

    def violation(self, Y: Float) -> float:
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
        offsets = self._problem.desired.offsets
        for i, table in enumerate(self._problem.desired_tables):
            pending[table.name] += V[offsets[i] : offsets[i + 1]]
        result = np.zeros((self._problem.observed.size, V.shape[1]))
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
        assert problem.schema is not None
        self._parts: list[tuple[slice, Margin, Float]] = []
        precisions, exact = [], []
        for i, fine in enumerate(problem.observed_tables):
            if set(table.axes) <= set(fine.axes):
                place = problem.observed.block(i)
                margin = Margin(problem.schema, fine, table)
                variances = margin.apply(problem.variances[place][:, None])
                exact.append(variances == 0)
                precisions.append(1 / np.where(variances == 0, 1.0, variances))
                self._parts.append((place, margin, variances))
        known = np.any(exact, axis=0)
        weights = [np.where(known, own.astype(float), p) for own, p in zip(exact, precisions, strict=True)]
        total = np.sum(weights, axis=0)
        self._weights = [weight / total for weight in weights]
        self.variances = np.where(known, 0.0, 1 / total)[:, 0]

    def apply(self, Y: Float) -> Float:
        return sum(
            (
                weight * margin.apply(Y[place])
                for (place, margin, _), weight in zip(self._parts, self._weights, strict=True)
            ),
            start=np.zeros((self._weights[0].shape[0], Y.shape[1])),
        )

    def add_adjoint(self, V: Float, result: Float) -> None:
        for (place, margin, _), weight in zip(self._parts, self._weights, strict=True):
            result[place] += margin.transpose(weight * V)


class _Fit:
    """Best estimate of a table from its collected counts given its margins over all variables but one.

    x = z + D B' (B D B')^+ (h - B z) with D the variances of the collected counts, B the sums to those margins and
    h the estimates below.
    """

    def __init__(self, schema: Schema, table: Table, variances: Float) -> None:
        self._D = variances[:, None]
        below = [table.factors[:i] + table.factors[i + 1 :] for i in range(len(table.factors))]
        self._tables = [make_table(schema, factors) for factors in below]
        self._margins = [Margin(schema, table, coarse) for coarse in self._tables]
        self._stops = np.cumsum([coarse.size for coarse in self._tables])
        diagonal = self._sum(self._D) if self._margins else np.zeros((0, 1))
        self._scale = np.where(diagonal > 0, diagonal, 1.0)

    def apply(self, collected: Float, estimates: dict[str, Float]) -> Float:
        if not self._margins:
            return collected
        return collected + self._D * self._spread(self._solve(self._below(estimates) - self._sum(collected)))

    def violation(self, own: Float, estimates: dict[str, Float]) -> float:
        """Largest difference between the table's sums and the estimates below it."""
        return float(abs(self._below(estimates) - self._sum(own)).max()) if self._margins else 0.0

    def _below(self, estimates: dict[str, Float]) -> Float:
        return np.concatenate([estimates[coarse.name] for coarse in self._tables])

    def adjoint(self, V: Float, pending: dict[str, Float]) -> Float:
        """Transpose: the part for the collected counts; the part for the margins is added to `pending`."""
        if not self._margins:
            return V
        multipliers = self._solve(self._sum(self._D * V))
        for coarse, part in zip(self._tables, np.split(multipliers, self._stops[:-1]), strict=True):
            pending[coarse.name] += part
        return V - self._spread(multipliers)

    def _sum(self, X: Float) -> Float:
        return np.concatenate([margin.apply(X) for margin in self._margins])

    def _spread(self, multipliers: Float) -> Float:
        parts = np.split(multipliers, self._stops[:-1])
        return sum(
            (margin.transpose(part) for margin, part in zip(self._margins, parts, strict=True)),
            start=np.zeros((self._D.shape[0], multipliers.shape[1])),
        )

    def _solve(self, R: Float) -> Float:
        """(B D B')^+ R, for R that consistent margins leave."""
        deviations = np.sqrt(self._scale)

        def sizes(residual: Float) -> Float:
            return np.linalg.norm(residual / deviations, axis=0)

        Z, _, converged = conjugate_gradients(
            lambda M: self._sum(self._D * self._spread(M)),
            R,
            lambda M: M / self._scale,
            sizes,
            RTOL * sizes(R),
            MAX_ITERATIONS,
        )
        if not converged:
            raise ConvergenceError("sea_blue's oblique down pass did not converge: use solver='cholesky' or 'cg'")
        return Z

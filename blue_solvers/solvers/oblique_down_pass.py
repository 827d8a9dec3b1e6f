"""SEA BLUE where variances differ inside a table: Algorithm 2's second branch.

The collection step weights every count by its own variance. Going down, every table is the best estimate from its own
collected counts given the estimates of the tables below it: an oblique projection. It is not the BLUE, since it uses no
estimate that mixes cells of several tables (Table 3 and Example 13 of the paper).
"""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.contract import ConvergenceError
from blue_solvers.normal_equations.factorisation import Factor, factorise
from blue_solvers.normal_equations.krylov import conjugate_gradients
from blue_solvers.normal_equations.noisy_equations import EPSILON, ROUNDING
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.schema import Schema
from constraint_builders.description.table import Table, make_table
from constraint_builders.relations.elimination import eliminate
from constraint_builders.relations.marginals import Margin, margin_matrix, refines

DIRECT_ROWS = 4_000  # independent margins of one table up to which they are factorised
RTOL = 1e-12
MAX_ITERATIONS = 10_000


class ObliqueDownPass:
    """The heuristic's linear map and its transpose.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise (assumption A2) and without recodes.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, schema = problem, problem.domain.schema
        self._tables = _downward_closure(schema, problem.desired_tables)
        self._collections = {t.name: _Collection(problem, t) for t in self._tables}
        self._fits = {t.name: _Fit(schema, t, self._collections[t.name].variances) for t in self._tables}

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        estimates = self._estimates(Y)
        return np.concatenate([estimates[table.name] for table in self._problem.desired_tables])

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
        schema = problem.domain.schema
        self._parts: list[tuple[slice, Margin, Float]] = []
        precisions, exact = [], []
        for i, fine in enumerate(problem.observed_tables):
            if refines(schema, fine, table):
                place = problem.observed.block(i)
                margin = Margin(schema, fine, table)
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
    h the estimates below. With the rows of B that are independent, chosen by position, this is a Cholesky
    factorisation; a table with more of them than `DIRECT_ROWS` is fitted by conjugate gradients on all rows.
    """

    def __init__(self, schema: Schema, table: Table, variances: Float) -> None:
        self._D = variances[:, None]
        below = [table.factors[:i] + table.factors[i + 1 :] for i in range(len(table.factors))]
        self._tables = [make_table(schema, factors) for factors in below]
        self._margins = [Margin(schema, table, coarse) for coarse in self._tables]
        self._stops = np.cumsum([coarse.size for coarse in self._tables])
        diagonal = self._sum(self._D) if self._margins else np.zeros((0, 1))
        self._scale = np.where(diagonal > 0, diagonal, 1.0)
        self._rows = _independent_margin_cells(table.shape)
        self._factor: Factor | None = None
        if self._rows.size <= DIRECT_ROWS and self._margins:
            self._factorise(schema, table)

    def _factorise(self, schema: Schema, table: Table) -> None:
        margins = [margin_matrix(schema, table, coarse) for coarse in self._tables]
        B = sparse.csr_array(sparse.vstack(margins, format="csr"))
        noisy = self._D[:, 0] > 0
        if not noisy.all():
            self._rows = self._rows[np.sort(eliminate(B[self._rows], np.flatnonzero(noisy)).pivot_rows)]
        if self._rows.size:
            scaled = sparse.diags_array(1 / np.sqrt(self._scale[self._rows, 0])) @ B[self._rows]
            self._factor = factorise(sparse.csr_array(scaled @ sparse.diags_array(self._D[:, 0]) @ scaled.T))

    def apply(self, collected: Float, estimates: dict[str, Float]) -> Float:
        if not self._margins:
            return collected
        below, own = self._below(estimates), self._sum(collected)
        magnitude = abs(below) + self._sum(abs(collected))
        return collected + self._D * self._spread(self._solve(below - own, magnitude))

    def violation(self, own: Float, estimates: dict[str, Float]) -> float:
        """Largest difference between the table's sums and the estimates below it."""
        return float(abs(self._below(estimates) - self._sum(own)).max()) if self._margins else 0.0

    def _below(self, estimates: dict[str, Float]) -> Float:
        return np.concatenate([estimates[coarse.name] for coarse in self._tables])

    def adjoint(self, V: Float, pending: dict[str, Float]) -> Float:
        """Transpose: the part for the collected counts; the part for the margins is added to `pending`."""
        if not self._margins:
            return V
        multipliers = self._solve(self._sum(self._D * V), self._sum(self._D * abs(V)))
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

    def _solve(self, R: Float, magnitude: Float) -> Float:
        """(B D B')^+ R, for R that consistent margins leave, a difference of numbers as large as `magnitude`."""
        if self._rows.size > DIRECT_ROWS:
            return self._iterate(R, magnitude)
        Z = np.zeros_like(R)
        if self._factor is not None:
            deviations = np.sqrt(self._scale[self._rows])
            for _ in range(2):  # the second corrects the rounding of the first
                residual = (R - self._normal_product(Z))[self._rows] if Z.any() else R[self._rows]
                Z[self._rows] += self._factor.solve(residual / deviations) / deviations
        return Z

    def _iterate(self, R: Float, magnitude: Float) -> Float:
        """The same by conjugate gradients; what rounding leaves in R is in no range, so it is no target."""
        deviations = np.sqrt(self._scale)

        def sizes(residual: Float) -> Float:
            return np.linalg.norm(residual / deviations, axis=0)

        target = np.maximum(RTOL * sizes(R), ROUNDING * EPSILON * sizes(magnitude))
        Z, _, converged = conjugate_gradients(
            self._normal_product,
            R,
            lambda M: M / self._scale,
            lambda residual, _: sizes(residual),
            target,
            MAX_ITERATIONS,
        )
        if not converged or not (sizes(R - self._normal_product(Z)) <= 10 * target).all():
            raise ConvergenceError("sea_blue's oblique down pass did not converge: use solver='cholesky' or 'cg'")
        return Z

    def _normal_product(self, Z: Float) -> Float:
        return self._sum(self._D * self._spread(Z))


def _independent_margin_cells(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Which cells of the margins over all variables but one, in their order, determine the others.

    Of the margin without variable i those with no variable before i at its last level: a last level follows from the
    margin without that variable.
    """
    chosen, start = [np.zeros(0, dtype=np.intp)], 0
    for i in range(len(shape)):
        rest = shape[:i] + shape[i + 1 :]
        cells = np.arange(prod(rest)).reshape(rest)[tuple(slice(0, levels - 1) for levels in shape[:i])]
        chosen.append(start + cells.ravel())
        start += prod(rest)
    return np.concatenate(chosen)

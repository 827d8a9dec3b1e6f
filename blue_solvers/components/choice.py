"""The exact estimate of tables without geography: the sweeps over intersections, and of few cells their matrix.

For that matrix take along every variable an orthogonal basis of whole numbers whose last vector is constant. In it
every table sees a part of the coordinates, each of which by itself (`algebra.md`): the information about them, B' W B
with B what tables see, is diagonal. So the estimate of the coordinates is its inverse times B' W y, and that of a table
what it sees of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol

import numpy as np

from blue_solvers.components.assumptions import group_count, too_large
from blue_solvers.components.lattice.form import LatticeForm
from blue_solvers.components.lattice.plan import TooManyCellsError
from blue_solvers.components.orthogonal import kronecker
from blue_solvers.components.structured_problem import StructuredProblem
from blue_solvers.components.tree.tree_form import TreeForm
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table, factors_of
from constraint_builders.memory import free_memory

MOST_ENTRIES = 1 << 16  # of the matrices of few cells: half a MiB, read in 5 microseconds
WHOLE = 4 * np.finfo(float).eps  # of the sum of the sizes of its terms, that an entry may lack of a whole number
MANY_GROUPS = 600  # two passes take their matrices apart: 1,160 are prepared in 2.6 s for 12.4, 384 in 0.34 s for 0.15


class Components(Protocol):
    """The exact estimate of a problem under assumptions A1 to A3."""

    def apply(self, Y: Float) -> Float:
        """P Y, (n, K) to (m, K)."""

    def adjoint(self, V: Float) -> Float:
        """P' V, (m, K) to (n, K)."""

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a marginal and the sums of a finer one in the estimate from Y."""


def components_of(problem: Problem) -> Components:
    """Of few cells small matrices, otherwise the sweeps, or two passes where recodes make too many groups for them."""
    structured = StructuredProblem.of(problem)
    try:
        if MatrixForm.entries(structured) <= MOST_ENTRIES:
            return MatrixForm(structured)
        recoded = not problem.factors.issubset(problem.domain.schema.names)
        if recoded and group_count(problem) > MANY_GROUPS and too_large(problem) is None:
            return TreeForm(structured)
        return LatticeForm(structured, free_memory())
    except TooManyCellsError:
        return TreeForm(structured)


class MatrixForm:
    """The exact estimate of few cells: a product takes less time than the calls of any other form.

    Parameters
    ----------
    problem : StructuredProblem
        Of one geounit, without zeros, whose tables have no recodes.
    """

    def __init__(self, problem: StructuredProblem) -> None:
        self._tables, self._layout = problem.observed_tables, problem.observed
        self._axes = [i for i in range(len(problem.schema.shape)) if any(i in own.axes for own in problem.tables)]
        self._shape = [problem.schema.shape[axis] for axis in self._axes]
        self._bases = [_basis(levels) for levels in self._shape]
        self._observed = self._seen_by(self._tables)
        is_same = problem.desired_tables is self._tables
        self._desired = self._observed if is_same else self._seen_by(problem.desired_tables)
        variances = np.repeat(np.concatenate(problem.geounit_variances), problem.observed.sizes)[:, None]
        noisy = np.isfinite(variances) & (variances > 0)
        precisions = self._observed * np.divide(1.0, variances, out=np.zeros_like(variances), where=noisy)
        exact = self._observed * (variances == 0)
        information, is_known = (precisions * self._observed).sum(axis=0), exact.any(axis=0)
        told = (information > 0) & ~is_known
        self._variances = np.divide(1.0, information, out=np.zeros_like(information), where=told)
        known = np.divide(1.0, (exact**2).sum(axis=0), out=np.zeros_like(information), where=is_known)
        self._estimate = (precisions * self._variances + exact * known).T
        self._matrix = _product(self._desired, self._estimate)

    @staticmethod
    def entries(problem: StructuredProblem) -> float:
        """Of its matrices; infinitely many where tables have recodes."""
        schema, used = problem.schema, factors_of(problem.tables)
        if not used.issubset(schema.names):
            return np.inf
        return prod(map(schema.size_of, used), start=1.0) * (problem.observed.size + problem.desired.size)

    def _seen_by(self, tables: Sequence[Table]) -> Float:
        """What tables see of the coordinates, (cells, coordinates)."""
        totals = [levels * (np.arange(levels) == levels - 1)[None].astype(float) for levels in self._shape]
        pairs = list(zip(self._axes, self._bases, totals, strict=True))
        parts = [kronecker([own if axis in table.axes else total for axis, own, total in pairs]) for table in tables]
        return np.concatenate(parts)

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._matrix @ np.ascontiguousarray(Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._matrix.T @ np.ascontiguousarray(V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return self._desired**2 @ self._variances

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of all cells in the estimate from Y."""
        coordinates = self._estimate @ np.ascontiguousarray(Y)
        cells, X, worst = coordinates.reshape(*self._shape, -1), self._observed @ coordinates, 0.0
        for axis, basis in enumerate(self._bases):
            cells = np.moveaxis(np.tensordot(basis, cells, (1, axis)), 0, axis)
        for i, table in enumerate(self._tables):
            away = tuple(place for place, axis in enumerate(self._axes) if axis not in table.axes)
            own = X[self._layout.block(i)]
            worst = max(worst, float(abs(cells.sum(axis=away).reshape(own.shape) - own).max()))
        return worst


def _basis(levels: int) -> Float:
    """Helmert's contrasts, of every level with those before it, and the constant vector."""
    contrasts = np.triu(np.ones((levels, levels))) - np.diag(np.arange(1.0, levels), -1)
    contrasts[:, -1] = 1
    return contrasts


def _product(left: Float, right: Float) -> Float:
    """Their product, whose entries are whole numbers where they are so but for the rounding of their terms."""
    product = left @ right
    whole = np.rint(product)
    return np.where(abs(product - whole) <= WHOLE * (abs(left) @ abs(right)), whole, product)

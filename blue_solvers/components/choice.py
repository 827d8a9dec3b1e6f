"""The exact estimate of tables without geography: the sweeps over intersections, and of few cells their matrix.

For that matrix take along every variable an orthogonal basis of whole numbers whose last vector is constant. In it
every table sees a part of the coordinates, each of which by itself (`algebra.md`): the information about them, B' W B
with B what tables see, is diagonal. So the estimate of the coordinates is its inverse times B' W y, and that of a table
what it sees of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Protocol

import numpy as np

from blue_solvers.components.assumptions import group_count, too_large
from blue_solvers.components.orthogonal import kronecker
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.table import Table, axes_of
from constraint_builders.memory import free_memory

MOST_ENTRIES = 1 << 16  # of the matrices of few cells: half a MiB, read in 5 microseconds
WHOLE = 4 * np.finfo(float).eps  # of the sum of the sizes of its terms, that an entry may lack of a whole number
MANY_GROUPS = 1_000  # two passes take matrices apart: 1,408 are prepared in 0.9 s for 2.1, 806 in 0.8 s for 0.5


class Components(Protocol):
    """The exact estimate of a problem under assumptions A1 to A3."""

    def apply(self, Y: Float) -> Float:
        """P Y, (n, K) to (m, K)."""
        return self.apply_checked(Y)[0]

    def adjoint(self, V: Float) -> Float:
        """P' V, (m, K) to (n, K)."""

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest disagreement between a marginal and the sums of a finer one in the estimate."""


def components_of(problem: Problem) -> Components:
    """Of few cells small matrices, otherwise the sweeps, or two passes where recodes make too many groups for them."""
    structured, recoded = StructuredProblem.of(problem), not problem.factors.issubset(problem.domain.schema.names)
    if not recoded and MatrixForm.entries(structured) <= MOST_ENTRIES:
        return MatrixForm(structured)

    from blue_solvers.components.lattice.form import LatticeForm
    from blue_solvers.components.lattice.plan import TooManyCellsError
    from blue_solvers.components.tree.tree_form import TreeForm

    try:
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

    has_exact_zeros = True

    def __init__(self, problem: StructuredProblem) -> None:
        self._tables = problem.observed_tables
        self._axes = axes_of(problem.tables)
        self._shape = [problem.schema.shape[axis] for axis in self._axes]
        self._cells = kronecker([_basis(levels) for levels in self._shape])
        self._observed = self._sums(self._tables, self._cells)
        is_same = problem.desired_tables is self._tables
        self._desired = self._observed if is_same else self._sums(problem.desired_tables, self._cells)
        variances = np.repeat(np.concatenate(problem.geounit_variances), problem.observed.sizes)
        exact = variances == 0
        weights = 1.0 / np.where(exact, 1.0, variances)  # none where nothing was measured
        is_known = exact @ (self._observed != 0)
        told = self._observed * (weights[:, None] * (exact[:, None] == is_known))
        information = (told * self._observed).sum(axis=0)
        is_told = information > 0
        inverse = is_told / np.where(is_told, information, 1.0)
        self._variances, self._estimate = inverse * ~is_known, (told * inverse).T
        self._matrix = _product(self._desired, self._estimate)

    @staticmethod
    def entries(problem: StructuredProblem) -> float:
        """Of its matrices."""
        cells = prod((problem.schema.shape[axis] for axis in axes_of(problem.tables)), start=1.0)
        return cells * (cells + problem.observed.size + problem.desired.size)

    def _sums(self, tables: Sequence[Table], cells: Float) -> Float:
        """What tables make of all cells in columns, (cells, K): (their cells, K)."""
        cells, K = cells.reshape(*self._shape, -1), cells.shape[1]
        away = [tuple([place for place, axis in enumerate(self._axes) if axis not in own.axes]) for own in tables]
        return np.concatenate([np.add.reduce(cells, own).reshape(-1, K) for own in away])

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        return self._matrix @ np.ascontiguousarray(Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        return self._matrix.T @ np.ascontiguousarray(V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return self._desired**2 @ self._variances

    def apply_checked(self, Y: Float) -> tuple[Float, float]:
        """P Y, (m, K), and the largest disagreement between a table and the sums of all cells."""
        coordinates = self._estimate @ np.ascontiguousarray(Y)
        gaps = self._sums(self._tables, self._cells @ coordinates) - self._observed @ coordinates
        return self.apply(Y), float(abs(gaps).max())


@lru_cache
def _basis(levels: int) -> Float:
    """Helmert's contrasts, of every level with those before it, and the constant vector."""
    column = np.arange(float(levels))
    row = column[:, None]
    basis: Float = (row <= column) - row * (row == column + 1)
    basis.flags.writeable = False
    return basis


def _product(left: Float, right: Float) -> Float:
    """Product of (r, k) and (k, q), whose entries are whole numbers where they are so but for rounding of terms."""
    product = left @ right
    whole = np.rint(product)
    return np.where(abs(product - whole) <= WHOLE * (abs(left) @ abs(right)), whole, product)

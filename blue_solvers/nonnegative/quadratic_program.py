"""The one optimisation problem that every non-negative fit is made of."""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers.contract import ConvergenceError
from blue_solvers.nonnegative.tables import TabularRows
from constraint_builders.arrays import Float, Integers

DENSE_ENTRIES = 1e5


class NotConvergedError(ConvergenceError):
    """A fit did not reach its accuracy; the message names the residual and what to do."""


@dataclass(frozen=True)
class Grams:
    """M diag(inverse) M' + diag(added) for changing diagonals, whose pattern is found once.

    Of some hundreds of rows sparse products would take longer than all else of a Newton step.

    Attributes
    ----------
    pairs : csr_array, (m + p, d)
        Products of two entries of a column of M, in rows the diagonal of the matrix, then its entries above that.
    pattern : csc_matrix, (m, m)
        Of the matrix.
    places : ndarray of int
        In which row of `pairs` each of its entries is.
    order : dict
        What factors of all such matrices have in common.
    """

    pairs: sparse.csr_array
    pattern: sparse.csc_matrix
    places: Integers
    order: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, M: sparse.csc_array) -> Grams:
        """Of M, (m, d), by columns with sorted rows."""
        rows, columns = M.shape[0], np.repeat(np.arange(M.shape[1]), np.diff(M.indptr))
        one, away, pairs = np.arange(M.nnz), 0, []
        while one.size:
            pairs.append(np.stack([one, one + away]))
            away += 1
            one = one[: np.searchsorted(one, M.nnz - away)]
            one = one[columns[one] == columns[one + away]]
        first, second = np.concatenate(pairs, axis=1) if pairs else np.zeros((2, 0), dtype=np.intp)
        above, below = M.indices[first[M.nnz :]], M.indices[second[M.nnz :]]
        found, place = np.unique(above * np.int64(rows) + below, return_inverse=True)
        of_rows = np.concatenate([M.indices, rows + place]), columns[first]
        products = sparse.csr_array((M.data[first] * M.data[second], of_rows), shape=(rows + found.size, M.shape[1]))
        (above, below), diagonal = np.divmod(found, max(rows, 1)), np.arange(rows)
        numbers = np.concatenate([diagonal, rows + np.tile(np.arange(found.size), 2)]) + 1  # none is 0
        ends = np.concatenate([diagonal, above, below]), np.concatenate([diagonal, below, above])
        pattern = sparse.csc_matrix((numbers, ends), shape=(rows, rows))
        pattern.sort_indices()
        return cls(products, pattern, pattern.data - 1)

    def matrix(self, inverse: Float, added: Float) -> sparse.csc_matrix:
        """The matrix, (m, m), for diagonals (d,) and (m,)."""
        entries = self.pairs @ inverse
        entries[: added.size] += added
        matrix = copy(self.pattern)  # of which the indices are shared
        matrix.data = entries[self.places]
        return matrix


@dataclass(frozen=True)
class QuadraticProgram:
    """A separable quadratic in cells x and in rows z = M x, with bounds on the cells.

    Minimise ``sum_j weight_j / 2 (x_j - target_j)^2 + sum_i (z_i - answer_i)^2 / (2 variance_i)`` subject to ``z = M
    x`` and ``lower <= x <= upper``. A row with bounds is a cell of its own, see `bounded_sums.with_bounds_on`.

    Attributes
    ----------
    M : csc_array, (m, d)
        Rows over cells; indices sorted within columns.
    target, weight, lower, upper : ndarray, (d,)
        Of the cells, in counts and inverse squared counts.
    answer, variance : ndarray, (m,)
        Of the rows, in counts and squared counts. Variance 0: the row equals its answer.
        Many programs that differ in targets and answers alone may stand together, (K, d) and (K, m); see `one`.
    tables : TabularRows or None
        The first of the rows as tables of all cells, where they are: for large programs the closed form is faster.
    shared : dict
        What was worked out of M, for all programs of the same M.
    """

    M: sparse.csc_array
    target: Float
    weight: Float
    lower: Float
    upper: Float
    answer: Float
    variance: Float
    tables: TabularRows | None = None
    shared: dict[str, tuple] = field(default_factory=dict, compare=False, repr=False)

    def once(self, what: str, make: Callable[[], Any], *given: Any) -> Any:
        """What is worked out of M, and of further arrays, once for all programs that share them."""
        of = (self.M, *given)
        kept = self.shared.get(what)
        if kept is None or len(kept[0]) != len(of) or not all(map(operator.is_, kept[0], of)):
            kept = self.shared[what] = of, make()
        return kept[1]

    def upright(self, matrix: Any) -> Any:
        """The transpose of `plain`, or of `sizes`."""
        return self.once("plain transposed" if matrix is self.plain else "sizes transposed", lambda: matrix.T)

    @cached_property
    def scale(self) -> float:
        """The largest count in sight, 1 if there is none: what residuals are compared with."""
        nearest = np.clip(0.0, self.lower, self.upper)
        return float(max(abs(own).max(initial=0.0) for own in (self.answer, self.target, nearest))) or 1.0

    @cached_property
    def most(self) -> float:
        """What the objective is at most of any cells that meet the rows; infinite where nothing says so."""
        if self.variance.any() or (self.M.data < 0).any() or (self.lower < 0).any():
            return np.inf
        largest = self.upper.copy()
        cells = np.repeat(np.arange(largest.size), np.diff(self.M.indptr))[self.M.data > 0]
        rows, entries = self.M.indices[self.M.data > 0], self.M.data[self.M.data > 0]
        np.minimum.at(largest, cells, self.answer[rows] / entries)
        farthest = np.maximum(abs(self.lower - self.target), abs(largest - self.target))
        return float((self.weight * farthest**2).sum() / 2)

    @cached_property
    def plain(self) -> Any:
        """M, as a dense array where it is small."""
        return self.once(
            "plain", lambda: self.M.toarray() if self.M.shape[0] * self.M.shape[1] <= DENSE_ENTRIES else self.M
        )

    @cached_property
    def products(self) -> Any:
        """M as what multiplies fastest, also transposed."""
        return self.plain if self.tables is None or self.plain is not self.M else self.tables

    @cached_property
    def transposed(self) -> Any:
        """The transpose of `products`."""
        return self.upright(self.plain) if self.products is self.plain else self.products.T

    @cached_property
    def squares(self) -> Any:
        """Squares of the entries of M, as what multiplies fast."""
        if isinstance(self.products, np.ndarray):
            return self.once("squares", lambda: self.plain**2)
        return self.once(
            "squares", lambda: self.products if (self.M.data == 1).all() else self.M.power(2), self.products
        )

    @cached_property
    def grams(self) -> Grams:
        """What makes M diag(inverse) M' for changing diagonals."""
        return self.once("grams", lambda: Grams.of(self.M))

    @cached_property
    def sizes(self) -> Any:
        """Absolute values of M."""
        return self.once("sizes", lambda: self.plain if (self.M.data >= 0).all() else abs(self.plain))

    def one(self, number: int) -> QuadraticProgram:
        """One of many programs that stand together."""
        return replace(self, target=self.target[number], answer=self.answer[number])

    def with_rows(self, rows: Any, answer: Any, variance: Any) -> QuadraticProgram:
        """The same program with further rows, (k, d), and what they are measured as."""
        rows = sparse.csr_array(np.atleast_2d(rows) if isinstance(rows, np.ndarray) else rows, dtype=np.float64)
        return replace(
            self,
            M=csc(sparse.vstack([self.M, rows])),
            answer=beside(self.answer, np.broadcast_to(answer, rows.shape[:1])),
            variance=np.append(self.variance, variance),
            tables=None if self.tables is None else self.tables.with_rows(rows),
            shared={},
        )

    @property
    def kind(self) -> str:
        """What its cells are called in a message."""
        return "non-negative cells" if (self.lower >= 0).all() else "cells"

    @cached_property
    def precision(self) -> Float:
        """Inverse variance of every row, (m,); 0 of those held exactly."""
        return np.divide(1.0, self.variance, out=np.zeros_like(self.variance), where=self.variance > 0)

    @cached_property
    def curvature(self) -> Float:
        """Second derivative of the objective along every cell, (d,); rows held exactly do not count."""
        made = self.once("curvature", lambda: self.weight + self.squares.T @ self.precision, self.weight, self.variance)
        return np.asarray(made)


def beside(many: Float, own: Float) -> Float:
    """Numbers of many programs, (..., m), and after them the same of each, (k,), or others, (..., k)."""
    return np.concatenate([many, np.broadcast_to(own, (*many.shape[:-1], own.shape[-1]))], axis=-1)


def csc(matrix: sparse.sparray) -> sparse.csc_array:
    """Columns of floats with sorted indices: what programs are made of."""
    result = sparse.csc_array(matrix, dtype=np.float64)
    result.sort_indices()
    return result


@dataclass(frozen=True)
class Solution:
    """Cells and row multipliers that solve a program, and the Newton steps that it took."""

    cells: Float
    multipliers: Float
    iterations: int


def kkt_residual(program: QuadraticProgram, solution: Solution, deviation: Float | None = None) -> float:
    """How far a solution is from satisfying the optimality conditions, in counts.

    Computed from the cells and the multipliers of exact rows alone: the largest of the distances that one projected
    gradient step (scaled by `QuadraticProgram.curvature`) would move a cell, and that a row is from its exact answer.
    It is zero only at a solution.

    Parameters
    ----------
    program : QuadraticProgram
    solution : Solution
    deviation : ndarray, (m,), optional
        Of its rows from their answers, where that is known.

    Returns
    -------
    float
    """
    x, p = solution.cells, program
    deviation = p.plain @ x - p.answer if deviation is None else deviation
    exact = p.variance == 0
    gradient = p.weight * (x - p.target) + p.upright(p.plain) @ np.where(
        exact, solution.multipliers, deviation * p.precision
    )
    curvature = p.curvature
    step = gradient / np.where(curvature > 0, curvature, 1.0)
    cells = abs(x - np.clip(x - step, p.lower, p.upper))
    return float(max(cells.max(initial=0.0), abs(deviation[exact]).max(initial=0.0)))

"""The exact estimate of few cells through the entries of its matrix.

Without recodes the entry between a cell of a desired table T and one of an observed table S depends only on which of
their common variables have the same level in both:

    P[t, s] = precision of S / (cells of S * cells of T) * sum over sets A of common variables
              1 / density(A) * product over variables of A of (levels - 1 where t and s agree, -1 where they do not)

with density(A) the sum over observed tables that keep A of precision / cells: the sweeps' formula, for unit vectors.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blue_solvers.components.lattice.form import LatticeForm
from blue_solvers.components.lattice.sets import intersections, maximal
from blue_solvers.components.structured_problem import StructuredProblem
from constraint_builders.arrays import Float, Integers
from constraint_builders.description.table import Table, factors_of

MOST_PRODUCTS = 1 << 21  # of entries and columns: 70 microseconds
MOST_VARIABLES = 8  # of which all sets are listed


class MatrixForm:
    """The exact estimate of few cells: a product takes less time than the calls of any other form.

    With many columns it does not, and they go to the sweeps.

    Parameters
    ----------
    problem : StructuredProblem
    """

    def __init__(self, problem: StructuredProblem) -> None:
        self._problem = problem
        self._closed: TableEntries | LatticeForm = TableEntries(problem) if TableEntries.suits(problem) else self.form

    @cached_property
    def form(self) -> LatticeForm:
        """The sweeps, which round less where variances differ by many decades, as iterations need."""
        return LatticeForm(self._problem, compiled=False)

    @cached_property
    def _all(self) -> Float:
        return self._closed.entries()

    @cached_property
    def _matrix(self) -> Float:
        return np.ascontiguousarray(self._closed.desired_of(self._all))

    def apply(self, Y: Float) -> Float:
        """P Y, (m, K)."""
        if self._matrix.size * Y.shape[1] > MOST_PRODUCTS:
            return self.form.apply(Y)
        return self._matrix @ np.ascontiguousarray(Y)

    def adjoint(self, V: Float) -> Float:
        """P' V, (n, K)."""
        if self._matrix.size * V.shape[1] > MOST_PRODUCTS:
            return self.form.adjoint(V)
        return self._matrix.T @ np.ascontiguousarray(V)

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        return self._closed.variances()

    def violation(self, Y: Float) -> float:
        """Largest disagreement between a table and the sums of a finer one in the estimate from Y."""
        return self._closed.disagreement(self._all @ np.ascontiguousarray(Y))


class TableEntries:
    """The entries of tables of few variables without recodes, and what has all tables agree.

    Parameters
    ----------
    problem : StructuredProblem
    """

    def __init__(self, problem: StructuredProblem) -> None:
        shape = problem.schema.shape
        self._levels = np.array([size for size in shape if size > 1], dtype=np.int64)
        places = np.cumsum(np.array(shape) > 1) - 1
        bits = [1 << place if size > 1 else 0 for place, size in zip(places.tolist(), shape, strict=True)]

        def masks(tables: tuple[Table, ...]) -> list[int]:
            return [sum([bits[axis] for axis in table.axes]) for table in tables]

        variances = np.concatenate(problem.geounit_variances)
        desired = masks(problem.desired_tables)
        observed = desired if problem.observed_tables is problem.desired_tables else masks(problem.observed_tables)
        told = {mask for mask, variance in zip(observed, variances.tolist(), strict=True) if variance < np.inf}
        self._most = maximal(told | set(desired))
        others = sorted(intersections(told | set(desired)).difference(desired))
        self._tables, self._desired = _Tables([*desired, *others], self._levels), len(desired)
        self._observed = self._tables if observed is desired and not others else _Tables(observed, self._levels)
        self._is_exact = variances == 0
        noisy = np.isfinite(variances) & ~self._is_exact
        precisions = np.divide(1.0, variances, out=self._is_exact.astype(float), where=noisy)
        self._weights = precisions / self._observed.sizes
        self._sums = self._sums_by_agreement()

    @staticmethod
    def suits(problem: StructuredProblem) -> bool:
        """Whether all sets of its variables may be listed, and no table has a recode."""
        names = problem.schema.names
        several = sum(size > 1 for size in problem.schema.shape)
        return several <= MOST_VARIABLES and factors_of(problem.tables).issubset(names)

    def _sums_by_agreement(self) -> Float:
        """The sums over sets, of noisy tables and then of exact ones, (2 * 3**variables,).

        A variable's digit is 0 where it is not common, 1 where its levels differ, and 2 where they agree.
        """
        count = self._levels.size
        densities = np.zeros((2, 1 << count))
        np.add.at(densities, (self._is_exact.astype(int), self._observed.masks), self._weights)
        for place in range(count):
            along = densities.reshape(2, -1, 2, 1 << place)
            along[:, :, 0] += along[:, :, 1]
        densities[0, densities[1] > 0] = 0.0
        sums = np.divide(1.0, densities, out=np.zeros_like(densities), where=densities > 0)
        for place, levels in enumerate(self._levels.tolist()):
            along = sums.reshape(2, -1, 2, 3**place)
            without, inside = along[:, :, 0], along[:, :, 1]
            sums = np.stack([without, without - inside, without + (levels - 1) * inside], axis=2)
        return sums.ravel()

    def entries(self) -> Float:
        """For all tables, the desired ones first, (cells, n)."""
        rows, columns, digits = self._tables, self._observed, 3.0 ** np.arange(self._levels.size)
        weights = np.concatenate([digits, np.repeat(digits, self._levels), [3.0**digits.size]])
        code = (rows.indicators(np.ones(rows.sizes.size)) * weights) @ columns.indicators(self._is_exact).T
        found = self._sums.take(code.astype(np.intp))
        found *= self._weights[columns.of]
        found /= rows.sizes[rows.of, None]
        return found

    def desired_of(self, cells: Float) -> Float:
        """The desired tables, which come first, of (cells, K), (m, K)."""
        return cells[: self._tables.sizes[: self._desired].sum()]

    def variances(self) -> Float:
        """Variance of every desired cell, (m,)."""
        own = slice(self._desired)
        agree = 2 * (self._tables.keeps[own] @ 3 ** np.arange(self._levels.size))
        sizes = self._tables.sizes[own]
        return np.repeat(self._sums[agree] / sizes.astype(float) ** 2, sizes)

    def disagreement(self, cells: Float) -> float:
        """Largest difference between a table and the sums of each of the finest that hold it, of (cells, K)."""
        tables, last = self._tables, cells.shape[1:]
        masks, starts = tables.masks, tables.starts.tolist()
        parts = [cells[start:stop] for start, stop in zip(starts, [*starts[1:], len(cells)], strict=True)]
        worst = [0.0]
        for most in self._most:
            first = masks.index(most)
            fine = parts[first].reshape(*tables.shapes[first], *last)
            for number, own in enumerate(masks):
                if own & most == own and number != first:
                    summed = np.add.reduce(fine, tuple(np.flatnonzero(tables.shapes[number] < tables.shapes[first])))
                    worst.append(abs(summed.reshape(parts[number].shape) - parts[number]).max())
        return float(max(worst))


class _Tables:
    """Tables one after the other: the variables that each keeps, and its cells, in C order."""

    def __init__(self, masks: list[int], levels: Integers) -> None:
        self.masks, self._levels = masks, levels
        self.keeps = np.array(masks, dtype=np.int64)[:, None] >> np.arange(levels.size) & 1
        self.shapes = np.where(self.keeps, levels, 1)
        self.sizes = self.shapes.prod(axis=1)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.of = np.repeat(np.arange(len(masks)), self.sizes)  # the table of every cell

    def indicators(self, last: NDArray[Any]) -> Float:
        """Of every cell the variables kept, the levels that it has along them, and what its table has in `last`."""
        after = np.cumprod(self.shapes[:, ::-1], axis=1)[:, ::-1] // self.shapes
        cells, total = np.arange(self.of.size), int(self._levels.sum())
        level = (cells - self.starts[self.of]) // after.T[:, self.of] % self.shapes.T[:, self.of]
        first = (np.cumsum(self._levels) - self._levels)[:, None]
        found = np.zeros((self.of.size, total + 1))
        found[cells, np.where(self.keeps.T[:, self.of], first + level, total)] = 1
        found[:, total] = last[self.of]
        return np.concatenate([self.keeps[self.of], found], axis=1)

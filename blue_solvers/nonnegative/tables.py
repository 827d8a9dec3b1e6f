"""Rows that are the cells of tables: products with them, and Newton systems with all cells free, by the closed form."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

from blue_solvers.operator import BlueOperator, blue
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float

SMALLEST_VARIANCE = 1e-3  # of a row's cells: stands for 0 in the preconditioner


class TabularRows(LinearOperator):
    """The matrix from detailed cells to tables of a schema, whose cells follow one another, and to further sums.

    Parameters
    ----------
    schema : Schema
    tables : tuple of str
        None of them the detailed one.
    further : csr_array, (k, d)
    """

    def __init__(self, schema: Schema, tables: tuple[str, ...], further: sparse.csr_array) -> None:
        self._schema, self._tables, self._further = schema, tables, further
        self._sums = blue(Problem(schema, {"detailed": 1.0}, desired=tables))
        self._size = self._sums.shape[0]
        self._estimates: dict[tuple[float, ...], BlueOperator] = {}
        super().__init__(np.float64, (self._size + further.shape[0], further.shape[1]))

    def with_rows(self, rows: sparse.csr_array) -> TabularRows:
        """The same with more rows, (further, cells), after its own."""
        other = copy(self)
        other._further = sparse.csr_array(sparse.vstack([self._further, rows]))
        other.shape = (self._size + other._further.shape[0], self.shape[1])
        return other

    def _matvec(self, cells: Float) -> Float:
        """The sums of cells, (d,), over the tables and further rows, (m,)."""
        sums, further = self._sums.matvec(cells.ravel()), self._further
        return np.concatenate([sums, further @ cells.ravel()]) if further.shape[0] else sums

    def _rmatvec(self, rows: Float) -> Float:
        cells, further = self._sums.rmatvec(rows.ravel()[: self._size]), self._further
        return cells + further.T @ rows.ravel()[self._size :] if further.shape[0] else cells

    def inverse(self, variance: Float, weight: float) -> Callable[[Float], Float]:
        """About the inverse of ``M M' / weight + diag(variance)``.

        Of tables with one variance each what is left of the rows when the sums of their estimates, with all cells
        measured as 0, are taken off; of further rows the diagonal.

        Parameters
        ----------
        variance : ndarray, (m,)
            The median of a table stands for all; 0 is replaced by a thousandth of what its cells bring.
        weight : float
            Of every cell.
        """
        layout, size = self._sums.problem.desired, self._size
        places, cells = [layout.slice(name) for name in layout.names], self.shape[1]
        folded = np.array([cells / (place.stop - place.start) for place in places])
        weight = 2 ** round(np.log2(weight))  # the same for several steps
        own = np.maximum([np.median(variance[place]) for place in places], SMALLEST_VARIANCE * folded / weight)
        if (weight, *own) not in self._estimates:
            observed = dict(zip(self._tables, own.tolist(), strict=True)) | {"detailed": 1 / weight}
            self._estimates[weight, *own] = blue(Problem(self._schema, observed, desired=self._tables))
        estimate, zeros = self._estimates[weight, *own], np.zeros(cells)
        precision = np.repeat(1 / own, [place.stop - place.start for place in places])
        diagonal = self._further.power(2).sum(axis=1) / weight + variance[size:]

        def apply(rows: Float) -> Float:
            left = rows[:size] - estimate.matvec(np.concatenate([rows[:size], zeros]))
            return np.concatenate([precision * left, rows[size:] / diagonal])

        return apply

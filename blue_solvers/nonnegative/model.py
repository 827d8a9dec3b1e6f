"""How a problem's measurements rest on the detailed cells that are to be fitted."""

from __future__ import annotations

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blue_solvers.nonnegative.margins import PlainMargins
from blue_solvers.nonnegative.programme import Float, Programme
from constraint_builders import Problem
from constraint_builders.layout import Name

_models: WeakKeyDictionary[Problem, FittingModel] = WeakKeyDictionary()


class FittingModel:
    """A problem seen from its detailed cells: which observed rows are cells themselves, which are sums of cells.

    Parameters
    ----------
    problem : Problem
        With uncorrelated noise.

    Attributes
    ----------
    M : csr_array, (n, d)
        From the detailed cells to the observed layout.
    cell_rows : ndarray of int, (d,)
        For every cell the measured row that is this cell alone, or -1.
    sum_rows : ndarray of int
        All other rows that were measured.

    Raises
    ------
    ValueError
        If the noise is correlated.
    """

    def __init__(self, problem: Problem) -> None:
        if problem.covariance is not None:
            raise ValueError(
                "a non-negative fit needs uncorrelated noise: this problem has a covariance. Give variances, or use "
                "blue()"
            )
        self.problem = problem
        if problem.schema is None:
            self.M = sparse.csr_array(sparse.eye_array(problem.observed.size, format="csr"))
        else:
            self.M = problem.marginal_matrix()
        self.M.sort_indices()
        self.measured = ~problem.unmeasured
        self._labels: dict[Name, NDArray[np.intp]] = {}
        self._places = {name: problem.observed.slice(name) for name in problem.observed.names}
        self.cell_rows = self._find_cell_rows()
        others = self.measured.copy()
        others[self.cell_rows[self.cell_rows >= 0]] = False
        self.sum_rows = np.flatnonzero(others)

    @classmethod
    def of(cls, problem: Problem) -> FittingModel:
        """The model of a problem, made once for as long as the problem lives."""
        if problem not in _models:
            _models[problem] = cls(problem)
        return _models[problem]

    def _find_cell_rows(self) -> NDArray[np.intp]:
        alone = np.flatnonzero((np.diff(self.M.indptr) == 1) & self.measured)
        found = np.full(self.M.shape[1], -1, dtype=np.intp)
        # The last one written stays: the most precise.
        alone = alone[np.argsort(-self.problem.variances[alone], kind="stable")]
        found[self.M.indices[self.M.indptr[alone]]] = alone
        return found

    @cached_property
    def sums(self) -> sparse.csc_array:
        """From the cells to `sum_rows`, and to the equations of a problem made from a matrix; (m, d)."""
        matrix = self.M[self.sum_rows]
        if self.problem.schema is None:
            matrix = sparse.vstack([matrix, self.problem.constraint_matrix("all")])
        return csc(matrix)

    @cached_property
    def cell_variances(self) -> Float:
        """Variance with which every cell was measured by itself, (d,); ``inf`` where it was not."""
        return np.where(self.cell_rows >= 0, self.problem.variances[self.cell_rows], np.inf)

    @cached_property
    def sum_variances(self) -> Float:
        """Variance of every row of `sums`, (m,)."""
        variances = self.problem.variances[self.sum_rows]
        return np.concatenate([variances, np.zeros(self.sums.shape[0] - variances.size)])

    @cached_property
    def cell_weights(self) -> Float:
        """Inverse of `cell_variances`; 1 for cells known exactly, which no weight moves."""
        return 1 / np.where(self.cell_variances == 0, 1.0, self.cell_variances)

    def cell_answers(self, y: Float) -> Float:
        """The measurements of the cells by themselves, (d,); 0 where there are none."""
        return np.where(self.cell_rows >= 0, y[self.cell_rows], 0.0)

    def sum_answers(self, y: Float) -> Float:
        """The measurements of `sums`, (m,)."""
        if self.problem.schema is not None:
            return y[self.sum_rows]
        equations = self.problem.equations("all")[1]
        return np.concatenate([y[self.sum_rows], equations])

    def programme(self, y: Float, signed: bool = False) -> Programme:
        """Weighted least squares over the cells, non-negative or (`signed`) of any sign.

        Parameters
        ----------
        y : ndarray, (n,)
        signed : bool

        Raises
        ------
        ValueError
            If a value known exactly is negative.
        """
        if not signed:
            self.refuse_negative_exact(y)
        answers, exact = self.cell_answers(y), self.cell_variances == 0
        return Programme(
            M=self.sums,
            target=answers,
            weight=self.cell_weights,
            lower=np.where(exact, answers, -np.inf if signed else 0.0),
            upper=np.where(exact, answers, np.inf),
            answer=self.sum_answers(y),
            variance=self.sum_variances,
            radius=np.full(self.sum_variances.size, np.inf),
            margins=self.margins,
        )

    @cached_property
    def margins(self) -> PlainMargins | None:
        """`sums` as plain margins of the detailed table with equal variances; None where they are something else."""
        problem = self.problem
        if problem.schema is None or problem.table_variances is None:
            return None
        tables = [t for t, measured in zip(problem.observed_tables, problem.measured_tables, strict=True) if measured]
        sums = [table for table in tables if table.name != "detailed"]
        plain = all(set(table.factors) <= set(problem.schema.names) for table in tables)
        if not plain or sum(table.size for table in sums) != self.sum_rows.size:
            return None
        return PlainMargins(problem.schema.shape, tuple(table.axes for table in sums))

    @cached_property
    def exact_rows(self) -> sparse.csr_array:
        """From the cells to everything that is known exactly, (k, d)."""
        rows = self.M[self.problem.exact]
        if self.problem.schema is None:
            rows = sparse.vstack([rows, self.problem.constraint_matrix("all")])
        return sparse.csr_array(rows)

    def exact_answers(self, y: Float) -> Float:
        """The values of `exact_rows`, (k,)."""
        values = y[self.problem.exact]
        return values if self.problem.schema is not None else np.concatenate([values, self.problem.equations("all")[1]])

    @cached_property
    def exact_tables(self) -> tuple[Name, ...]:
        """The tables that are known exactly as a whole."""
        return tuple(name for name in self.problem.observed.names if self.problem.exact[self.place_of(name)].all())

    @cached_property
    def noisy_tables(self) -> tuple[Name, ...]:
        """The tables that were measured and are not known exactly as a whole, in the problem's order."""
        names = self.problem.observed.names
        return tuple(n for n in names if n not in self.exact_tables and self.measured[self.place_of(n)].any())

    def place_of(self, table: Name) -> slice:
        """Where a table sits in the observed layout."""
        return self._places[table]

    def labels(self, table: Name) -> NDArray[np.intp]:
        """For every detailed cell the cell of the table that it is summed into, (d,).

        Raises
        ------
        ValueError
            If the table leaves cells out, being of a geolevel that not all geounits without children lie in.
        """
        if table not in self._labels:
            sums = sparse.csc_array(self.M[self.place_of(table)])
            if sums.nnz < sums.shape[1]:
                raise ValueError(f"table {table!r} does not cover all detailed cells: use nnls or max_fit")
            self._labels[table] = sums.indices.astype(np.intp)
        return self._labels[table]

    def has_one_variance(self, table: Name) -> bool:
        """Whether all cells of a table were measured with the same variance."""
        variances = self.problem.variances[self.place_of(table)]
        return bool((variances == variances[0]).all())

    def refuse_negative_exact(self, y: Float) -> None:
        negative = self.problem.exact & (y < 0)
        if negative.any() and self.problem.schema is not None:
            position = int(np.flatnonzero(negative)[0])
            raise ValueError(
                f"{self.problem.observed.describe(position)} is known exactly and negative ({y[position]:g}): no "
                "non-negative cells sum to it. Correct it, or give it a variance above 0"
            )


def csc(matrix: sparse.sparray) -> sparse.csc_array:
    """Columns of floats with sorted indices: what programmes are made of."""
    result = sparse.csc_array(matrix, dtype=np.float64)
    result.sort_indices()
    return result

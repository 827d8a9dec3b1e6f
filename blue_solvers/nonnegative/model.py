"""How a problem's measurements rest on the detailed cells that are to be fitted."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import lsqr

from blue_solvers.nonnegative.cells import Cells
from blue_solvers.nonnegative.quadratic_program import DENSE_ENTRIES, QuadraticProgram, csc
from blue_solvers.nonnegative.tables import TabularRows
from constraint_builders import Problem
from constraint_builders.arrays import Flags, Float
from constraint_builders.description.layout import Name

ROUNDING = 1e-9  # of the largest exact value, and of 1
FEW_ROWS = 700  # up to which systems are dense: a reweighted fit of 587 rows takes 2.2 times as long by tables
SHARED_ENTRIES = 1_000_000  # of the matrix, up to which programs share what they work out of it
DETERMINED = 1e-6  # by which a combination of rows may miss the sum of all cells
KEPT_AS = "fitting_model"  # among what a problem has worked out


class FittingModel:
    """A problem seen from the cells that are fitted: which observed rows are cells themselves, which are sums of cells.

    Structural zeros are no cells: they are left out, and come back as zeros.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    cells : Cells
        What is fitted.
    possible : ndarray of int, (d,)
        Those that may hold something.
    M : csr_array, (n, d)
        From these cells to the observed layout.
    alone : ndarray of int
        All measured rows that hold one cell, with any weight.
    cell_rows : ndarray of int, (d,)
        For every cell the measured row that holds this cell alone, with any weight, or -1.
    cell_scales : ndarray, (d,)
        Its weight there; 1 where there is none.
    sum_rows : ndarray of int
        All other rows that were measured.
    shared : dict
        What its programs have in common.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.cells = Cells(problem)
        self.possible, self.M = self.cells.possible, self.cells.to_observed()
        self.M.sort_indices()
        self.measured = ~problem.unmeasured
        self._labels: dict[Name, NDArray[np.intp]] = {}
        self._places = {name: problem.observed.slice(name) for name in problem.observed.names}
        self.alone = np.flatnonzero((np.diff(self.M.indptr) == 1) & self.measured)
        self.cell_rows, self.cell_scales = self._find_cell_rows()
        others = self.measured & ~(problem.exact & (np.diff(self.M.indptr) == 0))
        others[self.cell_rows[self.cell_rows >= 0]] = False
        self.sum_rows, self.shared = np.flatnonzero(others), dict[str, tuple]()

    @classmethod
    def of(cls, problem: Problem) -> FittingModel:
        """The model of a problem to be fitted, made once for as long as the problem lives.

        Raises
        ------
        ValueError
            If the noise is correlated.
        """
        if problem.covariance is not None:
            raise ValueError(
                "a non-negative fit needs uncorrelated noise: this problem has a covariance. Give variances, or use "
                "blue()"
            )
        kept: dict[str, FittingModel] = vars(problem)  # nowhere else: a model holds its problem, which would never end
        if KEPT_AS not in kept:
            kept[KEPT_AS] = cls(problem)
        return kept[KEPT_AS]

    @property
    def cells_alone(self) -> NDArray[np.integer]:
        """The cell of every row of `alone`."""
        return self.M.indices[self.M.indptr[self.alone]]

    def _find_cell_rows(self) -> tuple[NDArray[np.intp], Float]:
        alone, cells = self.alone, self.cells_alone
        rows, scales = np.full(self.M.shape[1], -1, dtype=np.intp), np.ones(self.M.shape[1])
        weights = self.M.data[self.M.indptr[alone]]
        if np.bincount(cells, minlength=1).max() > 1:  # the last one written stays: the most precise
            order = np.argsort(-self.problem.variances[alone] / weights**2, kind="stable")
            alone, cells, weights = alone[order], cells[order], weights[order]
        rows[cells], scales[cells] = alone, weights
        return rows, scales

    @cached_property
    def equations(self) -> tuple[sparse.csr_array, Float]:
        """What else is known exactly: equalities, and equations of a problem given by a matrix; (k, d) and (k,)."""
        matrix, values = self.cells.equations()
        return (matrix if self.cells.are_nodes else sparse.csr_array(matrix @ self.M)), values

    @cached_property
    def sums(self) -> sparse.csc_array:
        """From the cells to `sum_rows` and the left-hand sides of `equations`; (m, d)."""
        return csc(self._above_equations(self.sum_rows))

    @cached_property
    def cell_variances(self) -> Float:
        """Variance with which every cell was measured by itself, (d,); ``inf`` where it was not."""
        return np.where(self.cell_rows >= 0, self.problem.variances[self.cell_rows] / self.cell_scales**2, np.inf)

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
        """The measurements of the cells by themselves, (..., d) of (..., n); 0 where there are none."""
        return np.where(self.cell_rows >= 0, y[..., self.cell_rows] / self.cell_scales, 0.0) + 0.0  # no -0

    def sum_answers(self, y: Float) -> Float:
        """The measurements of `sums`, (..., m) of (..., n)."""
        known = np.broadcast_to(self.equations[1], (*y.shape[:-1], self.equations[1].size))
        return np.concatenate([y[..., self.sum_rows], known], axis=-1)

    def program(self, y: Float, signed: bool = False) -> QuadraticProgram:
        """Weighted least squares over the cells, non-negative or (`signed`) of any sign.

        Parameters
        ----------
        y : ndarray, (n,) or (K, n)
            Of many measurements, the same where they are exact, all programs together.
        signed : bool

        Raises
        ------
        ValueError
            If a value known exactly is negative, or of cells that are structural zeros and not 0.
        """
        first = y.reshape(-1, y.shape[-1])[0]
        self.refuse_impossible_exact(first, signed)
        answers, exact = self.cell_answers(first), self.cell_variances == 0
        return QuadraticProgram(
            M=self.sums,
            target=self.cell_answers(y),
            weight=self.cell_weights,
            lower=np.where(exact, answers, -np.inf if signed else 0.0),
            upper=np.where(exact, answers, np.inf),
            answer=self.sum_answers(y),
            variance=self.sum_variances,
            tables=self.tables,
            shared=self.shared if self.sums.nnz <= SHARED_ENTRIES else {},
        )

    @cached_property
    def tables(self) -> TabularRows | None:
        """`sums` as tables of one variance each of all detailed cells; None where they are something else, or few."""
        problem, sums = self.problem, self.sums
        plain = problem.is_tabular and problem.places is None and problem.zeros is None
        if not plain or sums.shape[0] <= FEW_ROWS or sums.shape[0] * sums.shape[1] <= DENSE_ENTRIES:
            return None
        rows = np.arange(problem.observed.size)
        names = [name for name in problem.observed.names if np.isin(rows[self.place_of(name)], self.sum_rows).all()]
        if not all(map(self.has_one_variance, names)):
            return None
        tables = TabularRows(problem.domain.schema, tuple(map(str, names)), self.equations[0])
        numbers = np.arange(1.0, sums.shape[1] + 1)
        return tables if tables.shape == sums.shape and np.allclose(tables @ numbers, sums @ numbers) else None

    @cached_property
    def exact_rows(self) -> sparse.csr_array:
        """From the cells to everything that is known exactly, (k, d)."""
        return self._above_equations(np.flatnonzero(self.problem.exact))

    def _above_equations(self, rows: NDArray[np.intp]) -> sparse.csr_array:
        """Some observed rows, (k,), over the cells, and after them what the equations say."""
        equations = self.equations[0]
        return sparse.csr_array(sparse.vstack([self.M[rows], equations])) if rows.size else equations

    def exact_answers(self, y: Float) -> Float:
        """The values of `exact_rows`, (k,)."""
        return np.concatenate([y[self.problem.exact], self.equations[1]])

    @cached_property
    def determines_sum(self) -> bool:
        """Whether the sum of all cells follows from sums that were measured or are known exactly."""
        if (self.cell_rows >= 0).all():
            return True
        rows = sparse.csr_array(sparse.vstack([self.M[self.measured], self.equations[0]]))
        largest = abs(rows).max(axis=1).toarray().ravel()
        columns = sparse.csr_array((sparse.diags_array(1 / np.where(largest > 0, largest, 1.0)) @ rows).T)
        ones = np.ones(columns.shape[0])
        combination = lsqr(columns, ones, atol=1e-14, btol=1e-14)[0]
        return bool(abs(columns @ combination - ones).max() <= DETERMINED)

    @cached_property
    def exact_tables(self) -> tuple[Name, ...]:
        """The tables that are known exactly as a whole."""
        return tuple(name for name in self.problem.observed.names if self._is_exact(name))

    def _is_exact(self, table: Name) -> bool:
        rows = self.present_rows(table)
        return rows.size > 0 and bool(self.problem.exact[rows].all())

    @cached_property
    def noisy_tables(self) -> tuple[Name, ...]:
        """The tables that were measured and are not known exactly as a whole, in the problem's order."""
        names = self.problem.observed.names
        return tuple(n for n in names if n not in self.exact_tables and self.measured[self.present_rows(n)].any())

    def place_of(self, table: Name) -> slice:
        """Where a table sits in the observed layout."""
        return self._places[table]

    def present_rows(self, table: Name) -> NDArray[np.intp]:
        """The observed rows of a table that hold any cell, in order: all but those of structural zeros."""
        place = self.place_of(table)
        return place.start + np.flatnonzero(np.diff(self.M.indptr[place.start : place.stop + 1]))

    def labels(self, table: Name) -> NDArray[np.intp]:
        """For every cell which of the table's `present_rows` it is summed into, (d,).

        Raises
        ------
        ValueError
            If the table is no partition of the cells: it leaves some out, being of a geolevel that not all geounits
            without children lie in, or its areas overlap or have weights other than 1.
        """
        if table not in self._labels:
            sums = sparse.csc_array(self.M[self.present_rows(table)])
            held = np.diff(sums.indptr)
            if (held > 1).any() or (sums.data != 1).any():
                raise ValueError(
                    f"table {table!r} is no partition of the cells: its areas overlap, or have weights other than 1. "
                    "Leave it out, or use nnls, max_fit or anchored_fit"
                )
            if (held == 0).any():
                raise ValueError(
                    f"table {table!r} does not cover all detailed cells: some geounits lie above, or outside its areas"
                )
            self._labels[table] = sums.indices.astype(np.intp)
        return self._labels[table]

    @cached_property
    def sizes(self) -> sparse.csr_array:
        """Absolute values of M."""
        return self.M if (self.M.data >= 0).all() else abs(self.M)

    @cached_property
    def _signs(self) -> tuple[Flags, Flags]:
        """Which rows of M have negative weights, and which positive ones, (n,) each."""
        rows = np.repeat(np.arange(self.M.shape[0]), np.diff(self.M.indptr))
        size = self.M.shape[0]
        return np.bincount(rows[self.M.data < 0], minlength=size) > 0, np.bincount(
            rows[self.M.data > 0], minlength=size
        ) > 0

    def has_one_variance(self, table: Name) -> bool:
        """Whether all cells of a table were measured with the same variance."""
        return np.unique(self.problem.variances[self.present_rows(table)]).size <= 1

    def refuse_impossible_exact(self, y: Float, signed: bool = False) -> None:
        """Refuse what is known exactly of y, (n,), and no cells sum to: a wrong sign, or other than 0 of no cells."""
        exact, describe = self.problem.exact, self.problem.observed.describe
        largest = float(abs(y[exact]).max(initial=0.0))
        falls, rises = self._signs
        impossible = np.flatnonzero(exact & ((y < 0) & ~falls | (y > 0) & falls & ~rises))
        if impossible.size and not signed:
            value = y[impossible[0]]
            raise ValueError(
                f"{describe(int(impossible[0]))} is known exactly and {'negative' if value < 0 else 'positive'} "
                f"({value:g}): no non-negative cells sum to it. Correct it, or give it a variance above 0"
            )
        empty = exact & (abs(y) > ROUNDING * max(1.0, largest)) & (np.diff(self.M.indptr) == 0)
        why = "{} is known exactly as {:g}, and all its cells are structural zeros: correct either"
        self.problem.observed.refuse(empty, why, y)

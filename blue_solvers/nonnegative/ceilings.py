"""How large the desired cells of non-negative tables can be, given what is known exactly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.cells import Cells, cells_of
from constraint_builders import Problem
from constraint_builders.arrays import Float


def ceilings(problem: Problem, y: Float) -> Float:
    """For every desired cell the least exact sum of non-negative cells that holds it; infinite where there is none.

    Exact sums are observed cells of variance 0, equalities whose coefficients have one sign, and structural zeros.

    Parameters
    ----------
    problem : Problem
    y : ndarray, (n,)
        Measurements, for the values known exactly.

    Returns
    -------
    ndarray, (m,)

    Raises
    ------
    ValueError
        If an exact sum of non-negative cells is negative.
    MemoryError
        If the matrices from the detailed cells would not fit.
    """
    cells = cells_of(problem)
    desired = cells.to_desired()
    sizes = np.diff(desired.indptr)
    least = np.where(sizes > 0, np.inf, 0.0)
    sums, values = _exact_sums(problem, y, cells)
    even = np.array([coefficients.min() == coefficients.max() for coefficients in _coefficients(sums)], dtype=bool)
    _bound_by_sums(least, desired, sums[even], values[even])
    for row in np.flatnonzero(~even):
        _bound_by_weights(least, desired, sums[[row]].toarray().ravel(), float(values[row]))
    return least


def _exact_sums(problem: Problem, y: Float, cells: Cells) -> tuple[sparse.csr_array, Float]:
    """Rows over the possible cells with positive entries, none empty, and what they sum to."""
    M = cells.to_observed()
    equations, right = cells.equations()
    matrix = sparse.csr_array(sparse.vstack([M[problem.exact], equations @ M]))
    matrix.eliminate_zeros()
    values = np.concatenate([y[problem.exact], right])
    sign = np.array(
        [float(np.sign(c[0])) if c.size and (np.sign(c) == np.sign(c[0])).all() else 0.0 for c in _coefficients(matrix)]
    )
    kept = np.flatnonzero(sign)
    matrix, values = sparse.csr_array(sparse.diags_array(sign[kept]) @ matrix[kept]), sign[kept] * values[kept]
    if (values < 0).any():
        raise ValueError(
            f"cells that are known exactly sum to {values.min():g}: no non-negative ones do. Correct what is known "
            "exactly, or do not refine"
        )
    return matrix, values


def _coefficients(matrix: sparse.csr_array) -> Iterator[Float]:
    """The entries of every row."""
    return iter(np.split(matrix.data, matrix.indptr[1:-1])) if matrix.shape[0] else iter(())


def _bound_by_sums(least: Float, desired: sparse.csr_array, sums: sparse.csr_array, values: Float) -> None:
    """Lower `least` by sums of equal coefficients: a cell whose parts all lie in one is at most that sum."""
    if not sums.shape[0]:
        return
    coefficients = sums.data[sums.indptr[:-1]]
    members = sparse.csr_array((np.ones(sums.nnz), sums.indices, sums.indptr), shape=sums.shape)
    shared = sparse.coo_array(desired @ members.T)
    cells, rows = shared.coords
    within = shared.data == np.diff(desired.indptr)[cells]
    np.minimum.at(least, cells[within], (values / coefficients)[rows[within]])


def _bound_by_weights(least: Float, desired: sparse.csr_array, weights: Float, value: float) -> None:
    """Lower `least` by one weighted sum: a cell is at most the value over the least weight of its parts."""
    filled = np.flatnonzero(np.diff(desired.indptr))
    smallest = np.minimum.reduceat(weights[desired.indices], desired.indptr[filled])
    within = smallest > 0
    bound = np.full(filled.size, np.inf)
    bound[within] = value / smallest[within]
    least[filled] = np.minimum(least[filled], bound)

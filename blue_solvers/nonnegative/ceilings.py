"""Between what desired cells lie if no detailed cell is negative, given what is known exactly."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from blue_solvers.nonnegative.cells import Cells
from constraint_builders import Problem
from constraint_builders.arrays import Float


def limits(problem: Problem, y: Float) -> tuple[Float, Float]:
    """For every desired cell what exact sums of non-negative cells leave it: infinite where none holds it.

    A sum that is known exactly bounds each of its parts, and so any weighted sum of them. A desired cell is at most
    what its positive weights, and at least what its negative ones, can bring. Exact sums are observed cells of variance
    0, equalities whose coefficients have one sign, and structural zeros.

    Parameters
    ----------
    problem : Problem
    y : ndarray, (n,)
        Measurements, for the values known exactly.

    Returns
    -------
    low, high : ndarray, (m,)

    Raises
    ------
    ValueError
        If an exact sum of non-negative cells is negative.
    MemoryError
        If the matrices from the detailed cells would not fit.
    """
    cells = Cells(problem)
    desired = cells.to_desired()
    sums, values = _exact_sums(problem, y, cells)
    return 0.0 - ceilings((-desired).maximum(0), sums, values), ceilings(desired.maximum(0), sums, values)


def ceilings(weighted: sparse.csr_array, sums: sparse.csr_array, values: Float) -> Float:
    """For every row of weights above 0, (rows,), the largest that an exact sum that holds all its cells leaves it."""
    weighted.eliminate_zeros()
    least = np.where(np.diff(weighted.indptr) > 0, np.inf, 0.0)
    low, high = _extremes(sums)
    even = low == high
    _bound_by_sums(least, weighted, sums[even], values[even])
    for row in np.flatnonzero(~even):
        _bound_by_weights(least, weighted, sums[[row]].toarray().ravel(), float(values[row]))
    return least


def _exact_sums(problem: Problem, y: Float, cells: Cells) -> tuple[sparse.csr_array, Float]:
    """Rows over the possible cells with positive entries, (k, d), none empty, and what they sum to, (k,)."""
    M = cells.to_observed()
    equations, right = cells.equations()
    matrix = sparse.csr_array(sparse.vstack([M[problem.exact], equations @ M]))
    matrix.eliminate_zeros()
    filled = np.diff(matrix.indptr) > 0
    matrix, values = matrix[filled], np.concatenate([y[problem.exact], right])[filled]
    low, high = _extremes(matrix)
    sign = np.where(low > 0, 1.0, np.where(high < 0, -1.0, 0.0))
    kept = np.flatnonzero(sign)
    matrix, values = sparse.csr_array(sparse.diags_array(sign[kept]) @ matrix[kept]), sign[kept] * values[kept]
    if (values < 0).any():
        raise ValueError(
            f"cells that are known exactly sum to {values.min():g}: no non-negative ones do. Correct what is known "
            "exactly, or do not refine"
        )
    return matrix, values


def _extremes(matrix: sparse.csr_array) -> tuple[Float, Float]:
    """The least and the largest entry of every row, (rows,) each, none of which is empty."""
    starts = matrix.indptr[:-1]
    if not starts.size:
        return np.zeros(0), np.zeros(0)
    return np.minimum.reduceat(matrix.data, starts), np.maximum.reduceat(matrix.data, starts)


def _bound_by_sums(least: Float, weighted: sparse.csr_array, sums: sparse.csr_array, values: Float) -> None:
    """Lower `least`, (rows,), by sums of equal coefficients, of which a row may count all at its largest weight."""
    filled = np.flatnonzero(np.diff(weighted.indptr))
    if not sums.shape[0] or not filled.size:
        return
    coefficients = sums.data[sums.indptr[:-1]]
    largest = np.zeros(least.size)
    largest[filled] = _extremes(weighted[filled])[1]
    shared = sparse.coo_array(weighted.sign() @ sums.sign().T)
    cells, rows = shared.coords
    within = shared.data == np.diff(weighted.indptr)[cells]
    np.minimum.at(least, cells[within], largest[cells[within]] * (values / coefficients)[rows[within]])


def _bound_by_weights(least: Float, weighted: sparse.csr_array, coefficients: Float, value: float) -> None:
    """Lower `least`, (rows,), by one sum: at most its value times the largest ratio of a weight to a coefficient."""
    filled = np.flatnonzero(np.diff(weighted.indptr))
    if not filled.size:
        return
    own = coefficients[weighted.indices]
    ratio = np.divide(weighted.data, own, out=np.full(own.size, np.inf), where=own > 0)
    largest = np.maximum.reduceat(ratio, weighted.indptr[filled])
    within = np.isfinite(largest)
    least[filled[within]] = np.minimum(least[filled[within]], value * largest[within])

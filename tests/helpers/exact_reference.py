"""The BLUE in exact rationals, by the information form over all cells; shares no numerics with the package.

Consistent tables are the range of the 0/1 marginal matrix M. With R rows of M that are independent, every consistent
vector is T x_R with T = M M_R' (M_R M_R')^-1, so x_R is estimated by generalised least squares, exact cells being
constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import fmpq, fmpq_mat, nmod_mat

from constraint_builders import Schema

PRIME = (1 << 61) - 1  # a rank modulo a large prime is the rank, unless the prime divides a minor


@dataclass(frozen=True)
class ExactEstimate:
    """The exact operator, rounded once at the end.

    Attributes
    ----------
    operator : ndarray, (m, n)
        P; columns of redundant exact cells and of cells that were not measured are zero.
    variances : ndarray, (m,)
    """

    operator: np.ndarray
    variances: np.ndarray


def marginal_rows(schema: Schema, name: str) -> np.ndarray:
    """The 0/1 matrix (cells of the table in the order of its name, detailed cells), from the schema's groups alone."""
    factors = {"total": (), "detailed": schema.names}.get(name.strip())
    if factors is None:
        factors = tuple(part.strip() for part in name.split("*"))
    levels = np.indices(schema.shape).reshape(len(schema.shape), -1)
    cell, size = np.zeros(levels.shape[1], dtype=int), 1
    for factor in factors:
        cell = cell * schema.size_of(factor) + np.array(schema.groups_of(factor))[levels[schema.axis_of(factor)]]
        size *= schema.size_of(factor)
    rows = np.zeros((size, levels.shape[1]))
    rows[cell, np.arange(levels.shape[1])] = 1
    return rows


def stacked(schema: Schema, names: Sequence[str]) -> np.ndarray:
    """Marginal rows of several tables, in their order."""
    return np.vstack([marginal_rows(schema, name) for name in names])


def independent_rows(gram: np.ndarray) -> list[int]:
    """Indices of a maximal independent set of rows of M, from the integer matrix M M'."""
    reduced, rank = nmod_mat(len(gram), len(gram), [int(value) for value in gram.ravel()], PRIME).rref()
    pivots, column = [], 0
    for row in range(rank):
        while not int(reduced[row, column]):
            column += 1
        pivots.append(column)
    return pivots


def rational_rank(matrix: np.ndarray) -> int:
    """Rank of an integer matrix, exactly up to the modulus."""
    if 0 in matrix.shape:
        return 0
    return nmod_mat(*matrix.shape, [int(value) % PRIME for value in np.asarray(matrix).ravel()], PRIME).rank()


def exact_rank(schema: Schema, names: Sequence[str]) -> int:
    """Rank of the consistency relations between tables: cells less dimension of the consistent ones."""
    M = stacked(schema, names)
    return len(M) - rational_rank(M @ M.T)


def estimable(schema: Schema, observed: Sequence[str], measured: np.ndarray, desired: Sequence[str]) -> bool:
    """Whether every cell of the desired tables is a combination of measured cells."""
    M = stacked(schema, observed)[measured]
    both = np.vstack([M, stacked(schema, desired)])
    return rational_rank(M @ M.T) == rational_rank(both @ both.T)


def exact_blue(
    schema: Schema,
    observed: Sequence[str],
    variances: np.ndarray,
    desired: Sequence[str],
    covariance: np.ndarray | None = None,
) -> ExactEstimate:
    """P and the variances of a problem whose variances (or covariance) are doubles, taken as the rationals they are.

    Parameters
    ----------
    schema : Schema
    observed, desired : sequence of str
    variances : ndarray, (n,)
        0 exact, inf not measured.
    covariance : ndarray, (n, n), optional
        Instead of them.
    """
    M, M_desired = stacked(schema, observed), stacked(schema, desired)
    kept = np.isfinite(variances)
    M, v = M[kept], variances[kept]
    R = independent_rows(M @ M.T)
    to_basis = _rationals(M[R] @ M[R].T).inv()
    T, T_desired = _rationals(M @ M[R].T) * to_basis, _rationals(M_desired @ M[R].T) * to_basis
    noisy, exact = np.flatnonzero(v > 0).tolist(), np.flatnonzero(v == 0).tolist()
    exact = [exact[i] for i in independent_rows(M[exact] @ M[exact].T)] if exact else []
    T_noisy, E = _rows(T, noisy), _rows(T, exact)
    if covariance is None:
        TW = _scaled_transpose(T_noisy, [1 / fmpq(*float(v[i]).as_integer_ratio()) for i in noisy])
    else:
        TW = T_noisy.transpose() * _rationals(covariance).inv()
    r, e = len(R), len(exact)
    N = TW * T_noisy if noisy else fmpq_mat(r, r)
    system = fmpq_mat(r + e, r + e)
    for i in range(r):
        for j in range(r):
            system[i, j] = N[i, j]
        for j in range(e):
            system[i, r + j] = system[r + j, i] = E[j, i]
    inverse = system.inv()
    C, G = _block(inverse, 0, r, r), _block(inverse, r, r, e)
    weights = T_desired * C
    measured = np.flatnonzero(kept)
    operator = np.zeros((len(M_desired), variances.size))
    if noisy:
        operator[:, measured[noisy]] = _floats(weights * TW)
    if exact:
        operator[:, measured[exact]] = _floats(T_desired * G)
    own = [sum((weights[i, k] * T_desired[i, k] for k in range(r)), fmpq(0)) for i in range(len(M_desired))]
    return ExactEstimate(operator, np.array([_float(value) for value in own]))


def _rationals(matrix: np.ndarray) -> fmpq_mat:
    values = np.asarray(matrix, dtype=float).ravel().tolist()
    distinct = {value: fmpq(*value.as_integer_ratio()) for value in set(values)}
    return fmpq_mat(*matrix.shape, [distinct[value] for value in values])


def _rows(matrix: fmpq_mat, rows: Sequence[int]) -> fmpq_mat:
    columns = matrix.ncols()
    return fmpq_mat(len(rows), columns, [matrix[i, j] for i in rows for j in range(columns)])


def _block(matrix: fmpq_mat, first: int, rows: int, columns: int) -> fmpq_mat:
    return fmpq_mat(rows, columns, [matrix[i, first + j] for i in range(rows) for j in range(columns)])


def _scaled_transpose(matrix: fmpq_mat, scales: Sequence[fmpq]) -> fmpq_mat:
    rows, columns = matrix.nrows(), matrix.ncols()
    return fmpq_mat(columns, rows, [matrix[i, j] * scales[i] for j in range(columns) for i in range(rows)])


def _float(value: fmpq) -> float:
    return float(Fraction(int(value.p), int(value.q)))


def _floats(matrix: fmpq_mat) -> np.ndarray:
    values = [_float(value) for value in matrix.entries()]
    return np.array(values).reshape(matrix.nrows(), matrix.ncols())

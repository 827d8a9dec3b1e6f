"""Many small matrices at once: least squares by orthogonal transformations on rows that differ by many decades.

Normal equations square the ratio of the weights; here every row keeps its own relative precision (Householder
reflections with pivoted columns on rows sorted by size: Cox and Higham, "Stability of Householder QR factorization for
weighted least squares problems", 1998).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import qr, solve_triangular

from constraint_builders.arrays import Float, Index

SMALL = 12  # unknowns up to which many systems are worked on at once, column by column
AT_ONCE = 1 << 15  # numbers of theirs that stay in cache
PRODUCTS_AT_ONCE = 1 << 20  # numbers that rows times roots are worked out to at a time
ROUNDING = 1e-12  # of what a standard deviation is summed from: sums that should cancel leave this much at most


class Fitted(NamedTuple):
    """Least squares solutions and the square roots of their information.

    Attributes
    ----------
    inverse : ndarray, (..., m, k)
        G with G B = argmin |F Z - B|.
    information_root : ndarray, (..., m, m)
        R with R'R = F'F.
    covariance_root : ndarray, (..., m, m)
        Its inverse: L with L L' = (F'F)^-1.
    """

    inverse: Float
    information_root: Float
    covariance_root: Float


def fit(F: Float) -> Fitted:
    """Solve least squares problems of full column rank.

    Parameters
    ----------
    F : ndarray, (..., k, m)
        At least as many rows as columns.
    """
    k, m = F.shape[-2:]
    if m == 1:
        weights = (F**2).sum(axis=-2, keepdims=True)
        root = np.sqrt(weights)
        return Fitted(F.swapaxes(-1, -2) / weights, root, 1 / root)
    flat = F.reshape(-1, k, m)
    fitted = Fitted(*(np.empty((len(flat), m, length)) for length in (k, m, m)))
    for some, R, order, turned in _factors(flat, np.eye(k)):
        fitted.information_root[some] = _rows_in_place(R.swapaxes(0, 1), order).swapaxes(1, 2)
        fitted.covariance_root[some] = _rows_in_place(_back_substitute(R, _identities(R)), order)
        fitted.inverse[some] = _rows_in_place(_back_substitute(R, turned), order)
    return Fitted(*(own.reshape(*F.shape[:-2], m, -1) for own in fitted))


def compress(*parts: Float) -> Float:
    """A square root S of the sum of S_i S_i', from its parts (..., m, q_i): (..., m, m)."""
    return _compressed(parts, with_inverse=False)[0]


def compress_and_invert(*parts: Float) -> tuple[Float, Float]:
    """The same, of full rank, and its inverse."""
    return _compressed(parts, with_inverse=True)


def _compressed(parts: tuple[Float, ...], with_inverse: bool) -> tuple[Float, Float]:
    """A square root of the sum of products of columns (..., m, q), and its inverse where that is asked for."""
    F = np.concatenate(parts, axis=-1).swapaxes(-1, -2)
    *batch, q, m = F.shape
    if m == 1:
        root = np.sqrt((F**2).sum(axis=-2, keepdims=True))
        return root, 1 / root if with_inverse else root
    F = np.concatenate([F, np.zeros((*batch, max(m - q, 0), m))], axis=-2).reshape(-1, max(m, q), m)
    root = np.empty((len(F), m, m))
    inverse = np.empty_like(root) if with_inverse else root
    for some, R, order, _ in _factors(F, np.zeros((F.shape[1], 0))):
        root[some] = _rows_in_place(R.swapaxes(0, 1), order)
        if with_inverse:
            inverse[some] = _rows_in_place(_back_substitute(R, _identities(R)), order)
    return root.reshape(*batch, m, m), inverse.reshape(*batch, m, m).swapaxes(-1, -2)


def _factors(F: Float, B: Float) -> Iterator[tuple[slice, Float, Index, Float]]:
    """Of some systems (N, k, m) at a time R (m, m, N), the order of its columns (m, N), and Q'B (m, c, N) of B (k, c).

    Systems lie along the last axis, so that steps run along them.
    """
    N, k, m = F.shape
    count = 1 if m > SMALL else max(1, AT_ONCE // (2 * k * m))
    for first in range(0, N, count):
        some = slice(first, first + count)
        own = F[some]
        rows = np.argsort(-abs(own).max(axis=2), axis=1, kind="stable")[:, :, None]
        work = np.empty((k, m + B.shape[1], len(own)))
        work[:, :m] = np.take_along_axis(own, rows, axis=1).transpose(1, 2, 0)
        work[:, m:] = B[rows[:, :, 0]].transpose(1, 2, 0)
        yield some, *(_reflected(work, m) if m <= SMALL else _by_lapack(work[:, :, 0], m))


def _by_lapack(work: Float, m: int) -> tuple[Float, Index, Float]:
    if work.shape[1] == m:
        R, order = qr(work, mode="r", pivoting=True)
        return R[:m, :, None], order[:, None], work[:m, m:, None]
    Q, R, order = qr(work[:, :m], mode="economic", pivoting=True)
    return R[:, :, None], order[:, None], (Q.T @ work[:, m:])[:, :, None]


def _reflected(work: Float, m: int) -> tuple[Float, Index, Float]:
    """R, the order of its columns, and Q' times what comes after these, of (k, m + c, N) whose place is lost."""
    N = work.shape[2]
    systems, order = np.arange(N), np.repeat(np.arange(m)[:, None], N, axis=1)
    for j in range(m):
        if j + 1 < m:
            squares = np.einsum("icn,icn->cn", work[j:, j:m], work[j:, j:m])
            pivot = j + squares.argmax(axis=0)
            for own in (work, order[None]):  # column j of every system and its pivot
                own[:, j], own[:, pivot, systems] = own[:, pivot, systems], own[:, j].copy()
        v = work[j:, j]
        length = np.copysign(np.sqrt(np.einsum("in,in->n", v, v)), v[0])
        v[0] += length
        product = length * v[0]  # 0 or more; less than float64 holds the reciprocal of is nothing
        scale = np.divide(1.0, product, out=np.zeros(N), where=product >= np.finfo(float).tiny)
        work[j:, j + 1 :] -= v[:, None] * (np.einsum("in,icn->cn", v, work[j:, j + 1 :]) * scale)
        work[j, j], work[j + 1 :, j] = -length, 0.0
    return work[:m, :m], order, work[:m, m:]


def _back_substitute(R: Float, B: Float) -> Float:
    """R^-1 B for upper triangular R; systems along the last axis."""
    m = len(R)
    if m > SMALL:
        return solve_triangular(R[:, :, 0], B[:, :, 0])[:, :, None]
    X = np.empty(B.shape)
    for i in reversed(range(m)):
        X[i] = (B[i] - np.einsum("jn,jcn->cn", R[i, i + 1 :], X[i + 1 :])) / R[i, i]
    return X


def _identities(R: Float) -> Float:
    return np.broadcast_to(np.eye(len(R))[:, :, None], R.shape)


def _rows_in_place(X: Float, order: Index) -> Float:
    """From (m, c, N) to (N, m, c), rows where they belong."""
    m, c, N = X.shape
    result = np.empty((N, m, c))
    result[np.arange(N), order] = X.transpose(0, 2, 1)
    return result


def kronecker(matrices: list[Float]) -> Float:
    """Kronecker product of any number of matrices."""
    result = matrices[0] if matrices else np.ones((1, 1))
    for matrix in matrices[1:]:
        shape = len(result) * len(matrix), result.shape[1] * matrix.shape[1]
        result = (result[:, None, :, None] * matrix[None, :, None, :]).reshape(shape)
    return result


def squares_of_sums(W: Float | sparse.csr_array, root: Float) -> Float:
    """Diagonal of W root root' W' for a batch of roots (N, m, q), (N, rows); 0 where only rounding is left of it."""
    N, m, q = root.shape
    if m == q == 1:  # nothing cancels
        return np.outer(root.ravel() ** 2, (W * W).sum(axis=1))
    squares = np.empty((W.shape[0], N))
    count = max(1, PRODUCTS_AT_ONCE // max(1, W.shape[0] * q))
    for first in range(0, N, count):
        some = slice(first, first + count)
        sums = W @ root[some].transpose(1, 0, 2).reshape(m, -1)
        squares[:, some] = (sums**2).reshape(W.shape[0], -1, q).sum(axis=2)
    least = ROUNDING * (abs(W) @ abs(root).max(axis=2, initial=0.0).T)
    return np.where(squares > least**2, squares, 0.0).T

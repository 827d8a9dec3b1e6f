"""Least squares on rows that differ by many decades, by orthogonal transformations, many small systems at once.

Normal equations square the ratio of the weights; here every row keeps its own relative precision (Householder
reflections with pivoted columns on rows sorted by size: Cox and Higham, "Stability of Householder QR factorization for
weighted least squares problems", 1998).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, solve_triangular

from blue_solvers.components.batches import chunks
from constraint_builders.arrays import Float, Index

SMALL = 12  # unknowns up to which many systems are worked on at once, column by column
AT_ONCE = 1 << 15  # numbers of theirs that stay in cache


@dataclass(frozen=True)
class Fitted:
    """Least squares solutions and the square roots of their information.

    Attributes
    ----------
    inverse : ndarray, (N, m, k)
        G with G B = argmin |F Z - B|.
    information_root : ndarray, (N, m, m)
        R with R'R = F'F.
    covariance_root : ndarray, (N, m, m)
        Its inverse: L with L L' = (F'F)^-1.
    """

    inverse: Float
    information_root: Float
    covariance_root: Float

    def within(self, projector: Float) -> Fitted:
        """The same, of what lies in the range of orthogonal projectors (N, m, m)."""
        return Fitted(projector @ self.inverse, self.information_root @ projector, projector @ self.covariance_root)


def fit(F: Float) -> Fitted:
    """Solve least squares problems of full column rank.

    Parameters
    ----------
    F : ndarray, (N, k, m)
        At least as many rows as columns.
    """
    N, k, m = F.shape
    if m == 1:
        weights = (F**2).sum(axis=1, keepdims=True)
        root = np.sqrt(weights)
        return Fitted(F.swapaxes(1, 2) / weights, root, 1 / root)
    fitted = Fitted(np.empty((N, m, k)), np.empty((N, m, m)), np.empty((N, m, m)))
    for some in _lots(F):
        rows, R, columns, Q = _factors(F[some], with_q=True)
        fitted.information_root[some] = _columns_in_place(R, columns)
        fitted.covariance_root[some] = _rows_in_place(_back_substitute(R, _identities(R)), columns)
        places = np.arange(len(rows)), columns[:, None], rows.T
        fitted.inverse[some][places] = _back_substitute(R, Q.swapaxes(0, 1))
    return fitted


def compress(*parts: Float) -> Float:
    """A square root S of the sum of S_i S_i', from its parts (N, m, q_i): (N, m, m)."""
    return _compressed(parts, with_inverse=False)[0]


def compress_and_invert(*parts: Float) -> tuple[Float, Float]:
    """The same, of full rank, and its inverse."""
    return _compressed(parts, with_inverse=True)


def _compressed(parts: tuple[Float, ...], with_inverse: bool) -> tuple[Float, Float]:
    """A square root of the sum of products of columns (N, m, q), and its inverse or nothing."""
    F = np.concatenate(parts, axis=2).swapaxes(1, 2)
    m = F.shape[2]
    if m == 1:
        root = np.sqrt((F**2).sum(axis=1, keepdims=True))
        return root, 1 / root if with_inverse else root
    if F.shape[1] < m:
        F = np.concatenate([F, np.zeros((len(F), m - F.shape[1], m))], axis=1)
    root = np.empty((len(F), m, m))
    inverse = np.empty((len(F) if with_inverse else 0, m, m))
    for some in _lots(F):
        _, R, order, _ = _factors(F[some], with_q=False)
        root[some] = _columns_in_place(R, order)
        if with_inverse:
            inverse[some] = _rows_in_place(_back_substitute(R, _identities(R)), order)
    return root.swapaxes(1, 2), inverse.swapaxes(1, 2)


def _lots(F: Float) -> list[slice]:
    """Systems that are worked on at once."""
    N, k, m = F.shape
    return chunks(N, 1 if m > SMALL else max(1, AT_ONCE // (2 * k * m)))


def _factors(F: Float, with_q: bool) -> tuple[Index, Float, Index, Float]:
    """Of systems (N, k, m) the order of rows and columns, (N, k) and (m, N), and their factors in this order.

    R (m, m, N) and, where it is wanted, Q (k, m, N): systems lie along the last axis, so that steps run along them.
    """
    N, k, m = F.shape
    rows = np.argsort(-abs(F).max(axis=2), axis=1, kind="stable")
    places = (rows + np.arange(0, N * k, k)[:, None]).ravel()
    work = np.ascontiguousarray(F.reshape(N * k, m).take(places, axis=0).reshape(N, k, m).transpose(1, 2, 0))
    if m <= SMALL:
        return rows, *_householder(work, with_q)
    if with_q:
        Q, R, columns = qr(work[:, :, 0], mode="economic", pivoting=True)
        return rows, R[:, :, None], columns[:, None], Q[:, :, None]
    R, columns = qr(work[:, :, 0], mode="r", pivoting=True)
    return rows, R[:m, :, None], columns[:, None], work[:0]


def _householder(work: Float, with_q: bool) -> tuple[Float, Index, Float]:
    """R, the order of columns, and Q, of (k, m, N) whose place is lost."""
    k, m, N = work.shape
    systems, columns = np.arange(N), np.repeat(np.arange(m)[:, None], N, axis=1)
    reflections = []
    R = np.zeros((m, m, N))
    for j in range(m):
        if j + 1 < m:
            squares = np.einsum("icn,icn->cn", work[j:, j:], work[j:, j:])
            pivot = j + squares.argmax(axis=0)
            for own in (work, R, columns[None]):  # column j of every system and its pivot
                own[:, j], own[:, pivot, systems] = own[:, pivot, systems], own[:, j].copy()
        v = work[j:, j]
        length = np.copysign(np.sqrt(np.einsum("in,in->n", v, v)), v[0])
        v[0] += length
        product = length * v[0]  # 0 or more; less than float64 holds the reciprocal of is nothing
        scale = np.divide(1.0, product, out=np.zeros(N), where=product >= np.finfo(float).tiny)
        _reflect(v, scale, work[j:, j + 1 :])
        R[j, j], R[j, j + 1 :] = -length, work[j, j + 1 :]
        reflections.append((v, scale))
    if not with_q:
        return R, columns, work[:0]
    Q = np.zeros((k, m, N))
    for j, (v, scale) in reversed(list(enumerate(reflections))):
        Q[j, j] = 1
        _reflect(v, scale, Q[j:, j:])
    return R, columns, Q


def _reflect(v: Float, scale: Float, array: Float) -> None:
    """Subtract v times its products with the columns of an array (k, c, N), times a scale, in place."""
    products = np.einsum("in,icn->cn", v, array)
    products *= scale
    array -= v[:, None] * products


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


def _columns_in_place(R: Float, order: Index) -> Float:
    """From (m, m, N) to (N, m, m), columns where they belong."""
    result = np.empty((R.shape[2], *R.shape[:2]))
    result[np.arange(len(result)), :, order] = R.transpose(1, 2, 0)
    return result

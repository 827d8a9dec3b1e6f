"""Least squares on rows that differ by many decades, by orthogonal transformations, many small systems at once.

Normal equations square the ratio of the weights; here every row keeps its own relative precision (Householder
reflections with pivoted columns on rows sorted by size: Cox and Higham, "Stability of Householder QR factorization for
weighted least squares problems", 1998).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack, qr, solve_triangular

from constraint_builders.arrays import Float

SMALL = 12  # unknowns up to which many systems are worked on at once, column by column


@dataclass(frozen=True)
class Fitted:
    """Least squares solutions and the square roots of their information.

    Attributes
    ----------
    solution : ndarray, (N, m, c)
        argmin |F Z - B|.
    information_root : ndarray, (N, m, m)
        R with R'R = F'F.
    covariance_root : ndarray, (N, m, m)
        Its inverse: L with L L' = (F'F)^-1.
    """

    solution: Float
    information_root: Float
    covariance_root: Float

    def within(self, projector: Float) -> Fitted:
        """The same, of what lies in the range of orthogonal projectors (N, m, m)."""
        return Fitted(projector @ self.solution, self.information_root @ projector, projector @ self.covariance_root)


def fit(F: Float, B: Float) -> Fitted:
    """Solve least squares problems of full column rank.

    Parameters
    ----------
    F : ndarray, (N, k, m)
        At least as many rows as columns.
    B : ndarray, (N, k, c)
    """
    if F.shape[2] == 1:
        return _fit_one_unknown(F, B)
    R, QB, order = _reduce(F, B)
    solution, inverse = _back_substitute(R, QB), _back_substitute(R, np.broadcast_to(np.eye(F.shape[2]), R.shape))
    rows = order[:, :, None]
    unsorted, covariance_root, root = np.empty_like(solution), np.empty_like(inverse), np.empty_like(R)
    np.put_along_axis(unsorted, rows, solution, axis=1)
    np.put_along_axis(covariance_root, rows, inverse, axis=1)
    np.put_along_axis(root, order[:, None, :], R, axis=2)
    return Fitted(unsorted, root, covariance_root)


def compress(*parts: Float) -> Float:
    """A square root S of the sum of S_i S_i', from its parts (N, m, q_i): (N, m, m)."""
    columns = np.concatenate(parts, axis=2)
    if columns.shape[1] == 1:
        return np.sqrt((columns**2).sum(axis=2, keepdims=True))
    R, order = _compressed(columns)
    return _in_order(R, order).swapaxes(1, 2)


def compress_and_invert(*parts: Float) -> tuple[Float, Float]:
    """The same, of full rank, and its inverse."""
    columns = np.concatenate(parts, axis=2)
    if columns.shape[1] == 1:
        root = np.sqrt((columns**2).sum(axis=2, keepdims=True))
        return root, 1 / root
    R, order = _compressed(columns)
    inverse = _back_substitute(R, np.broadcast_to(np.eye(R.shape[1]), R.shape))
    sorted_inverse = np.empty_like(inverse)
    np.put_along_axis(sorted_inverse, order[:, :, None], inverse, axis=1)
    return _in_order(R, order).swapaxes(1, 2), sorted_inverse.swapaxes(1, 2)


def _compressed(columns: Float) -> tuple[Float, NDArray[np.intp]]:
    """Triangular R with R'R the sum of products of columns (N, m, q), its columns in some order, and this order."""
    rows, m = columns.swapaxes(1, 2), columns.shape[1]
    if rows.shape[1] < m:
        rows = np.concatenate([rows, np.zeros((len(rows), m - rows.shape[1], m))], axis=1)
    R, _, order = _reduce(rows, np.zeros((len(rows), rows.shape[1], 0)))
    return R, order


def _in_order(R: Float, order: NDArray[np.intp]) -> Float:
    """Columns of R where they belong."""
    root = np.empty_like(R)
    np.put_along_axis(root, order[:, None, :], R, axis=2)
    return root


def _fit_one_unknown(F: Float, B: Float) -> Fitted:
    weights = (F**2).sum(axis=1, keepdims=True)
    root = np.sqrt(weights)
    return Fitted((F * B).sum(axis=1, keepdims=True) / weights, root, 1 / root)


def _reduce(F: Float, B: Float) -> tuple[Float, Float, NDArray[np.intp]]:
    """R (N, m, m) upper triangular, the first m rows of Q'B, and which column of F each column of R is."""
    if F.shape[2] > SMALL:
        return _reduce_large(F, B)
    order = np.argsort(-abs(F).max(axis=2), axis=1, kind="stable")[:, :, None]
    F, B = np.take_along_axis(F, order, axis=1), np.take_along_axis(B, order, axis=1)
    N, _, m = F.shape
    everyone, columns = np.arange(N), np.tile(np.arange(m), (N, 1))
    for j in range(m):
        rest = F[:, j:, j:]
        pivot = j + np.einsum("nij,nij->nj", rest, rest).argmax(axis=1)
        F[everyone, :, j], F[everyone, :, pivot] = F[everyone, :, pivot], F[:, :, j].copy()
        columns[everyone, j], columns[everyone, pivot] = columns[everyone, pivot], columns[:, j].copy()
        v = F[:, j:, j].copy()
        v[:, 0] += np.copysign(np.linalg.norm(v, axis=1), v[:, 0])
        square = np.einsum("ni,ni->n", v, v)
        scaled = np.divide(2 * v, square[:, None], out=np.zeros_like(v), where=square[:, None] > 0)
        for array in (F[:, j:, j:], B[:, j:]):
            array -= scaled[:, :, None] * (v[:, None, :] @ array)
    return np.triu(F[:, :m]), B[:, :m], columns


def _reduce_large(F: Float, B: Float) -> tuple[Float, Float, NDArray[np.intp]]:
    N, _, m = F.shape
    R, QB, columns = np.empty((N, m, m)), np.empty((N, m, B.shape[2])), np.empty((N, m), dtype=np.intp)
    for i in range(N):
        order = np.argsort(-abs(F[i]).max(axis=1), kind="stable")
        (factors, tau), R[i], columns[i] = qr(F[i][order], mode="raw", pivoting=True)
        if B.shape[2]:
            right = np.asfortranarray(B[i][order])
            work = lapack.dormqr("L", "T", factors, tau, right, -1)[1]
            QB[i] = lapack.dormqr("L", "T", factors, tau, right, int(work[0]))[0][:m]
    return R, QB, columns


def _back_substitute(R: Float, B: Float) -> Float:
    """R^-1 B for upper triangular R."""
    m = R.shape[1]
    if m > SMALL:
        return np.stack([solve_triangular(own, right) for own, right in zip(R, B, strict=True)])
    X = np.empty(B.shape)
    for i in reversed(range(m)):
        known = R[:, i : i + 1, i + 1 :] @ X[:, i + 1 :]
        X[:, i] = (B[:, i] - known[:, 0]) / R[:, i, i, None]
    return X

"""Many small matrices at once: least squares, by Cholesky or by orthogonal transformations.

Normal equations square the ratio of the weights. Where columns, taken of unit length, are far from dependent, that
costs a digit or two of sixteen; elsewhere every row keeps its own relative precision (Householder reflections with
pivoted columns on rows sorted by size: Cox and Higham, "Stability of Householder QR factorization for weighted least
squares problems", 1998).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import qr
from scipy.linalg.lapack import dtrtri

from constraint_builders.arrays import Float, Index

SMALL = 12  # unknowns up to which many systems are worked on at once, column by column
AT_ONCE = 1 << 15  # numbers of theirs that stay in cache
INFLATION = 30.0  # of the variance of unknowns by others, on average, up to which Cholesky has digits to spare
PRODUCTS_AT_ONCE = 1 << 20  # numbers that rows times roots are worked out to at a time
TINY = np.finfo(float).tiny
ROUNDING = 1e-12  # of what a standard deviation is summed from: sums that should cancel leave this much at most

# Of systems F (N, k, m), Q'Q = 1: R (N, m, m) with F = Q R, its inverse, Q' (N, m, k).
Roots = tuple[Float, Float, Float]


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
    for some, (R, inverse, turned) in _roots(flat, with_inverse=True):
        fitted.information_root[some], fitted.covariance_root[some] = R, inverse
        fitted.inverse[some] = inverse @ turned
    return Fitted(*(own.reshape(*F.shape[:-2], m, -1) for own in fitted))


def compress(*parts: Float) -> Float:
    """A square root S of the sum of S_i S_i', from its parts (..., m, q_i): (..., m, m)."""
    return compress_and_invert(*parts, with_inverse=False)[0]


def compress_and_invert(*parts: Float, with_inverse: bool = True) -> tuple[Float, Float]:
    """The same, of full rank where its inverse is asked for, and that."""
    F = np.concatenate(parts, axis=-1).swapaxes(-1, -2)
    *batch, q, m = F.shape
    if m == 1:
        root = np.sqrt((F**2).sum(axis=-2, keepdims=True))
        return root, 1 / root if with_inverse else root
    F = np.concatenate([F, np.zeros((*batch, max(m - q, 0), m))], axis=-2).reshape(-1, max(m, q), m)
    root, inverse = np.empty((2, len(F), m, m))
    for some, (R, of_R, _) in _roots(F, with_inverse):
        root[some], inverse[some] = R.swapaxes(1, 2), of_R.swapaxes(1, 2)
    return root.reshape(*batch, m, m), inverse.reshape(*batch, m, m)


def _roots(F: Float, with_inverse: bool) -> Iterator[tuple[slice, Roots]]:
    """Of some systems (N, k, m) at a time, large ones one by one; what is not told of the inverse is NaN."""
    N, k, m = F.shape
    count = 1 if m > SMALL else min(N, max(1, AT_ONCE // (k * (m + k))))
    for first in range(0, N, count):
        some = slice(first, first + count)
        yield some, _by_cholesky(F[some]) or _by_reflections(F[some], with_inverse)


def _by_cholesky(F: Float) -> Roots | None:
    """Of systems (N, k, m) none of which has columns that are nearly dependent, or None."""
    with np.errstate(all="ignore"):  # columns of no length, or beyond all numbers, are left to reflections
        sizes = 1 / np.sqrt((F**2).sum(axis=1, keepdims=True))
        even = F * sizes
        try:
            R = np.linalg.cholesky(even.swapaxes(1, 2) @ even).swapaxes(1, 2)
            inverse = dtrtri(R[0])[0][None] if len(R) == 1 else np.linalg.inv(R)
        except np.linalg.LinAlgError:
            return None
    if not ((inverse**2).sum(axis=(1, 2)) <= INFLATION * F.shape[2]).all():
        return None
    return R / sizes, inverse * sizes.swapaxes(1, 2), (even @ inverse).swapaxes(1, 2)


def _by_reflections(F: Float, with_inverse: bool) -> Roots:
    """Of systems (N, k, m), whose columns may be dependent if no inverse is asked for."""
    N, k, m = F.shape
    numbers, rows = np.arange(N)[:, None], np.argsort(-abs(F).max(axis=2), axis=1, kind="stable")
    R, inverse, turned = np.zeros((N, m, m)), np.full((N, m, m), np.nan), np.empty((N, m, k))
    if m > SMALL:
        own = [qr(each, mode="economic", pivoting=True) for each in F[numbers, rows]]
        Q, upper, order = (np.stack(each) for each in zip(*own, strict=True))
        turned[numbers, :, rows] = Q
    else:
        work, order = np.zeros((N, k, m + k)), np.repeat(np.arange(m)[None], N, axis=0)
        work[:, :, :m] = F[numbers, rows]
        work[numbers, np.arange(k), m + rows] = 1.0
        reflect(work, order)
        upper, turned = work[:, :m, :m], work[:, :m, m:]
    R[numbers, :, order] = upper.swapaxes(1, 2)
    if with_inverse:
        inverse[numbers, order] = np.linalg.inv(upper)
    return R, inverse, turned


def reflect(work: Float, order: Index) -> None:
    """Householder reflections with pivoted columns, of some systems.

    Parameters
    ----------
    work : ndarray, (N, k, m + c)
        Matrices, and what is reflected with them. Their first m rows become R, and Q' times the rest; others 0.
    order : ndarray of int, (N, m)
        Of columns, increasing; becomes that of R.
    """
    numbers, m = np.arange(len(work)), order.shape[1]
    for j in range(m):
        pivot = j + np.einsum("nic,nic->nc", work[:, j:, j:m], work[:, j:, j:m]).argmax(axis=1)
        for own in (work, order[:, None]):
            own[:, :, j], own[numbers, :, pivot] = own[numbers, :, pivot], own[:, :, j].copy()
        v = work[:, j:, j].copy()
        length = np.copysign(np.sqrt(np.einsum("ni,ni->n", v, v)), v[:, 0])
        v[:, 0] += length
        product = length * v[:, 0]  # 0 or more; less than float64 holds the reciprocal of is nothing
        scale = np.divide(1.0, product, out=np.zeros(len(work)), where=product >= TINY)
        sums = np.einsum("ni,nic->nc", v, work[:, j:, j + 1 :]) * scale[:, None]
        work[:, j:, j + 1 :] -= v[:, :, None] * sums[:, None]
        work[:, j, j], work[:, j + 1 :, j] = -length, 0.0
    work[:, m:] = 0.0


def kronecker(matrices: list[Float]) -> Float:
    """Kronecker product of any number of matrices, 2-d; (1, 1) of none."""
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
        sums = W @ root[some].transpose(1, 0, 2).reshape(m, len(root[some]) * q)
        squares[:, some] = (sums**2).reshape(W.shape[0], len(root[some]), q).sum(axis=2)
    least = ROUNDING * (abs(W) @ abs(root).max(axis=2, initial=0.0).T)
    return np.where(squares > least**2, squares, 0.0).T

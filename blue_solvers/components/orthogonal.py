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
from scipy.linalg import lapack, qr

from constraint_builders.arrays import Float, Index
from constraint_builders.compiled import compiled

SMALL = 12  # unknowns up to which many systems are worked on at once, column by column
WELL_APART = 1e-2  # the least reciprocal condition of F'F, times its unknowns, by which Cholesky has digits to spare
AT_ONCE = 1 << 15  # numbers of theirs that stay in cache
PRODUCTS_AT_ONCE = 1 << 20  # numbers that rows times roots are worked out to at a time
TINY = np.finfo(float).tiny
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
    for some, R, order, turned in _factors(flat, True):
        fitted.information_root[some] = _rows_in_place(R.swapaxes(1, 2), order).swapaxes(1, 2)
        inverse = _inverse(R)
        fitted.covariance_root[some] = _rows_in_place(inverse, order)
        fitted.inverse[some] = _rows_in_place(inverse @ turned, order)
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
    for some, R, order, _ in _factors(F, False):
        root[some] = _rows_in_place(R.swapaxes(1, 2), order)
        if with_inverse:
            inverse[some] = _rows_in_place(_inverse(R), order)
    return root.reshape(*batch, m, m), inverse.reshape(*batch, m, m).swapaxes(-1, -2)


def _factors(F: Float, with_turned: bool) -> Iterator[tuple[slice, Float, Index, Float]]:
    """Of some systems (N, k, m) at a time R (N, m, m), the order of its columns (N, m), and if asked Q' (N, m, k)."""
    N, k, m = F.shape
    if m > SMALL:
        for n, own in enumerate(F):
            R, order, turned = _factor(own, with_turned)
            yield slice(n, n + 1), R[None], order[None], turned[None]
        return
    width = m + k if with_turned else m
    count = min(N, max(1, AT_ONCE // (k * width)))
    held, numbers = np.empty((count, k, width)), np.arange(count)[:, None]
    for first in range(0, N, count):
        some = slice(first, first + count)
        own = F[some]
        rows = np.argsort(-abs(own).max(axis=2), axis=1, kind="stable")
        work = held[: len(own)]
        work[:, :, :m] = own[numbers[: len(own)], rows]
        if with_turned:
            work[:, :, m:] = 0.0
            work[numbers[: len(own)], np.arange(k), m + rows] = 1.0
        order = np.repeat(np.arange(m)[None], len(own), axis=0)
        reflect(work, order)
        yield some, work[:, :m, :m].copy(), order, work[:, :m, m:].copy()


def _factor(F: Float, with_turned: bool) -> tuple[Float, Index, Float]:
    """The same of one large system (k, m): by Cholesky where its columns, of unit length, are far from dependent."""
    m = F.shape[1]
    with np.errstate(all="ignore"):  # columns of no length, or beyond all numbers, are left to reflections
        size = 1 / np.sqrt((F**2).sum(axis=0))
        even = F * size
        square = even.T @ even
        R, failed = lapack.dpotrf(square)
    if not failed and lapack.dpocon(R, abs(square).sum(axis=0).max())[0] * m > WELL_APART:
        turned = lapack.dtrtrs(R, even.T, trans=1)[0] if with_turned else even[:0].T
        return R / size, np.arange(m), turned
    rows = np.argsort(-abs(F).max(axis=1), kind="stable")
    if not with_turned:
        R, order = qr(F[rows], mode="r", pivoting=True)
        return R[:m], order, F[:0].T
    Q, R, order = qr(F[rows], mode="economic", pivoting=True)
    turned = np.empty((m, len(F)))
    turned[:, rows] = Q.T
    return R, order, turned


def reflect_in_numpy(work: Float, order: Index) -> None:
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


@compiled(reference=reflect_in_numpy)
def reflect(work: Float, order: Index) -> None:
    """See `reflect_in_numpy`, of (N, k, m + c); counts in unsigned numbers from one start, as the sweeps do."""
    flat, sums, width, m = work.ravel(), np.empty(work.shape[2]), np.uint64(work.shape[2]), np.uint64(order.shape[1])
    for n in range(np.uint64(len(work))):
        first = n * np.uint64(work.shape[1]) * width
        end = first + np.uint64(work.shape[1]) * width
        for j in range(m):
            _exchange(flat, order[n], first, end, j, width, sums)
            start, square = first + j * width, 0.0
            for row in range(start, end, width):
                square += flat[row + j] ** 2
            length = np.copysign(np.sqrt(square), flat[start + j])
            flat[start + j] += length
            product = length * flat[start + j]  # 0 or more; less than float64 holds the reciprocal of is nothing
            scale = 1 / product if product >= TINY else 0.0
            sums[:] = 0.0
            for row in range(start, end, width):
                for c in range(width):
                    sums[c] += flat[row + j] * flat[row + c]
            for row in range(start, end, width):
                share = flat[row + j] * scale
                for c in range(j + np.uint64(1), width):
                    flat[row + c] -= share * sums[c]
                flat[row + j] = 0.0
            flat[start + j] = -length
        flat[first + m * width : end] = 0.0


def _exchange(
    flat: Float, order: Index, first: np.uint64, end: np.uint64, j: int, width: np.uint64, squares: Float
) -> None:
    """Exchange column j of a system in `flat`, 1-d, with the longest of those that are left; `order` is (m,)."""
    pivot, m = j, np.uint64(order.size)
    squares[:] = 0.0
    for row in range(first + j * width, end, width):
        for c in range(j, m):
            squares[c] += flat[row + c] ** 2
    for c in range(j, m):
        if squares[c] > squares[pivot]:
            pivot = c
    order[j], order[pivot] = order[pivot], order[j]
    for row in range(first, end, width):
        flat[row + j], flat[row + pivot] = flat[row + pivot], flat[row + j]


def _inverse(R: Float) -> Float:
    """R^-1 for upper triangular R, (N, m, m)."""
    if R.shape[1] > SMALL:
        inverses, infos = zip(*[lapack.dtrtri(own) for own in R], strict=True)
        if any(infos):
            raise np.linalg.LinAlgError("singular matrix")
        return np.stack(inverses)
    return np.asarray(np.linalg.inv(R), dtype=float)


def _rows_in_place(X: Float, order: Index) -> Float:
    """Of (N, m, c), rows where they belong."""
    result = np.empty(X.shape)
    result[np.arange(len(X))[:, None], order] = X
    return result


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
        sums = W @ root[some].transpose(1, 0, 2).reshape(m, -1)
        squares[:, some] = (sums**2).reshape(W.shape[0], -1, q).sum(axis=2)
    least = ROUNDING * (abs(W) @ abs(root).max(axis=2, initial=0.0).T)
    return np.where(squares > least**2, squares, 0.0).T

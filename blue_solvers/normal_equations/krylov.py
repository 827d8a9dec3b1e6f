"""Conjugate gradients on many right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float

Product = Callable[[Float], Float]
Sizes = Callable[[Float, NDArray[np.intp]], Float]
GROWTH = 1e12  # of a residual beside the right-hand side: rounding grows, not an answer


def conjugate_gradients(
    product: Product, R: Float, precondition: Product, sizes: Sizes, target: Float, max_iterations: int
) -> tuple[Float, int, bool]:
    """Solve N Z = R for a symmetric positive semidefinite N, each column on its own, all in one block.

    Parameters
    ----------
    product : callable
        N Z for (m, K), a new array.
    R : ndarray, (m, K)
        Right-hand sides, in the range of N.
    precondition : callable
        A symmetric positive definite approximation of the inverse of N; may give back what it got.
    sizes : callable
        Norms of the columns of a residual, whose numbers among all K are the second argument.
    target : ndarray, (K,)
        A column is done when its residual's norm is at most this.
    max_iterations : int

    Returns
    -------
    Z : ndarray, (m, K)
    iterations : int
        Of the slowest column.
    converged : bool
        Whether every column reached its target; not if one grew beyond all numbers.
    """
    Z, active = np.zeros_like(R), np.arange(R.shape[1])
    start = sizes(R, active)
    active = active[start > target]
    r = R[:, active]
    p, rho = np.zeros_like(r), np.ones(active.size)
    with np.errstate(over="ignore", invalid="ignore"):
        for iteration in range(max_iterations):
            if not active.size:
                return Z, iteration, bool(np.isfinite(Z).all())
            z = precondition(r)
            rho_next = np.einsum("ij,ij->j", r, z)
            p *= rho_next / rho
            p += z
            rho = rho_next
            q = product(p)
            curvature = np.einsum("ij,ij->j", p, q)
            alpha = np.divide(rho, curvature, out=np.zeros_like(rho), where=curvature > 0)
            Z[:, active] += alpha * p
            q *= alpha
            r -= q
            left = sizes(r, active)
            if not (left <= GROWTH * start[active]).all():  # out of the range of N, where residuals grow
                return Z, iteration + 1, False
            open_ = (left > target[active]) & (curvature > 0)
            if not open_.all():
                active, r, p, rho = active[open_], r[:, open_], p[:, open_], rho[open_]
    return Z, max_iterations, not active.size and bool(np.isfinite(Z).all())

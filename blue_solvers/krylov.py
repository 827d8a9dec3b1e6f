"""Conjugate gradients on many right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blue_solvers.solver import Float

Product = Callable[[Float], Float]


def conjugate_gradients(
    product: Product,
    R: Float,
    precondition: Product,
    sizes: Product,
    target: Float,
    max_iterations: int,
) -> tuple[Float, int, bool]:
    """Solve N Z = R for a symmetric positive semidefinite N, each column on its own, all in one block.

    Parameters
    ----------
    product : callable
        N Z for (m, K).
    R : ndarray, (m, K)
        Right-hand sides, in the range of N.
    precondition : callable
        A symmetric positive definite approximation of the inverse of N.
    sizes : callable
        Norm of every column of a residual, (K,).
    target : ndarray, (K,)
        A column is done when its residual's norm is at most this.
    max_iterations : int

    Returns
    -------
    Z : ndarray, (m, K)
    iterations : int
        Of the slowest column.
    converged : bool
        Whether every column reached its target.
    """
    Z = np.zeros_like(R)
    active = np.flatnonzero(sizes(R) > target)
    r = R[:, active]
    z = precondition(r)
    p = z.copy()
    rho = np.einsum("ij,ij->j", r, z)
    for iteration in range(max_iterations):
        if not active.size:
            return Z, iteration, True
        q = product(p)
        curvature = np.einsum("ij,ij->j", p, q)
        alpha = np.divide(rho, curvature, out=np.zeros_like(rho), where=curvature > 0)
        Z[:, active] += alpha * p
        r = r - alpha * q
        open_ = (sizes(r) > target[active]) & (curvature > 0)
        active, r, p, rho = active[open_], r[:, open_], p[:, open_], rho[open_]
        z = precondition(r)
        rho_next = np.einsum("ij,ij->j", r, z)
        p = z + (rho_next / rho) * p
        rho = rho_next
    return Z, max_iterations, not active.size

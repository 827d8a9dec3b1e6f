"""Least squares as anybody has them: scipy's lsmr, lsqr, splu and nnls, and clarabel's programs."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse
from scipy.sparse.linalg import lsmr, lsqr, splu

MOST_CELLS = 3_000  # beyond, a dense matrix of tables by cells takes gigabytes
MOST_EQUATIONS = 20_000  # beyond, factors of A Sigma A' take gigabytes
TOLERANCE = 1e-13
Work = Callable[[], NDArray]


def by_lsmr(A: sparse.csr_array, variances: NDArray, y: NDArray) -> Work:
    """Multipliers by iterations on the scaled equations, to rounding or as near as it gets."""
    deviations = np.sqrt(variances)
    scaled = sparse.csr_array(sparse.diags_array(deviations) @ A.T)

    def work() -> NDArray:
        multipliers = lsmr(scaled, y / deviations, atol=TOLERANCE, btol=TOLERANCE, maxiter=2_000)[0]
        return y - deviations * (scaled @ multipliers)

    return work


def by_lsqr(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
    """Sums, (n,), by iterations with their default tolerance for leaves that S, (n, leaves), sums."""
    weights = 1 / np.sqrt(variances)
    return np.asarray(S @ lsqr(sparse.diags_array(weights) @ S, weights * y)[0])


def by_nnls(M: sparse.csr_array, variances: NDArray, y: NDArray) -> Work:
    """Sums, (n,), of detailed cells that are not negative, by scipy's active set on the dense M, (n, cells)."""
    if M.shape[1] > MOST_CELLS:
        raise MemoryError(f"{M.shape[1]:,} cells, above the {MOST_CELLS:,} of which a dense matrix is tried")
    deviations = np.sqrt(variances)
    scaled = M.toarray() / deviations[:, None]
    return lambda: M @ optimize.nnls(scaled, y / deviations)[0]


def by_splu(A: sparse.csr_array, variances: NDArray, y: NDArray) -> Work:
    """The normal equations, factorised once."""
    _refuse_many(A)
    pull = sparse.csr_array(sparse.diags_array(variances) @ A.T)
    options = {"SymmetricMode": True}
    factor = splu(sparse.csc_array(A @ pull), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options=options)
    return lambda: y - pull @ factor.solve(A @ y)


def by_clarabel(A: sparse.csr_array, variances: NDArray, y: NDArray, lower: NDArray | float = -np.inf) -> Work:
    """A quadratic program, to the tolerances that it comes with; `lower` are least values, (n,)."""
    import clarabel

    _refuse_many(A)
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    least = np.broadcast_to(lower, variances.shape)
    held = np.flatnonzero(np.isfinite(least))
    rows = sparse.csc_matrix(sparse.vstack([-A, -sparse.eye_array(least.size, format="csr")[held]]))
    P, ends = sparse.csc_matrix(sparse.diags_array(1 / variances)), -np.append(np.zeros(A.shape[0]), least[held])
    cones = [clarabel.ZeroConeT(A.shape[0]), clarabel.NonnegativeConeT(held.size)]
    return lambda: np.array(clarabel.DefaultSolver(P, -y / variances, rows, ends, cones, settings).solve().x)


def _refuse_many(A: sparse.csr_array) -> None:
    if A.shape[0] > MOST_EQUATIONS:
        raise MemoryError(f"{A.shape[0]:,} equations, above the {MOST_EQUATIONS:,} that are tried")

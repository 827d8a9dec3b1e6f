"""The best linear unbiased estimate by dense algebra, in the null space of what is known exactly."""

import numpy as np


def best(
    M: np.ndarray, noise: np.ndarray, y: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The x of which y = M x + noise, and its covariance; what nothing determines is of least norm."""
    x, gain = _with_factor(M, noise, y, known)
    return x, gain @ gain.T


def _with_factor(
    M: np.ndarray, noise: np.ndarray, y: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same x, and F of which its covariance is F F'.

    Parameters
    ----------
    M : ndarray, (n, d)
    noise : ndarray, (n,) or (n, n)
        Variances, or the covariance; rows of variance 0 hold exactly, those of infinite variance say nothing.
    y : ndarray, (n,)
    known : (C, c), optional
        What else is known, C x = c.
    """
    variances = noise if noise.ndim == 1 else noise.diagonal()
    exact, noisy = variances == 0, (variances > 0) & np.isfinite(variances)
    more, values = known or (np.zeros((0, M.shape[1])), np.zeros(0))
    C, c = np.vstack([M[exact], more]), np.append(y[exact], values)
    start, free = np.zeros(M.shape[1]), np.eye(M.shape[1])
    if len(C):
        start, free = np.linalg.lstsq(C, c, rcond=None)[0], np.linalg.svd(C)[2][np.linalg.matrix_rank(C) :].T
    white = np.column_stack([M[noisy] @ free, y[noisy] - M[noisy] @ start])
    if noise.ndim == 1:
        white /= np.sqrt(noise[noisy, None])
    else:
        white = np.linalg.solve(np.linalg.cholesky(noise[np.ix_(noisy, noisy)]), white)
    gain = free @ np.linalg.pinv(white[:, :-1], rcond=1e-6)
    return start + gain @ white[:, -1], gain


def least_squares(
    M: np.ndarray, noise: np.ndarray, y: np.ndarray, D: np.ndarray, known: tuple[np.ndarray, np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """D x of the same, D (m, d), and its variances, as sums of squares: what is exact has none, not a rounding's."""
    x, gain = _with_factor(M, noise, y, known)
    return D @ x, np.square(D @ gain).sum(axis=1)

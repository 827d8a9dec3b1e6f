"""Noise whose covariance has no inverse, and the factor that takes its place."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from constraint_builders.arrays import Float, Index
from constraint_builders.description.noise import SparseNoise

MOST_SINGULAR = 3_000  # cells of a covariance whose rank is found by dense algebra
SINGULAR = 1e-15  # times cells: eigenvalues of correlations that rounding may leave of 0


class SingularNoise(SparseNoise):
    """Noise that some combinations of cells have none of: these are known exactly, as they were measured.

    Parameters
    ----------
    law : str
    covariance : csr_array, (n, n)
    factor : ndarray, (n, k)
        F with Sigma = F F'.
    """

    is_singular = True

    def __init__(self, law: str, covariance: sparse.csr_array, factor: Float) -> None:
        super().__init__(law, covariance)
        self._factor = factor

    @property
    def factor(self) -> Float:
        """F with Sigma = F F', (n, k)."""
        return self._factor

    @property
    def solve(self) -> None:
        """None: there is no inverse."""
        return None

    def at(self, cells: Index) -> SingularNoise:
        """The noise of the cells at some positions."""
        return SingularNoise(self.law, sparse.csr_array(self._covariance[cells][:, cells]), self._factor[cells])

    def gaussian(self, columns: int, rng: np.random.Generator) -> Float:
        """By the factor."""
        return self._factor @ rng.standard_normal((self._factor.shape[1], columns))


def singular_factor(matrix: sparse.csr_array) -> Float:
    """F, (n, k), of a singular covariance F F', k being its rank.

    Raises
    ------
    ValueError
        If a combination of cells would have a variance below 0, or there are too many cells.
    """
    size = matrix.shape[0]
    if size > MOST_SINGULAR:
        raise ValueError(
            f"covariance is singular or not positive definite: of more than {MOST_SINGULAR:,} cells give every "
            "combination a variance above 0, or LowRankPlusDiagonal"
        )
    deviations = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    inverse = np.divide(1.0, deviations, out=np.zeros(size), where=deviations > 0)
    eigenvalues, vectors = np.linalg.eigh(matrix.toarray() * np.outer(inverse, inverse))
    rounding = SINGULAR * size * max(float(eigenvalues[-1]), 1.0)
    alone = matrix[np.flatnonzero(deviations == 0)]
    if eigenvalues[0] < -rounding or (alone.nnz and abs(alone.data).max() > 0):
        raise ValueError(
            "covariance is not positive semi-definite: a combination of cells would have a variance below 0"
        )
    kept = eigenvalues > rounding
    return deviations[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept])

"""A covariance of any rank as scales and roots of its correlation: Mahalanobis lengths, and what lies in its range."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from constraint_builders.arrays import Float

EXACT = 1e-7  # of the largest standard deviation: a variance of less is the rounding error of 0
RANK_TOLERANCE = 1e-13  # eigenvalue of a correlation matrix; rounding leaves about 1e-15 where it is 0
CONSISTENT = 1e-6  # standard deviations by which consistent values may miss the affine space: three of what is dropped


@dataclass(frozen=True)
class Whitening:
    """A covariance C of some rank as its scales and the square roots of its correlation.

    Attributes
    ----------
    scales : ndarray, (K,)
        Standard deviations; for functionals known exactly the largest of the others, or 1 where there are none, each
        in the functional's own size.
    root, factor : ndarray, (K, rank)
        Of the correlation R: root root' = R^+ and factor factor' = R on its range, factor' root = 1.
    off : ndarray, (K, K - rank)
        Orthonormal basis of the null space of R.
    """

    scales: Float
    root: Float
    factor: Float
    off: Float

    @classmethod
    def of_covariance(cls, covariance: Float, sizes: Float) -> Whitening:
        """Standardise a covariance, (K, K), of functionals of sizes, (K,), and split range from null space."""
        sizes = np.where(sizes > 0, sizes, 1.0)
        deviations = np.sqrt(np.maximum(covariance.diagonal(), 0.0)) / sizes
        largest = float(deviations.max(initial=0.0))
        scales = np.where(deviations > EXACT * largest, deviations, largest or 1.0) * sizes
        eigenvalues, vectors = np.linalg.eigh(covariance / np.outer(scales, scales))
        kept = eigenvalues > RANK_TOLERANCE
        roots = np.sqrt(eigenvalues[kept])
        return cls(scales, vectors[:, kept] / roots, vectors[:, kept] * roots, vectors[:, ~kept])

    @property
    def rank(self) -> int:
        """Rank of the covariance."""
        return self.root.shape[1]

    def whiten(self, errors: Float) -> Float:
        """Errors (K, N) as (rank, N) whose covariance is the identity if that of the errors is C."""
        return self.root.T @ (errors / self.scales[:, None])

    def squared_lengths(self, errors: Float) -> Float:
        """Squared Mahalanobis length e' C^+ e of errors (K, N), (N,)."""
        z = self.whiten(errors)
        return np.einsum("ij,ij->j", z, z)

    def longest(self, sizes: Float) -> float:
        """A bound on the Mahalanobis length of errors of at most these sizes, (K,)."""
        return float(np.linalg.norm(abs(self.root.T) @ (sizes / self.scales)))

    def is_consistent(self, errors: Float, rounding: Float) -> NDArray[np.bool_]:
        """Whether errors (K, N) are in the range of C, up to their rounding (K,), (N,)."""
        distance = abs(self.off.T @ (errors / self.scales[:, None]))
        allowed = CONSISTENT * bool(self.rank) + abs(self.off.T) @ (rounding / self.scales)
        return np.asarray((distance <= allowed[:, None]).all(axis=0))

    def with_moments(self, moments: Float) -> Whitening | None:
        """The same for another covariance of the same range, given by the second moments of `whiten`, (rank, rank).

        None if they are singular.
        """
        if self.rank and np.linalg.eigvalsh(moments)[0] <= RANK_TOLERANCE:
            return None
        lower = np.linalg.cholesky(moments)
        return replace(self, root=np.linalg.solve(lower, self.root.T).T, factor=self.factor @ lower)

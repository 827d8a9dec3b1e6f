"""Covariances of base forecasts' errors, from a hierarchy and from residuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from constraint_builders import LowRankPlusDiagonal
from constraint_builders.arrays import Float
from constraint_builders.description.reals import LARGEST_VALUE

METHODS = ("ols", "wls_struct", "wls_var", "mint_cov", "mint_shrink")
OF_RESIDUALS = ("wls_var", "mint_cov", "mint_shrink")
RIDGE = 2e-8


@dataclass(frozen=True)
class ErrorCovariance:
    """The covariance that forecasts are weighed by.

    Attributes
    ----------
    variances : ndarray, (n,), or None
        Of errors that are uncorrelated.
    covariance : LowRankPlusDiagonal, ndarray, sparse array or None
        Otherwise.
    absolute : bool
        Whether it is in squared units of the forecasts, and not only up to a factor.
    centred : ndarray, (n, T), or None
        Residuals less their means, where their products were summed.
    share : float
        What each of those products counts.
    """

    variances: Float | None
    covariance: Any
    absolute: bool
    centred: Float | None = None
    share: float = 0.0

    @property
    def diagonal(self) -> Float:
        """The variances of the errors, (n,)."""
        if self.variances is not None:
            return self.variances
        if isinstance(self.covariance, LowRankPlusDiagonal):
            return self.covariance.variances
        return np.asarray(self.covariance.diagonal(), dtype=np.float64)

    def quadratic(self, weights: Float, scales: Float) -> Float:
        """Variances of the combinations `weights` (n, K) of errors that are `scales` (n, H) as large, (K, H)."""
        if self.variances is not None:
            return (weights**2).T @ (self.variances[:, None] * scales**2)
        if isinstance(self.covariance, LowRankPlusDiagonal):
            own = (weights**2).T @ (self.covariance.diagonal[:, None] * scales**2)
            shared = [(weights * scale[:, None]).T @ self.covariance.factor for scale in scales.T]
            return own + np.stack([(factor**2).sum(axis=1) for factor in shared], axis=1)
        scaled = [weights * scale[:, None] for scale in scales.T]
        return np.stack([np.einsum("ij,ij->j", own, self.covariance @ own) for own in scaled], axis=1)

    def as_low_rank(self) -> LowRankPlusDiagonal:
        """A covariance with correlations as low rank plus diagonal, whatever the rank.

        Raises
        ------
        ValueError
            If it is singular.
        """
        if isinstance(self.covariance, LowRankPlusDiagonal):
            return self.covariance
        dense = self.covariance.toarray() if sparse.issparse(self.covariance) else np.asarray(self.covariance)
        spectrum, axes = np.linalg.eigh(dense)
        own = 0.5 * spectrum[0]
        if own <= spectrum[-1] * 1e-14:
            raise ValueError(
                "the covariance is singular: draws and non-negative forecasts need a positive definite one"
            )
        return LowRankPlusDiagonal(np.full(spectrum.size, own), axes * np.sqrt(spectrum - own))

    def solve(self, V: Float) -> Float:
        """The inverse of a covariance with correlations times V, (n, K)."""
        if isinstance(self.covariance, LowRankPlusDiagonal):
            return self.covariance.solve(V)
        return np.linalg.solve(self.covariance, V)

    def by_fewer(self, rest: Float) -> ErrorCovariance:
        """The same by fewer times' residuals, (n, times), counted alike; what series have of their own stays."""
        factor = np.sqrt(self.share) * (rest - rest.mean(axis=1, keepdims=True))
        if isinstance(self.covariance, LowRankPlusDiagonal):
            return ErrorCovariance(None, LowRankPlusDiagonal(self.covariance.diagonal, factor), True)
        return ErrorCovariance(None, factor @ factor.T, True)

    def draw(self, columns: int, rng: np.random.Generator) -> Float:
        """Gaussian errors, (n, columns)."""
        if self.variances is not None:
            return rng.standard_normal((self.variances.size, columns)) * np.sqrt(self.variances)[:, None]
        covariance = self.as_low_rank()
        own = rng.standard_normal((self.diagonal.size, columns)) * np.sqrt(covariance.diagonal)[:, None]
        return own + covariance.factor @ rng.standard_normal((covariance.factor.shape[1], columns))


def error_covariance(
    method: str, S: sparse.csr_array, residuals: Float | None, ridge: float = RIDGE
) -> ErrorCovariance:
    """The covariance by the name that MinTrace has for it.

    Parameters
    ----------
    method : {"ols", "wls_struct", "wls_var", "mint_cov", "mint_shrink"}
    S : csr_array, (n, leaves)
    residuals : ndarray, (n, T), or None
        Of forecasts within the sample, NaN where there is none.
    ridge : float
        What variances from residuals have at least, so that a series without errors is not taken for known exactly.

    Raises
    ------
    ValueError
        If there are no residuals where they are needed, too few, some beyond what their squares allow, or all so small
        that the ridge is all of every variance.
    """
    if not ridge >= 0:
        raise ValueError(f"ridge is {ridge}: give a least variance of 0 or more")
    if method == "ols":
        return ErrorCovariance(np.ones(S.shape[0]), None, absolute=False)
    if method == "wls_struct":
        return ErrorCovariance(np.asarray(abs(S).sum(axis=1), dtype=np.float64).ravel(), None, absolute=False)
    if residuals is None:
        raise ValueError(f"method {method!r} needs the sample's values and the forecasts of them: give Y_df with both")
    refuse_large_residuals(residuals)
    largest = float(np.fmax.reduce(abs(residuals), axis=None, initial=0.0))
    if method != "mint_cov" and 0 < largest**2 < ridge:
        raise ValueError(
            f"ridge is {ridge:g}, and no residual is above {largest:.3g}, so that it would be all of every variance: "
            "give a smaller one, or forecasts in larger units"
        )
    if method == "wls_var":
        return ErrorCovariance(_mean_squares(residuals) + ridge, None, absolute=True)
    whole = residuals[:, ~np.isnan(residuals).any(axis=0)]
    if whole.shape[1] < 2:
        raise ValueError(f"method {method!r} needs two times or more at which every series has a residual")
    centred = whole - whole.mean(axis=1, keepdims=True)
    if method == "mint_shrink":
        share = (1 - shrinkage_intensity(centred)) / (whole.shape[1] - 1)
        return ErrorCovariance(None, shrunk_covariance(whole, ridge), True, centred, share)
    if whole.shape[1] <= whole.shape[0]:
        raise ValueError(
            f"method 'mint_cov': the sample covariance of {whole.shape[0]} series from {whole.shape[1]} residuals each "
            "is singular: use 'mint_shrink', or give covariance="
        )
    return ErrorCovariance(None, np.atleast_2d(np.cov(whole)), True, centred, 1 / (whole.shape[1] - 1))


def refuse_large_residuals(residuals: Float) -> None:
    """`ValueError` if a residual (n, T, ...) is infinite, or beyond what its square allows."""
    large = abs(residuals) > LARGEST_VALUE
    if large.any():
        series = int(np.argwhere(large)[0, 0])
        raise ValueError(
            f"series {series} has the residual {residuals[large][0]:g}: give finite values, in larger units, and NaN "
            "where there is none"
        )


def shrunk_covariance(residuals: Float, ridge: float = RIDGE) -> LowRankPlusDiagonal:
    """The sample covariance with correlations shrunk towards zero, kept as low rank plus diagonal.

    Parameters
    ----------
    residuals : ndarray, (n, T)
    ridge : float
        Least variance that a series has of its own.

    Returns
    -------
    LowRankPlusDiagonal
        Of rank T at most: time n T^2, memory n T.

    References
    ----------
    J. Schaefer and K. Strimmer (2005), "A shrinkage approach to large-scale covariance matrix estimation", Statistical
    Applications in Genetics and Molecular Biology 4: the intensity of the shrinkage, target D.
    """
    times = residuals.shape[1]
    centred = residuals - residuals.mean(axis=1, keepdims=True)
    variances = (centred**2).sum(axis=1) / (times - 1)
    intensity = shrinkage_intensity(centred)
    own = np.maximum(intensity * variances, ridge)
    return LowRankPlusDiagonal(own, np.sqrt((1 - intensity) / (times - 1)) * centred)


def shrinkage_intensity(centred: Float) -> float:
    """By how much correlations are shrunk, between 0 and 1: their estimated variance relative to their squares.

    Sums over pairs of series come from sums over pairs of times: no (n, n) matrix.

    Parameters
    ----------
    centred : ndarray, (n, T)
        Residuals less their means.
    """
    times = centred.shape[1]
    deviations = np.sqrt((centred**2).mean(axis=1))
    X = np.divide(centred, deviations[:, None], out=np.zeros_like(centred), where=deviations[:, None] > 0)
    squares = (X**2).T  # (T, n)
    between_times = X.T @ X
    own = (squares**2).sum()
    second = (squares.sum(axis=1) ** 2).sum() - own  # sum over pairs and times of products squared
    first = ((between_times**2).sum() - (squares.sum(axis=0) ** 2).sum()) / times**2  # over pairs of squared means
    if first <= 0:
        return 1.0
    spread = second - times * first
    return float(np.clip(spread / (times * (times - 1) * first), 0, 1))


def _mean_squares(residuals: Float) -> Float:
    """Mean squares, (n,), of residuals (n, T), NaN left out."""
    counts = (~np.isnan(residuals)).sum(axis=1)
    if not counts.all():
        raise ValueError(f"series {int(np.argmin(counts))} has no residual in the sample: give some, or another method")
    return np.nansum(residuals**2, axis=1) / counts

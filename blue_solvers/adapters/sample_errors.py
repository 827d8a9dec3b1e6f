"""Errors of reconciled forecasts in a sample, and the intervals that they give: of Student, by bootstrap, conformal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from blue_solvers.adapters.residual_covariance import ErrorCovariance
from blue_solvers.nonnegative import ols
from blue_solvers.operator import BlueOperator
from blue_solvers.quantiles import t_multiple
from constraint_builders import LowRankPlusDiagonal, Problem
from constraint_builders.arrays import Float, Index

OF_SAMPLE = ("student", "bootstrap", "conformal")
_DRAWS = 1000
_BLOCK = 64  # series whose draws are held at once
_LEVERAGE = 1 - 1e-9


@dataclass(frozen=True)
class SampleErrors:
    """By how much reconciled forecasts of the sample erred.

    Attributes
    ----------
    fitted : ndarray, (n, T, steps)
        Errors of what the sample itself fitted the weights to; `steps` is the horizon, or 1 if all steps err alike.
    held_out : ndarray, (n, T, steps)
        The same, each time by weights of a covariance without it.
    degrees : float
        The times less the directions of disagreement that the covariance was fitted to.
    leverages : ndarray, (horizon,)
        What the weights' own errors add to the variance of new forecasts, in those of `first`: the more, the more
        these disagree.
    first : ndarray, (n, T)
        Errors one step ahead as large as the weights were fitted to.
    """

    fitted: Float
    held_out: Float
    degrees: float
    leverages: Float
    first: Float

    @property
    def root_mean_squares(self) -> Float:
        """Of the errors held out, (n, horizon)."""
        return self._at_every_step(np.sqrt((self.held_out**2).mean(axis=1)))

    def half_widths(self, method: str, levels: Sequence[float], draws: int | None, seed: int | None) -> Float:
        """How far intervals of these coverages in per cent reach on either side, (n, horizon, levels).

        Raises
        ------
        ValueError
            If the sample is too short for a level.
        """
        times = self.held_out.shape[1]
        shares = np.array(levels) / 100
        if method == "student":
            if self.degrees < 1:
                raise ValueError(f"{times} times leave no degree of freedom beside the covariance: give more of them")
            squares = (self.fitted**2).sum(axis=1) / self.degrees
            of_weights = (self.first**2).sum(axis=1)[:, None] / self.degrees * self.leverages
            deviations = np.sqrt(squares + of_weights)
            return deviations[..., None] * np.array([t_multiple(self.degrees, own) for own in shares])
        ranks = np.ceil((times + 1) * shares - 1e-9).astype(int)
        if ranks.max(initial=0) > times:
            least = math.ceil(shares.max() / (1 - shares.max()) - 1e-9)
            raise ValueError(f"{times} times say nothing of a coverage of {max(levels):g} %: give {least} or more")
        if method == "conformal":
            return self._at_every_step(np.moveaxis(np.sort(abs(self.held_out), axis=1)[:, ranks - 1], 1, 2))
        found = np.empty((*self.held_out.shape[::2], shares.size))
        drawn, _ = self._chosen(_DRAWS if draws is None else draws, seed)
        shares = shares * (times + 1) / times
        for start in range(0, len(found), _BLOCK):
            rows = slice(start, start + _BLOCK)
            sizes = np.quantile(abs(self.held_out[rows][:, drawn]), shares, axis=1, method="weibull")
            found[rows] = np.moveaxis(sizes, 0, 2)
        return self._at_every_step(found)

    def draw(self, method: str, draws: int, seed: int | None) -> Float:
        """Coherent errors, (n, horizon, draws): those of Student, or whole times of the sample with random signs."""
        if method == "student":
            rng, times = np.random.default_rng(seed), self.fitted.shape[1]
            scales = 1 / np.sqrt(rng.chisquare(self.degrees, draws))
            errors = np.einsum("nth,td->nhd", self.fitted, rng.standard_normal((times, draws)) * scales)
            of_weights = self.first @ (rng.standard_normal((times, draws)) * scales)
            return self._at_every_step(errors) + of_weights[:, None] * np.sqrt(self.leverages)[:, None]
        drawn, signs = self._chosen(draws, seed)
        return self._at_every_step(np.moveaxis(self.held_out[:, drawn] * signs[:, None], 1, 2))

    def _chosen(self, draws: int, seed: int | None) -> tuple[Index, Float]:
        """Times of the sample, and signs."""
        rng = np.random.default_rng(seed)
        return rng.integers(0, self.held_out.shape[1], draws), rng.choice([-1.0, 1.0], draws)

    def _at_every_step(self, found: Float) -> Float:
        """Numbers (n, steps, ...) as (n, horizon, ...)."""
        return np.repeat(found, self.leverages.size, axis=1) if found.shape[1] < self.leverages.size else found


def sample_errors(
    P: BlueOperator, errors: ErrorCovariance, y_hat: Float, residuals: Float, scales: Float | None, kept: Index
) -> SampleErrors:
    """What the reconciliation makes of the residuals of base forecasts.

    Without a time t the estimated covariance W is W - c u u', u being its residuals: the weights P then change by
    c P u (u' K) / (1 - c u' K u), where K = W^-1 (1 - P).

    Parameters
    ----------
    P : BlueOperator
        The reconciliation, (n, n).
    errors : ErrorCovariance
    y_hat : ndarray, (n, horizon)
    residuals : ndarray, (n, T, steps)
        Without NaN.
    scales : ndarray, (n, horizon), or None
        How many times as large the errors of new forecasts are; with one step of residuals.
    kept : ndarray of int, (T,)
        Which they are of the times that the covariance was estimated from.

    Raises
    ------
    ValueError
        If the covariance without one of the times is singular.
    """
    first = P @ residuals[..., 0]
    if scales is not None:
        residuals = residuals * scales[:, None]
    n, times = residuals.shape[:2]
    fitted = (P @ residuals.reshape(n, -1)).reshape(residuals.shape)
    if errors.centred is None or not errors.share:
        return SampleErrors(fitted, fitted, float(times), np.zeros(y_hat.shape[1]), first)
    estimated = errors.centred.shape[1]
    centred, share = errors.centred[:, kept], errors.share * estimated / (estimated - 1)
    moved = errors.solve(centred - P @ centred)
    leverages = share * (centred * moved).sum(axis=0)
    if leverages.max() > _LEVERAGE:
        raise ValueError(
            f"the covariance without time {int(kept[leverages.argmax()])} of the sample is singular: use "
            "'mint_shrink', or give more times"
        )
    crossed = share * np.einsum("nt,nts->ts", moved, residuals) / (1 - leverages)[:, None]
    held_out = fitted + (P @ centred)[:, :, None] * crossed
    apart = y_hat - P @ y_hat
    degrees = times - leverages.sum() * (estimated - 1) / estimated
    return SampleErrors(fitted, held_out, degrees, errors.share * (apart * errors.solve(apart)).sum(axis=0), first)


def nonnegative_errors(
    reconciled: Callable[[Float], Float],
    S: sparse.csr_array,
    errors: ErrorCovariance,
    values: Float,
    residuals: Float,
    kept: Index,
    horizon: int,
) -> SampleErrors:
    """The same of non-negative forecasts of the sample's values (n, T), each time by a covariance without it."""
    base = values[:, :, None] - residuals
    if errors.centred is not None and errors.share:
        found = [
            nonnegative_sums(S, errors.by_fewer(np.delete(errors.centred, time, axis=1)).as_low_rank(), own)
            for time, own in zip(kept, np.moveaxis(base, 1, 0), strict=True)
        ]
        held_out = values[:, :, None] - np.stack(found, axis=1)
    else:
        held_out = values[:, :, None] - reconciled(base.reshape(len(base), -1)).reshape(base.shape)
    return SampleErrors(held_out, held_out, float(values.shape[1]), np.zeros(horizon), held_out[..., 0])


def nonnegative_sums(S: sparse.csr_array, covariance: LowRankPlusDiagonal, y_hat: Float) -> Float:
    """Sums S b of leaves b >= 0 nearest to forecasts (n, K) of correlated errors D + U U'.

    Errors e + U g are unknowns beside the leaves: the program in (b, g) has uncorrelated errors, y = S b + U g + e of
    variances D and 0 = g + (a unit), and bounds on b alone.
    """
    leaves, sources = S.shape[1], covariance.factor.shape[1]
    program = sparse.block_array(
        [[S, covariance.factor], [None, sparse.eye_array(sources)], [sparse.eye_array(leaves), None]]
    )
    variances = np.concatenate([covariance.diagonal, np.ones(sources), np.full(leaves, np.inf)])
    lower = np.full(variances.size, -np.inf)
    lower[-leaves:] = 0
    measured = np.zeros((variances.size, y_hat.shape[1]))
    measured[: y_hat.shape[0]] = y_hat
    problem = Problem.from_summing_matrix(sparse.csr_array(program), variances)
    return np.asarray(S @ ols(problem, measured, bounds=(lower, np.inf)).observed[-leaves:])

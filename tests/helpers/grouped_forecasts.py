"""A small grouped hierarchy, a sample of it and base forecasts, as arrays and as frames."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm

from blue_solvers.adapters.residual_covariance import shrinkage_intensity
from constraint_builders.arrays import Float

GROUPED = np.array(  # total, two regions, two products, region by product
    [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], *np.eye(4)], dtype=float
)
NAMES = ["total", "east", "west", "tea", "rice", "east/tea", "east/rice", "west/tea", "west/rice"]
TAGS = {"total": ["total"], "region": ["east", "west"], "product": ["tea", "rice"], "leaf": NAMES[5:]}
TIMES, HORIZON = 24, 3


def sample(seed: int = 1) -> tuple[Float, Float, Float]:
    """Values of a sample (n, T), the forecasts of them, and base forecasts (n, horizon)."""
    rng = np.random.default_rng(seed)
    values = GROUPED @ rng.gamma(5, 3, (4, TIMES))
    shared = rng.normal(size=(2, TIMES))
    fitted = values + rng.normal(size=(9, TIMES)) * np.linspace(1, 3, 9)[:, None] + rng.normal(size=(9, 2)) @ shared
    return values, fitted, GROUPED @ rng.gamma(5, 3, (4, HORIZON)) + rng.normal(0, 2, (9, HORIZON))


def projection(W: Float) -> Float:
    weighed = GROUPED.T @ np.linalg.inv(W)
    return GROUPED @ np.linalg.solve(weighed @ GROUPED, weighed)


def frames(kind: Callable[[dict[str, Any]], Any], levels: bool = True) -> tuple[Any, Any, Any]:
    """Y_hat_df, S_df and Y_df, rows of the first shuffled."""
    values, fitted, y_hat = sample()
    ids, steps = np.repeat(NAMES, HORIZON), np.tile(np.arange(1, HORIZON + 1), 9)
    order = np.random.default_rng(3).permutation(ids.size)
    base = {"unique_id": ids[order].tolist(), "ds": steps[order].tolist(), "AR": y_hat.ravel()[order].tolist()}
    if levels:
        half = norm.ppf(0.9) * deviations().ravel()
        base |= {"AR-lo-80": (y_hat.ravel() - half)[order], "AR-hi-80": (y_hat.ravel() + half)[order]}
    past = {"unique_id": np.repeat(NAMES, TIMES).tolist(), "ds": np.tile(np.arange(-TIMES, 0), 9).tolist()}
    past |= {"y": values.ravel().tolist(), "AR": fitted.ravel().tolist()}
    summing = {"unique_id": NAMES, **{name: GROUPED[:, i].tolist() for i, name in enumerate(NAMES[5:])}}
    return kind(base), kind(summing), kind(past)


def deviations() -> Float:
    return np.linspace(1, 4, 9)[:, None] * np.array([1.0, 1.5, 2.5]) + np.arange(3) * 0.1


def without(residuals: Float, time: int, method: str) -> Float:
    """The projection by the covariance of all other times; how much is shrunk stays that of all."""
    centred = residuals - residuals.mean(axis=1, keepdims=True)
    if method == "mint_cov":
        return projection(np.cov(np.delete(residuals, time, axis=1)))
    intensity, times = shrinkage_intensity(centred), residuals.shape[1]
    W = intensity * np.diag((centred**2).sum(axis=1)) / (times - 1)
    rest = np.delete(residuals, time, axis=1)
    return projection(W + (1 - intensity) / (times - 1) * np.cov(rest) * (times - 2))

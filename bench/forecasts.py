"""Forecasts of real series: how often intervals hold what came.

    python -m bench forecasts            a minute or two
    python -m bench forecasts --quick    every sixth month

Employees of the United States in 15 industries and seven groups of them (`blue_solvers.examples.EMPLOYMENT`). Every
month from 2003 on, each series is forecast by itself up to three months ahead from the 60 months before: a seasonal
difference with two lags, fitted anew each time. The errors of the last T months, made so before, are the sample.
Printed is the share of all series and months that lay in intervals of 90 %, in per cent. Times beside
hierarchicalforecast are those of `bench peers`.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bench.measuring import is_quick, print_table
from blue_solvers.adapters import ExactMinTrace
from blue_solvers.adapters.sample_errors import OF_SAMPLE
from blue_solvers.examples import EMPLOYMENT

GROUPS = ((0, 15), (0, 14), (0, 4), (4, 15), (4, 14), (2, 4), (4, 8))  # all, private, goods, services and so on
SEASON, LAGS, WINDOW, HORIZON = 12, 2, 60, 3
FIRST = 159  # the first month with the longest sample before
TIMES, METHODS, INTERVALS = (24, 36, 48, 60, 96), ("wls_var", "mint_shrink"), ("normality", *OF_SAMPLE)


def main(argv: list[str]) -> None:
    """Print the table."""
    quick = is_quick(argv, "forecasts", __doc__, "every sixth month")
    print_table(["method", "T", "months ahead", *INTERVALS], coverages(6 if quick else 1))


def employment() -> tuple[NDArray, NDArray]:
    """The matrix that sums industries, (22, 15), and all series, (22, months)."""
    leaves = pl.read_csv(EMPLOYMENT).drop("month").to_numpy().T.astype(float)
    S = np.eye(len(leaves))
    S = np.vstack([*(S[start:stop].sum(axis=0) for start, stop in GROUPS), S])
    return S, S @ leaves


def base_forecasts(series: NDArray) -> NDArray:
    """Of every month by those before, (months, horizon): one step ahead, two, ...; NaN where too few are before."""
    found = np.full((series.size + HORIZON, HORIZON), np.nan)
    for now in range(WINDOW, series.size + 1):
        past = series[now - WINDOW : now]
        changes = past[SEASON:] - past[:-SEASON]
        lagged = [changes[LAGS - 1 - lag : -1 - lag] for lag in range(LAGS)]
        slopes = np.linalg.lstsq(np.column_stack([np.ones(changes.size - LAGS), *lagged]), changes[LAGS:])[0]
        for step in range(HORIZON):
            changes = np.append(changes, slopes @ [1, *changes[: -LAGS - 1 : -1]])
            found[now + step, step] = past[step - SEASON] + changes[-1]
    return found[: series.size]


def coverages(every: int) -> Iterator[list[object]]:
    """Rows of the table."""
    S, series = employment()
    forecasts = np.stack([base_forecasts(own) for own in series])
    months = range(FIRST, series.shape[1] - HORIZON + 1, every)
    for method in METHODS:
        for times in TIMES:
            held: dict[str, list[NDArray]] = {name: [] for name in INTERVALS}
            for now in months:
                ahead = np.stack([forecasts[:, now + step, step] for step in range(HORIZON)], axis=1)
                sample, made = series[:, now - times : now], forecasts[:, now - times : now]
                deviations = np.sqrt(((sample[..., None] - made) ** 2).mean(axis=1))
                own = ExactMinTrace(method).fit(S, ahead, sample, made, deviations)
                came = series[:, now : now + HORIZON]
                for name, inside in held.items():
                    low, high = np.moveaxis(own.predict(level=[90], intervals_method=name, seed=now)["quantiles"], 2, 0)
                    inside.append((low <= came) & (came <= high))
            shares = {name: np.mean(inside, axis=(0, 1)) for name, inside in held.items()}
            for step in (0, HORIZON - 1):
                yield [method, times, step + 1, *(100 * own[step] for own in shares.values())]

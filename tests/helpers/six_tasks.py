"""Six tasks that people come with, as a user writes them: with what there was before the doors were open, and now.

Each takes the same things and gives the same. What is written before needs nothing that was not there then, at commit
776b9f0, and ran there too.
"""

import math
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from blue_solvers import blue
from constraint_builders import Problem, Schema
from constraint_builders.files import estimates_frame, read_long_table, write_frame

SEX_BY_AGE = {"sex": ["f", "m"], "age": ["young", "old"]}


def published_before(frame: pd.DataFrame) -> Any:
    """Tables with margins of error, a suppressed cell and an exact total."""
    sexes, ages = frame["sex"] != "total", frame["age"] != "total"
    names = np.select([sexes & ages, sexes, ages], ["sex * age", "sex", "age"], "total")
    values = pd.to_numeric(frame["estimate"], errors="coerce")
    margins = pd.to_numeric(frame["moe"], errors="coerce")
    variances = np.where(frame["moe"] == "*****", 0.0, (margins / norm.ppf(0.95)) ** 2)
    variances = np.where(values.isna(), np.inf, variances)
    long = frame[["sex", "age"]].assign(table=names, value=values, variance=variances)
    problem, y = read_long_table(long, undetermined="nan")
    P = blue(problem)
    x, errors = P @ y + P.offset, np.sqrt(P.variances())
    half = norm.ppf(0.975) * errors
    return estimates_frame(problem, x, errors, x - half, x + half)


def published_now(frame: pd.DataFrame) -> Any:
    from blue_solvers import estimate, read_tables

    problem, y = read_tables(frame, columns={"moe": "moe_90"}, suppressed=["(D)"], exact=["*****"])
    return estimate(problem, y).to_frame()


def forecasts_before(Y_hat_df: pd.DataFrame, S_df: pd.DataFrame) -> Any:
    """Base forecasts of a hierarchy with their intervals."""
    S = S_df.set_index("unique_id")
    base, low, high = (
        Y_hat_df.pivot(index="unique_id", columns="ds", values=name).loc[S.index].to_numpy()
        for name in ("AutoETS", "AutoETS-lo-90", "AutoETS-hi-90")
    )
    deviations = (high - low) / (2 * norm.ppf(0.95))
    P = blue(Problem.from_summing_matrix(S.to_numpy(), S.sum(axis=1).to_numpy()))
    mean = P @ base
    errors = np.sqrt((P @ np.eye(len(S))) ** 2 @ deviations**2)
    lower, upper = (mean + sign * norm.ppf(0.95) * errors for sign in (-1, 1))
    rows = S.index.get_indexer(Y_hat_df["unique_id"]), pd.factorize(Y_hat_df["ds"], sort=True)[0]
    return Y_hat_df.assign(mean=mean[rows], low=lower[rows], high=upper[rows])[["mean", "low", "high"]]


def forecasts_now(Y_hat_df: pd.DataFrame, S_df: pd.DataFrame) -> Any:
    from blue_solvers.adapters import reconcile

    return reconcile(Y_hat_df, S_df, method="wls_struct", level=[90]).filter(like="Exact")


def released_before(measurement: Any, sexes: Any, detailed: Any, scale: float) -> Any:
    """Marginals that OpenDP released: another marginal, its errors, and an interval."""
    decays = math.exp(-measurement.map(1)), math.exp(-1 / scale)
    coarse, fine = (2 * decay / (1 - decay) ** 2 for decay in decays)
    observed = {"sex": coarse, "sex * age": fine}
    problem = Problem(Schema(SEX_BY_AGE), observed, ["age", "sex"], noise="discrete_laplace")
    y = problem.vector({"sex": sexes, "sex * age": np.reshape(detailed, (2, 2))})
    P = blue(problem)
    x, errors = P @ y + P.offset, np.sqrt(P.variances())
    half = norm.ppf(0.95) * errors
    tables, spreads, lower, upper = (problem.desired.tables(own) for own in (x, errors, x - half, x + half))
    return tables["age"], spreads["age"], (lower["sex"], upper["sex"])


def released_now(measurement: Any, sexes: Any, detailed: Any, scale: float) -> Any:
    from blue_solvers.adapters import ExactMarginals, noise_of
    from noise_mechanisms import variance_of

    law, variance = noise_of(measurement)
    problem = Problem(Schema(SEX_BY_AGE), {"sex": variance, "sex * age": variance_of(law, scale)}, noise=law)
    y = problem.vector({"sex": sexes, "sex * age": np.reshape(detailed, (2, 2))})
    table = ExactMarginals(problem, y)
    return table.project(["age"]), table.std(["age"]), table.interval(["sex"], 0.9)


def certified_before(problem: Problem, y: Any, sums: Any) -> Any:
    """How far somebody's estimate is from the best one, in its standard errors; by solving it oneself."""
    x = np.concatenate([np.ravel(sums[tuple(name.split(" * "))]) for name in problem.observed.names])
    P = blue(problem)
    away = x - (P @ y + P.offset)
    covariance = P.covariance @ np.eye(x.size)
    return float(np.sqrt(away @ np.linalg.pinv(covariance, hermitian=True) @ away))


def certified_now(problem: Problem, y: Any, sums: Any) -> Any:
    from blue_solvers.adapters import judge

    return judge(problem, y, {"theirs": sums})["distance"][0]


def measured_before(problems: Any, solvers: Any) -> Any:
    """Solvers compared: seconds to prepare and to apply, memory, and the error by the reference."""
    rows = []
    for name, problem in problems.items():
        y = np.random.default_rng(0).normal(size=problem.observed.size)
        best = blue(problem, "dense") @ y
        for solver in solvers:
            tracemalloc.start()
            began = time.perf_counter()
            P = blue(problem, solver)
            prepared = time.perf_counter()
            x = P @ y
            applied = time.perf_counter()
            memory = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            rows.append((name, P.info.solver, prepared - began, applied - prepared, memory, abs(x - best).max()))
    return pd.DataFrame(rows, columns=["problem", "solver", "prepare", "apply", "memory", "error"])


def measured_now(problems: Any, solvers: Any) -> Any:
    from blue_solvers import benchmark

    return benchmark(problems, solvers, alone=False)


def handed_on_before(problem: Problem, y: Any, path: Path) -> None:
    """Estimates in a file that R and DuckDB read."""
    P = blue(problem)
    x, errors = P @ y + P.offset, np.sqrt(P.variances())
    half = norm.ppf(0.975) * errors
    write_frame(estimates_frame(problem, x, errors, x - half, x + half), path)


def handed_on_now(problem: Problem, y: Any, path: Path) -> None:
    from blue_solvers import estimate

    write_frame(estimate(problem, y).to_frame(), path)

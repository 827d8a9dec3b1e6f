"""The benchmark of "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", without failures.

    python -m bench microdata             31 data sets x 6 privacy settings x 6 methods x 1,000 runs
    python -m bench microdata --quick     3 data sets x 2 settings x 20 runs: a minute, for continuous integration
    python -m bench microdata --timing    milliseconds a solve beside scipy's nnls and two general QP solvers, and sizes

The real data sets are read from ``--data`` (default ``../shared/data/puma``); without them the synthetic ones run
alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import nnls as scipy_nnls

from bench.datasets import (
    PUMAS,
    SETTINGS,
    Privacy,
    benchmark_problem,
    puma_datasets,
    synthetic_datasets,
)
from blue_solvers.nonnegative import Fit, anchored_fit, max_fit, nnls, ols, reweighted_fit, sequential_fit
from blue_solvers.nonnegative.price.bounds import PureDP, least_sum_error
from blue_solvers.nonnegative.programme import NotConvergedError
from constraint_builders import Problem, Schema, gallery
from noise_mechanisms import draw_noise

METHODS: dict[str, Callable[[Problem, NDArray], Fit]] = {
    "OLS": ols,
    "NNLS": nnls,
    "MaxFit": max_fit,
    "Seq": sequential_fit,
    "ReWeight": reweighted_fit,
    "Anchored": anchored_fit,
}
SHOWN = PureDP(0.5)
PAPER_NAMES = ("Level00-2d", *(f"PUMA{code}" for code in PUMAS))
SEED = 20211206

# Table 1: squared error of the sum; Table 2: largest and total squared error of the cells. Laplace, epsilon = 0.5.
PAPER_SUM = {
    "OLS": [101.3] + [107.2] * 15,
    "NNLS": [
        461.9, 547.2, 446.1, 408.1, 435.3, 584.0, 395.1, 369.3, 467.8, 543.7,
        485.2, 329.1, 300.3, 399.9, 396.1, 330.7,
    ],
    "MaxFit": [
        533.9, 500.3, 571.7, 426.3, 426.3, 677.4, 443.6, 329.0, 472.0, 558.2,
        464.4, 301.0, 293.3, 386.5, 369.5, 280.3,
    ],
    "Seq": [
        149.2, 106.7, 120.3, 120.8, 134.9, 111.4, 119.1, 109.6, 146.0, 117.8,
        126.5, 122.9, 85.7, 129.8, 139.2, 139.1,
    ],
    "ReWeight": [
        108.5, 112.5, 107.2, 109.8, 110.9, 108.1, 110.4, 107.5, 109.2, 110.8,
        110.8, 108.4, 108.8, 111.3, 107.2, 107.8,
    ],
}  # fmt: skip
PAPER_MAX = {
    "OLS": [124.0] + [142.9] * 15,
    "NNLS": [
        147.4, 135.6, 107.5, 111.9, 105.3, 94.9, 115.9, 130.0, 100.0, 97.5,
        100.4, 119.6, 119.2, 105.9, 108.3, 130.3,
    ],
    "MaxFit": [
        173.1, 144.6, 125.4, 142.3, 96.7, 72.1, 129.7, 147.8, 109.4, 79.0,
        103.2, 134.7, 149.1, 120.6, 101.8, 124.3,
    ],
    "Seq": [
        283.6, 179.7, 189.8, 126.3, 114.3, 112.9, 156.9, 311.3, 121.7, 92.7,
        131.6, 142.3, 140.7, 122.7, 203.4, 178.5,
    ],
    "ReWeight": [
        78.4, 209.8, 141.9, 136.0, 160.5, 78.8, 205.0, 168.9, 156.2, 78.7,
        138.2, 259.1, 166.1, 194.0, 153.2, 172.8,
    ],
}  # fmt: skip
PAPER_TOTAL = {
    "OLS": [10516.5] + [23906.2] * 15,
    "NNLS": [
        344.2, 809.0, 1179.8, 1313.0, 1243.8, 562.2, 1516.1, 1954.4, 977.2, 686.9,
        944.4, 2189.2, 2884.1, 1432.5, 1474.7, 2239.7,
    ],
    "MaxFit": [
        443.7, 910.7, 1235.3, 1385.5, 1257.2, 599.0, 1665.9, 1971.8, 956.4, 705.7,
        1023.2, 2191.5, 3088.6, 1442.3, 1498.6, 2274.1,
    ],
    "Seq": [
        437.3, 782.9, 1171.7, 1049.1, 1019.1, 429.9, 1312.1, 1983.4, 843.4, 534.2,
        809.4, 1918.5, 2484.2, 1262.1, 1394.5, 2079.0,
    ],
    "ReWeight": [
        159.2, 731.3, 1123.8, 1264.4, 1285.7, 409.8, 1617.1, 1760.1, 930.1, 516.0,
        888.2, 2336.1, 2870.4, 1448.6, 1392.9, 2123.0,
    ],
}  # fmt: skip


def main(argv: list[str]) -> None:
    """Run the benchmark as the command line says, and print its tables."""
    arguments = _parser().parse_args(argv)
    datasets = _datasets(Path(arguments.data))
    if arguments.timing:
        print_timings(datasets, arguments.runs or 20)
        print_sizes()
        return
    settings: tuple[Privacy, ...] = SETTINGS
    if arguments.quick:
        datasets = {name: datasets[name] for name in ("Level00-2d", "Stair-1d", "Step16-2d")}
        settings = (SHOWN, SETTINGS[-1])
    runs = arguments.runs or (20 if arguments.quick else 1000)
    started = time.perf_counter()
    results = run(datasets, settings, runs)
    print(f"{len(datasets)} data sets x {len(settings)} settings x {len(METHODS)} methods x {runs} runs: "
          f"{time.perf_counter() - started:.0f} s, 1 process")  # fmt: skip
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(results, indent=1))
    report(results)
    if arguments.picture:
        draw(results, Path(arguments.picture))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench microdata", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 data sets, 2 settings, 20 runs")
    parser.add_argument("--timing", action="store_true", help="milliseconds a solve instead of errors")
    parser.add_argument("--runs", type=int, help="runs for each data set and setting (default 1000)")
    parser.add_argument("--data", default="../shared/data/puma", help="folder of the 15 real data sets")
    parser.add_argument("--out", help="JSON file for all errors")
    parser.add_argument("--picture", help="picture of the trade-off (needs matplotlib)")
    return parser


def _datasets(folder: Path) -> dict[str, NDArray]:
    if not folder.is_dir():
        print(f"no folder {folder}: the 15 real data sets are left out", file=sys.stderr)
        return dict(synthetic_datasets())
    return synthetic_datasets() | puma_datasets(folder)


def run(datasets: dict[str, NDArray], settings: Iterable[Privacy], runs: int) -> list[dict[str, Any]]:
    """Errors of every method on every data set and setting; all data sets of one shape share their noise.

    Returns
    -------
    list of dict
        One for each data set, setting and method: mean squared errors by table (largest, total and quantiles over its
        cells, with standard errors of the mean), the worst residuals relative to the largest count, failures, and
        milliseconds a solve.
    """
    results = []
    for setting in settings:
        for name, counts in datasets.items():
            problem = benchmark_problem(counts, setting)
            assert problem.truth is not None
            y = problem.truth[:, None] + draw_noise(problem, runs, SEED)
            for method, fit in METHODS.items():
                fit(problem, y[:, 0])  # compiled once, before it is timed
                results.append({"dataset": name, "setting": repr(setting), "method": method}
                               | _errors(problem, fit, y, float(counts.max())))  # fmt: skip
    return results


def _errors(problem: Problem, fit: Callable[[Problem, NDArray], Fit], y: NDArray, largest: float) -> dict[str, Any]:
    started = time.process_time()
    try:
        fitted = fit(problem, y)
    except NotConvergedError as error:
        return {"failures": str(error)}
    milliseconds = 1e3 * (time.process_time() - started) / y.shape[1]
    assert problem.truth is not None
    squares = (fitted.observed - problem.truth[:, None]) ** 2
    return {
        "failures": 0,
        "milliseconds": milliseconds,
        "kkt": fitted.kkt_residual / largest,
        "margin": fitted.margin_residual / largest,
        "iterations": fitted.iterations,
        "tables": {str(table): _summary(squares[problem.observed.slice(table)]) for table in problem.observed.names},
    }


def _summary(squares: NDArray) -> dict[str, float]:
    means, totals = squares.mean(axis=1), squares.sum(axis=0)
    worst = int(means.argmax())
    runs = np.sqrt(max(squares.shape[1] - 1, 1))
    quantiles = {f"q{q}": float(np.quantile(means, q / 100)) for q in (50, 75, 90)}
    return quantiles | {
        "max": float(means[worst]),
        "max_se": float(squares[worst].std() / runs),
        "total": float(totals.mean()),
        "total_se": float(totals.std() / runs),
    }


def report(results: list[dict[str, Any]]) -> None:
    """Print Tables 1 and 2 beside the paper's, and how well everything was solved."""
    failed = [r for r in results if r["failures"]]
    print(f"failures: {len(failed)}")
    for result in failed:
        print("  ", result)
    solved = [r for r in results if not r["failures"]]
    worst = {figure: max(r[figure] for r in solved) for figure in ("kkt", "margin", "iterations")}
    print(
        f"relative to the largest count: KKT residual {worst['kkt']:.1e} at most, held answers missed by "
        f"{worst['margin']:.1e}; Newton steps {worst['iterations']} at most"
    )
    shown = {(r["dataset"], r["method"]): r["tables"] for r in solved if r["setting"] == repr(SHOWN)}
    names = [name for name in PAPER_NAMES if (name, "OLS") in shown]
    _print_table("Table 1: squared error of the sum, ours / paper", shown, names, PAPER_SUM, "total", "total")
    _print_table("Table 2: largest squared error of a cell, ours / paper", shown, names, PAPER_MAX, "detailed", "max")
    _print_table("Table 2: total squared error of cells, ours / paper", shown, names, PAPER_TOTAL, "detailed", "total")
    _print_closed_forms(solved)
    _print_anchored(solved)


def _print_table(title: str, shown: dict, names: list[str], paper: dict, table: str, figure: str) -> None:
    print(f"\n{title}\n{'':12}" + "".join(f"{method:>18}" for method in METHODS))
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    for name in names:
        row = f"{name:12}"
        for method in METHODS:
            ours = shown[name, method][table][figure]
            if method not in paper:
                row += f"{ours:9.1f} /      -"
                continue
            theirs = paper[method][PAPER_NAMES.index(name)]
            ratios[method].append(ours / theirs)
            row += f"{ours:9.1f} /{theirs:7.1f}"
        print(row)
    if len(names) > 1:
        print(f"{'ratio (sd)':12}" + "".join(f"{np.mean(r):10.3f} ({np.std(r):.3f})" for r in ratios.values() if r))


def _print_closed_forms(results: list[dict[str, Any]]) -> None:
    """OLS's errors and the sum error of sequential fitting are known in closed form."""
    print("\nclosed forms: measured against exact, in standard errors, the most over all settings")
    deviations: dict[str, float] = {}
    for result in results:
        sides = {"Level00-2d": (10, 10), "PUMA0101301": (9, 24)}.get(result["dataset"])
        if sides is None or result["method"] not in ("OLS", "Seq"):
            continue
        a, b = sides
        setting = next(s for s in SETTINGS if repr(s) == result["setting"])
        v = setting.even_split_variance(4)
        exact = {"sum": v}
        if result["method"] == "OLS":
            exact = {"sum": v / ((1 + 1 / a) * (1 + 1 / b)), "cells": v * (a - 1 + 1 / (a + 1)) * (b - 1 + 1 / (b + 1))}
        for what, value in exact.items():
            summary = result["tables"]["total" if what == "sum" else "detailed"]
            key = f"{result['method']} {what} {a} x {b}"
            deviations[key] = max(deviations.get(key, 0.0), abs(summary["total"] - value) / summary["total_se"])
    for key, deviation in deviations.items():
        print(f"  {key:20} {deviation:.1f}")


def _print_anchored(results: list[dict[str, Any]]) -> None:
    """How near the method of our own comes to OLS on the sum and to NNLS on the cells, over everything that was run."""
    found = {(r["dataset"], r["setting"], r["method"]): r["tables"] for r in results}
    keys = sorted({key[:2] for key in found})
    print("\nmean squared errors over all data sets and settings: ratio at most, and in how many pairs above 1.01")
    for method in ("NNLS", "MaxFit", "Seq", "ReWeight", "Anchored"):
        line = f"  {method:9}"
        for table, figure, rival in (
            ("total", "total", "OLS"),
            ("detailed", "max", "NNLS"),
            ("detailed", "total", "NNLS"),
        ):
            ratios = [found[*k, method][table][figure] / found[*k, rival][table][figure] for k in keys]
            what = {"total": "sum", "detailed": "worst cell" if figure == "max" else "all cells"}[table]
            line += f"   {what} / {rival}: {max(ratios):6.3f}, {sum(r > 1.01 for r in ratios)} of {len(keys)}"
        print(line)


def print_timings(datasets: dict[str, NDArray], runs: int) -> None:
    """Milliseconds a solve for each method and data set, beside three solvers of the same least squares."""
    others = {"scipy nnls": _scipy_nnls, "clarabel": _clarabel, "osqp": _osqp}
    print(
        f"Laplace, epsilon = 0.5, {runs} runs: milliseconds of processor time a solve, "
        "matrices of the others made beforehand"
    )
    print(f"{'':14}" + "".join(f"{name:>11}" for name in (*METHODS, *others)))
    for name, counts in datasets.items():
        problem = benchmark_problem(counts, SHOWN)
        assert problem.truth is not None
        y = problem.truth[:, None] + draw_noise(problem, runs, SEED)
        row = []
        for fit in METHODS.values():
            fit(problem, y)
            row.append(_milliseconds(partial(fit, problem, y)) / runs)
        std = np.sqrt(problem.variances)
        for prepare in others.values():
            solve = prepare(sparse.csc_array(sparse.diags_array(1 / std) @ problem.marginal_matrix()))
            row.append(sum(_milliseconds(partial(solve, column / std)) for column in y.T) / runs)
        print(f"{name:14}" + "".join(f"{value:11.3f}" for value in row))


def _milliseconds(call: Callable[[], Any]) -> float:
    """Processor time, which other work on the machine inflates less."""
    started = time.process_time()
    call()
    return 1e3 * (time.process_time() - started)


Solve = Callable[[NDArray], NDArray]


def _scipy_nnls(A: sparse.csc_array) -> Solve:
    dense = A.toarray()
    return lambda b: scipy_nnls(dense, b)[0]


def _quadratic_programme(A: sparse.csc_array, sign: float) -> tuple[sparse.csc_matrix, sparse.csc_matrix]:
    """Residuals r as variables: minimise r'r / 2 subject to A x - r = b and sign x in its cone."""
    n, d = A.shape
    quadratic = sparse.block_diag([sparse.csc_array((d, d)), sparse.eye_array(n)])
    rows = sparse.block_array([[A, -sparse.eye_array(n)], [sign * sparse.eye_array(d), None]])
    return sparse.csc_matrix(quadratic), sparse.csc_matrix(rows)


def _clarabel(A: sparse.csc_array) -> Solve:
    import clarabel

    n, d = A.shape
    quadratic, rows = _quadratic_programme(A, -1.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(n), clarabel.NonnegativeConeT(d)]

    def solve(b: NDArray) -> NDArray:
        right = np.concatenate([b, np.zeros(d)])
        return np.array(clarabel.DefaultSolver(quadratic, np.zeros(n + d), rows, right, cones, settings).solve().x[:d])

    return solve


def _osqp(A: sparse.csc_array) -> Solve:
    """Tolerances 1e-7 and polishing, as the paper's code has them."""
    import osqp

    n, d = A.shape
    quadratic, rows = _quadratic_programme(A, 1.0)

    def solve(b: NDArray) -> NDArray:
        low, high = np.concatenate([b, np.zeros(d)]), np.concatenate([b, np.full(d, np.inf)])
        solver = osqp.OSQP()
        solver.setup(
            quadratic, np.zeros(n + d), rows, low, high,
            eps_abs=1e-7, eps_rel=1e-7, max_iter=20_000, polishing=True, verbose=False,
        )  # fmt: skip
        return np.array(solver.solve().x[:d])

    return solve


def tree(leaves: int, leaves_per_group: int = 100, variance: float = 128.0) -> Problem:
    """A root, groups and leaves, as a variable with one recode."""
    groups = np.repeat(np.arange(leaves // leaves_per_group), leaves_per_group)
    schema = Schema({"leaf": leaves}, {"leaf": {"group": groups.tolist()}})
    return Problem(schema, {"total": variance, "group": variance, "detailed": variance}, noise="laplace")


def print_sizes() -> None:
    """Seconds for one non-negative fit of large problems, nine cells in ten being zero, beside general QP solvers."""
    print(f"\n{'seconds a solve':16}{'cells':>9}{'nnls':>9}{'first':>9}{'kkt':>10}{'clarabel':>10}{'osqp':>9}")
    problems = {
        "PL94": gallery.pl94(),
        "tree 30,000": tree(30_000),
        "tree 100,000": tree(100_000),
        "tree 300,000": tree(300_000),
        "6^6": gallery.cube(6, 6),
    }
    for name, problem in problems.items():
        rng = np.random.default_rng(SEED)
        M = problem.marginal_matrix()
        cells = np.where(rng.random(M.shape[1]) < 0.1, rng.integers(1, 50, M.shape[1]), 0)
        y = M @ cells + draw_noise(problem, 1, rng)[:, 0]
        first = _milliseconds(partial(nnls, problem, y)) / 1e3
        started = time.process_time()
        fit = nnls(problem, y)
        seconds = time.process_time() - started
        line = f"{name:16}{cells.size:9,}{seconds:9.3f}{first:9.3f}{fit.kkt_residual / fit.observed.max():10.1e}"
        if name in ("tree 30,000", "tree 100,000"):
            std = np.sqrt(problem.variances)
            for prepare in (_clarabel, _osqp):
                solve = prepare(sparse.csc_array(sparse.diags_array(1 / std) @ M))
                line += f"{_milliseconds(partial(solve, y / std)) / 1e3:10.3f}"
        print(line)


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Error of the sum against error of the worst cell for each method, and what Theorem 3 rules out.

    A point is one data set; a guarantee must hold on all of them, so only the worst point of a method is comparable
    with the shaded region.
    """
    import matplotlib.pyplot as plt

    shown = [r for r in results if not r["failures"] and r["setting"] == repr(SHOWN)]
    figure, axes = plt.subplots(figsize=(7, 5.5), layout="constrained")
    for method, marker in zip(METHODS, "osv^DP", strict=True):
        tables = [r["tables"] for r in shown if r["method"] == method]
        axes.scatter(
            [np.sqrt(t["detailed"]["max"]) for t in tables],
            [np.sqrt(t["total"]["total"]) for t in tables],
            marker=marker, s=26, alpha=0.7, label=method,
        )  # fmt: skip
    points = np.geomspace(0.3, 30, 120)
    d = 216
    for form, shade in (("sharp", 0.12), ("paper", 0.25)):
        bound = [max(least_sum_error(float(C), d, SHOWN, form), 1e-3) for C in points]
        axes.fill_between(points, 1e-3, bound, color="black", alpha=shade, label=f"impossible, d = {d} ({form} bound)")
    axes.set(xscale="log", yscale="log", ylim=(0.1, 300), xlim=(0.3, 30))
    axes.set(xlabel="worst cell: root mean squared error", ylabel="sum: root mean squared error")
    axes.set_title("Laplace noise, epsilon = 0.5; one point for each data set")
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)

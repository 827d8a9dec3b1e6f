"""The benchmark of "An Uncertainty Principle is a Price of Privacy-Preserving Microdata", without failures.

    python -m bench microdata             31 data sets x 6 privacy settings x 6 methods x 1,000 runs
    python -m bench microdata --quick     3 data sets x 2 settings x 20 runs: a minute, for continuous integration

Times beside other solvers of the same least squares are those of `bench peers`. Where the shared data folder is not at
hand the synthetic data sets run alone. Data and constants are those of
github.com/uscensusbureau/CostOfMicrodataNeurIPS2021 (NeurIPS 2021, supplement).
"""

import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.measuring import parser_of, print_table, timed
from bench.problems import BLOCKS
from blue_solvers.nonnegative import NonnegativeFit, anchored_fit, max_fit, nnls, ols, reweighted_fit, sequential_fit
from blue_solvers.nonnegative.price.bounds import PureDP, ZeroConcentratedDP, least_sum_error
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float, Integers
from noise_mechanisms import draw_noise

Privacy = PureDP | ZeroConcentratedDP

LARGEST = 10_000
SIDE = 10

SETTINGS: tuple[Privacy, ...] = (
    PureDP(1.0),
    PureDP(0.5),
    PureDP(0.1),
    ZeroConcentratedDP(0.5),
    ZeroConcentratedDP(0.125),
    ZeroConcentratedDP(0.005),
)

PUMAS = (
    "0101301", "0800803", "1304600", "1703529", "1703531", "1901700", "2401004", "2602702", "2801100", "2901901",
    "3200405", "3603710", "3604010", "5101301", "5151255",
)  # fmt: skip
METHODS: dict[str, Callable[[Problem, Float], NonnegativeFit]] = {
    "OLS": ols,
    "NNLS": nnls,
    "MaxFit": max_fit,
    "Seq": sequential_fit,
    "ReWeight": reweighted_fit,
    "Anchored": anchored_fit,
}
SHOWN = PureDP(0.5)
QUICK = ("Level00-2d", "Stair-1d", "Step16-2d")
SEED = 20211206
PUMA = BLOCKS.with_name("puma")
PRINTED = Path(__file__).with_name("uncertainty_principle.csv")  # of Laplace noise, epsilon = 0.5
TABLES = {  # by what they are called where the paper's figures are
    "sum": "Table 1: squared error of the sum, ours / paper",
    "largest": "Table 2: largest squared error of a cell, ours / paper",
    "total": "Table 2: total squared error of cells, ours / paper",
}
RIVALS = {"sum / OLS": ("sum", "OLS"), "worst cell / NNLS": ("largest", "NNLS"), "all cells / NNLS": ("total", "NNLS")}
Results = list[dict[str, Any]]


def main(argv: list[str]) -> None:
    """Run the benchmark as the command line says, and print its tables."""
    parser = parser_of("microdata", __doc__, "3 data sets, 2 settings, 20 runs")
    parser.add_argument("--runs", type=int, help="runs for each data set and setting (default 1000)")
    parser.add_argument("--picture", type=Path, help="picture of the trade-off (needs matplotlib)")
    options = parser.parse_args(argv)
    if not PUMA.is_dir():
        print(f"no folder {PUMA}: the 15 real data sets are left out", file=sys.stderr)
    datasets = synthetic_datasets() | (puma_datasets(PUMA) if PUMA.is_dir() else {})
    settings = SETTINGS
    if options.quick:
        datasets, settings = {name: datasets[name] for name in QUICK}, (SHOWN, SETTINGS[-1])
    runs, results = options.runs or (20 if options.quick else 1000), []
    for setting in settings:
        found, seconds = timed(partial(run, datasets, [setting], runs))
        results += found
        size = f"{len(datasets)} data sets x {len(METHODS)} methods x {runs} runs"
        print(f"{setting!r}: {size}, {seconds:.0f} CPU s, without failure", flush=True)
    report(results)
    if options.picture:
        draw(results, options.picture)


def run(datasets: dict[str, Integers], settings: Iterable[Privacy], runs: int) -> Results:
    """Errors of every method on every data set and setting; all data sets of one shape share their noise.

    Returns
    -------
    list of dict
        One for each data set, setting and method: mean squared errors of the sum, of the worst cell and of all cells,
        the worst residuals relative to the largest count, and milliseconds a solve.

    Raises
    ------
    NotConvergedError
        If a fit fails.
    """
    results = []
    for setting in settings:
        for name, counts in datasets.items():
            problem, largest = benchmark_problem(counts, setting), float(counts.max())
            y = problem.truth[:, None] + draw_noise(problem, runs, SEED)
            for method, fit in METHODS.items():
                fit(problem, y[:, 0])  # compiled once, before it is timed
                fitted, seconds = timed(partial(fit, problem, y))
                squares = (fitted.observed - problem.truth[:, None]) ** 2
                cells = squares[problem.observed.slice("detailed")].mean(axis=1)
                results.append({
                    "dataset": name,
                    "setting": repr(setting),
                    "method": method,
                    "milliseconds": 1e3 * seconds / runs,
                    "kkt": fitted.kkt_residual / largest,
                    "margin": fitted.margin_residual / largest,
                    "iterations": fitted.iterations,
                    "sum": float(squares[problem.observed.slice("total")].mean()),
                    "largest": float(cells.max()),
                    "total": float(cells.sum()),
                })  # fmt: skip
    return results


def report(results: Results) -> None:
    """Print Tables 1 and 2 beside the paper's, and how well everything was solved."""
    worst = {figure: max(r[figure] for r in results) for figure in ("kkt", "margin", "iterations")}
    print(
        f"relative to the largest count: KKT residual {worst['kkt']:.1e} at most, held answers missed by "
        f"{worst['margin']:.1e}; Newton steps {worst['iterations']} at most"
    )
    shown = {(r["dataset"], r["method"]): r for r in results if r["setting"] == repr(SHOWN)}
    with PRINTED.open(newline="") as file:
        printed = [row for row in csv.DictReader(file) if (row["dataset"], "OLS") in shown]
    for figure, title in TABLES.items():
        print(f"\n{title}")
        print_table(["data set", *METHODS], list(_beside(shown, [row for row in printed if row["figure"] == figure])))
    print("\nmean squared errors over all data sets and settings: ratio at most, and in how many pairs above 1.01")
    print_table(["method", *RIVALS, "CPU ms a solve"], list(_beside_rivals(results)))


def _beside(shown: dict, printed: list[dict[str, str]]) -> Iterator[list[str]]:
    """Ours and the paper's figures by data set and method, then the means of their ratios."""
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    for row in printed:
        cells = []
        for method in METHODS:
            ours, theirs = shown[row["dataset"], method][row["figure"]], float(row.get(method, "nan"))
            ratios[method].append(ours / theirs)
            cells.append(f"{ours:.1f} / {theirs:.1f}" if method in row else f"{ours:.1f} / -")
        yield [row["dataset"], *cells]
    if len(printed) > 1:
        known = [r for r in ratios.values() if np.isfinite(r).all()]
        yield ["ratio (sd)", *(f"{np.mean(r):.3f} ({np.std(r):.3f})" for r in known)]


def _beside_rivals(results: Results) -> Iterator[list[object]]:
    """How near each method comes to OLS on the sum and to NNLS on the cells, and its time, over all that was run."""
    found = {(r["dataset"], r["setting"], r["method"]): r for r in results}
    keys = sorted({key[:2] for key in found})
    for method in list(METHODS)[1:]:
        each = [[found[*k, method][of] / found[*k, rival][of] for k in keys] for of, rival in RIVALS.values()]
        compared = (f"{max(own):.3f}, {sum(r > 1.01 for r in own)} of {len(keys)}" for own in each)
        yield [method, *compared, float(np.mean([found[*k, method]["milliseconds"] for k in keys]))]


def draw(results: Results, path: Path) -> None:
    """Error of the sum against error of the worst cell for each method, and what Theorem 3 rules out.

    A point is one data set; a guarantee must hold on all of them, so only the worst point of a method is comparable
    with the shaded region.
    """
    import matplotlib.pyplot as plt

    shown = [r for r in results if r["setting"] == repr(SHOWN)]
    figure, axes = plt.subplots(figsize=(7, 5.5), layout="constrained")
    for method, marker in zip(METHODS, "osv^DP", strict=True):
        own = [r for r in shown if r["method"] == method]
        x, y = ([np.sqrt(r[of]) for r in own] for of in ("largest", "sum"))
        axes.scatter(x, y, marker=marker, s=26, alpha=0.7, label=method)
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


def synthetic_datasets() -> dict[str, Integers]:
    """The 16 synthetic data sets: eight patterns of 100 cells, each as a vector and as a 10 x 10 table.

    Returns
    -------
    dict of ndarray of int
        ``"Level00-1d"``, shape (100,), ``"Level00-2d"``, shape (10, 10), and so on. The first cell is always 10,000;
        the tables are filled column by column.
    """
    number = np.arange(1, SIDE * SIDE + 1)
    patterns = {f"Level{level:02d}": np.full(number.size, level) for level in (0, 1, 16, 32)}
    patterns["Stair"] = number
    patterns |= {f"Step{step}": np.where(number <= 50, 0, step) for step in (16, 50)}
    patterns["SplitStairs"] = np.where(number < 50, number, 0)
    found: dict[str, Integers] = {}
    for name, pattern in patterns.items():
        counts = pattern.astype(np.int64)
        counts[0] = LARGEST
        found[f"{name}-1d"] = counts
        found[f"{name}-2d"] = counts.reshape(SIDE, SIDE, order="F").copy()
    return found


def puma_datasets(folder: str | Path) -> dict[str, Integers]:
    """The 15 real data sets: race by Hispanic origin in Public Use Microdata Areas of the 2016 ACS.

    Parameters
    ----------
    folder : path
        With files ``ST_<state>_PUMA_<area>.csv``, each with one header row and one header column.

    Returns
    -------
    dict of ndarray of int, (9, 24)
        ``"PUMA0101301"`` and so on, in the paper's order D02 to D16.

    Raises
    ------
    FileNotFoundError
        If a file is missing; names it.
    ValueError
        If a file does not hold 9 rows of 24 counts.
    """
    return {f"PUMA{code}": _read_counts(Path(folder) / f"ST_{code[:2]}_PUMA_{code[2:]}.csv") for code in PUMAS}


def _read_counts(path: Path) -> Integers:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}: the folder must hold the 15 files of the paper's benchmark")
    with path.open(newline="") as file:
        rows = [row[1:] for row in list(csv.reader(file))[1:]]
    try:
        counts = np.array(rows, dtype=np.int64)
    except ValueError as error:
        raise ValueError(f"{path} does not hold a table of whole numbers: {error}") from None
    if counts.shape != (9, 24) or counts.min() < 0:
        raise ValueError(f"{path} must hold 9 rows of 24 counts of 0 or more: got shape {counts.shape}")
    return counts


def benchmark_problem(counts: Integers, privacy: Privacy) -> Problem:
    """The paper's measurements of a data set: total, one-way margins and cells, with the budget split evenly.

    Parameters
    ----------
    counts : ndarray of int
        Of one or two dimensions.
    privacy : PureDP or ZeroConcentratedDP
        Laplace noise of scale k / epsilon on each of the k tables, or Gaussian noise of variance k / (2 rho).

    Returns
    -------
    Problem
        Observed tables ``"total"``, (``"rows"``, ``"columns"``,) ``"detailed"``: also the priority of the paper's
        sequential fitting. With its truth.

    Raises
    ------
    ValueError
        If `counts` has neither one nor two dimensions.
    """
    if counts.ndim not in (1, 2):
        raise ValueError(f"the benchmark has vectors and two-way tables: got {counts.ndim} dimensions")
    names = ("cells",) if counts.ndim == 1 else ("rows", "columns")
    margins = {"rows": counts.sum(axis=1), "columns": counts.sum(axis=0)} if counts.ndim == 2 else {}
    truth = {"total": counts.sum(), **margins, "detailed": counts}
    variance = privacy.even_split_variance(len(truth))
    schema = Schema(dict(zip(names, counts.shape, strict=True)))
    return Problem(schema, dict.fromkeys(truth, variance), noise=privacy.noise, truth=truth)

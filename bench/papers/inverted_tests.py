"""Intervals by inverted tests: coverage, width and bias beside the BLUE's, on data sets whose cells are near zero.

    python -m bench inverted_tests             100 runs of 3 data sets, 3 cells each: an hour on a busy machine
    python -m bench inverted_tests --quick     4 runs

Laplace noise, epsilon = 0.5, nominal level 0.95. The total, the largest cell and an empty cell. "BLUE" is its interval
intersected with known bounds (`refine_intervals`).
"""

from collections.abc import Iterator

import numpy as np

from bench.measuring import parser_of, print_table
from bench.papers.microdata import SHOWN, benchmark_problem, synthetic_datasets
from blue_solvers import blue
from blue_solvers.nonnegative import inverted_intervals, refine_intervals
from noise_mechanisms import draw_noise

DATASETS = ("Level00-2d", "Step16-2d", "Stair-2d")
DRAWS = 60
MULTIPLE = 1.959964


def main(argv: list[str]) -> None:
    """Print one table."""
    parser = parser_of("inverted_tests", __doc__, "4 runs")
    parser.add_argument("--runs", type=int, help="runs of each data set (default 100)")
    options = parser.parse_args(argv)
    runs = options.runs or (4 if options.quick else 100)
    header = ["data", "cell", "truth", "cover", "BLUE", "width", "BLUE", "bias", "root mean square", "BLUE"]
    print(f"{runs} runs, {DRAWS} simulations a critical value; standard error of coverage {0.22 / runs**0.5:.2f}")
    print_table(header, (row for name in DATASETS for row in measure(name, runs)))


def measure(name: str, runs: int) -> Iterator[list[str]]:
    """One row for each of three cells."""
    counts = synthetic_datasets()[name]
    problem = benchmark_problem(counts, SHOWN)
    rng = np.random.default_rng(8)
    detailed = problem.desired.slice("detailed").start
    flat = counts.ravel()
    cells = {
        "total": problem.desired.slice("total").start,
        "largest cell": detailed + int(flat.argmax()),
        "smallest cell": detailed + int(flat.size - 1 - flat[::-1].argmin()),
    }
    places = list(cells.values())
    true = problem.tabulate(problem.truth[:, None])[places, 0]
    P = blue(problem)
    spread = MULTIPLE * np.sqrt(P.variances())
    found, plain = np.empty((3, runs, 3)), np.empty((3, runs, 3))  # estimate, lower, upper
    for run in range(runs):
        y = problem.truth + draw_noise(problem, 1, rng)[:, 0]
        tested = inverted_intervals(problem, y, places, draws=DRAWS, rng=rng)
        found[:, run] = tested.estimate, tested.lower, tested.upper
        x = P @ y + P.offset
        bounds = refine_intervals(problem, y, x - spread, x + spread)
        plain[:, run] = x[places], bounds[0][places], bounds[1][places]
    for i, cell in enumerate(cells):
        both = (found[:, :, i], plain[:, :, i])
        covers = [np.mean((low <= true[i] + 1e-6) & (true[i] <= high + 1e-6)) for _, low, high in both]
        widths = [(high - low).mean() for _, low, high in both]
        errors = [np.sqrt(np.square(x - true[i]).mean()) for x, _, _ in both]
        bias = (found[0, :, i] - true[i]).mean()
        figures = [*(f"{c:.2f}" for c in covers), *(f"{w:.1f}" for w in widths), f"{bias:+.1f}"]
        yield [name, cell, f"{true[i]:,.0f}", *figures, *(f"{e:.1f}" for e in errors)]

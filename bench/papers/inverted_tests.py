"""Intervals by inverted tests: coverage, width and bias beside the BLUE's, on data sets whose cells are near zero.

    python -m bench inverted_tests             100 runs of 3 data sets, 3 cells each: an hour on a busy machine
    python -m bench inverted_tests --quick     4 runs

Laplace noise, epsilon = 0.5, nominal level 0.95. The total, the largest cell and an empty cell. "BLUE" is its interval
intersected with known bounds (`refine_intervals`).
"""

from collections.abc import Iterator

import numpy as np

from bench.measuring import is_quick, print_table
from bench.papers.microdata import SHOWN, benchmark_problem, synthetic_datasets
from blue_solvers import blue
from blue_solvers.nonnegative import inverted_intervals, refine_intervals
from constraint_builders.arrays import Float
from noise_mechanisms import draw_noise

DATASETS = ("Level00-2d", "Step16-2d", "Stair-2d")
DRAWS = 60
MULTIPLE = 1.959964


def main(argv: list[str]) -> None:
    """Print one table."""
    runs = 4 if is_quick(argv, "inverted_tests", __doc__, "4 runs") else 100
    header = ["data", "cell", "truth", "cover", "BLUE", "width", "BLUE", "bias", "root mean square", "BLUE"]
    print(f"{runs} runs, {DRAWS} simulations a critical value; standard error of coverage {0.22 / runs**0.5:.2f}")
    print_table(header, (row for name in DATASETS for row in measure(name, runs)))


def measure(name: str, runs: int) -> Iterator[list[object]]:
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
    truth = problem.tabulate(problem.truth[:, None])[places, 0]
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
    covers, widths, errors = zip(*(_judged(*own, truth) for own in (found, plain)), strict=True)
    bias = (found[0] - truth).mean(axis=0)
    for cell, *figures in zip(cells, truth, *covers, *widths, bias, *errors, strict=True):
        yield [name, cell, *figures]


def _judged(x: Float, low: Float, high: Float, truth: Float) -> tuple[Float, Float, Float]:
    """Coverage, mean width and root mean squared error, (cells,) each, over runs, (runs, cells), of what is so."""
    held = (low <= truth + 1e-6) & (truth <= high + 1e-6)
    return held.mean(axis=0), (high - low).mean(axis=0), np.sqrt(np.square(x - truth).mean(axis=0))

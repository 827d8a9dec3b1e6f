"""Certificates beside true errors and beside an apply: what is proved, how closely, at what cost.

    python -m bench certificates             gallery, M5's shape, Rhode Island at 2,016 cells, 20,000 invented problems
    python -m bench certificates --quick     small ones, an item in 100, Rhode Island at 16 cells, 90 invented problems

Invented problems are those of the tests, of all kinds; true errors are against 600 bits (`bench.invented_answers` says
of what, and what is promised). "broken" counts answers that are neither refused nor marked and break a promise, or
whose bound is below the error; each is printed. Times are processor time; "x apply" counts applies of the solver that
`blue` chooses. With `--records FILE` the answers are kept, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.hierarchies import m5
from bench.invented_answers import HEADER, broken, collect, table, tightness
from bench.invented_state import block_geoids
from bench.measuring import print_table
from bench.spine import problem_of_a_state
from blue_solvers import blue
from blue_solvers.verification import certify
from constraint_builders import Problem, gallery
from noise_mechanisms import add_noise

Figures = list[str]


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench certificates", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small problems, and few invented ones")
    parser.add_argument("--problems", type=int, help="invented problems (20,000)")
    parser.add_argument("--records", type=Path, help="a file for their answers, one a line")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    options = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        _invented(options, options.records or Path(folder) / "answers.jsonl")
    print()
    header = ["problem", "cells", "bound", "disagreement", "plan+apply s", "apply s", "certify s", "x apply"]
    print_table(header, [_cost(name, problem()) for name, problem in _problems(options.quick).items()])


def _invented(options: argparse.Namespace, records: Path) -> None:
    found = collect(options.problems or (90 if options.quick else 20_000), records, options.workers)
    problems = len({(answer.kind, answer.seed) for answer in found})
    print(f"{problems:,} invented problems, {len(found):,} answers; {tightness(found)}")
    print_table(HEADER, table(found))
    for line in broken(found):
        print(line)


def _problems(quick: bool) -> dict[str, Callable[[], Problem]]:
    found: dict[str, Callable[[], Problem]] = {
        "toy": gallery.toy,
        "PL94": gallery.pl94,
        "5^5": lambda: gallery.cube(5, 5),
        "6^6": lambda: gallery.cube(6, 6),
        "Adult, two-way": lambda: gallery.adult(2),
    }
    if not quick:
        found |= {
            "2^12": lambda: gallery.cube(12, 2),
            "Adult, three-way": gallery.adult,
            "50 x 10, three-way": gallery.wide,
        }
    part = 100 if quick else 1
    found["M5's shape, one item in 100" if quick else "M5's shape"] = lambda: _m5(part)
    cells = "16" if quick else "2016"
    found[f"{block_geoids()[0]}, {cells} cells"] = lambda: problem_of_a_state(cells, 1)
    return found


def _m5(part: int) -> Problem:
    """The sums of sales over twelve crossed levels, each with a variance of its own."""
    S = m5(part)
    return Problem.from_summing_matrix(S, np.random.default_rng(0).uniform(1, 3, S.shape[0]) * np.diff(S.indptr))


def _cost(name: str, problem: Problem) -> Figures:
    problem = problem.observing()
    size = problem.observed.size
    truth = problem.truth if problem.truth is not None else np.zeros(size)
    y = add_noise(problem, truth, rng=0)
    seconds, P, x = _seconds(lambda: _planned(problem, y))
    apply, _, x = _seconds(lambda: (P, P @ y + P.offset))
    proving, certificate, _ = _seconds(lambda: (certify(problem, y, x), None))
    bound = "none: " + certificate.reason if certificate.bound is None else f"{certificate.bound:.1e}"
    apart = "" if certificate.violation is None else f"{certificate.violation:.1e}"
    figures = [f"{seconds:.3f}", f"{apply:.4f}", f"{proving:.4f}", f"{proving / apply:.1f}"]
    return [name, f"{size:,}", bound, apart, *figures]


def _planned(problem: Problem, y: np.ndarray) -> tuple:
    P = blue(problem)
    return P, P @ y + P.offset


def _seconds(run: Callable[[], tuple]) -> tuple:
    start = time.process_time()
    first, second = run()
    return time.process_time() - start, first, second

"""Certificates beside true errors and beside an apply: what is proved, how closely, at what cost.

    python -m bench certificates             gallery, M5's shape, Rhode Island at 2,016 cells, 20,000 invented problems
    python -m bench certificates --quick     small ones, an item in 100, Rhode Island at 16 cells, 90 invented problems

Invented problems are those of the tests, of all kinds; true errors are against 600 bits (`bench.synthetic_answers` says
of what, and what is promised). "broken" counts answers that are neither refused nor marked and break a promise, or
whose bound is below the error; each is printed. Times are CPU time; "x apply" counts applies of the solver that
`blue` chooses. With `--records FILE` the answers are kept, and a run that was stopped resumes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.measuring import parser_of, print_figures, timed
from bench.problems import PROBLEMS
from bench.synthetic_answers import broken, collect, table, tightness
from blue_solvers import blue
from blue_solvers.verification import certify
from constraint_builders import Problem
from noise_mechanisms import add_noise

SMALL = ("toy", "pl94", "5^5", "6^6", "adult two-way")
QUICK, FULL = (*SMALL, "M5, an item in 100", "16 cells"), (*SMALL, "2^12", "adult", "50 x 10", "M5", "2,016 cells")


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = parser_of("certificates", __doc__, "small problems, and few invented ones")
    parser.add_argument("--problems", type=int, help="invented problems (20,000)")
    parser.add_argument("--records", type=Path, help="a file for their answers, one a line")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    options = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        _print_invented(options, options.records or Path(folder) / "answers.jsonl")
    print()
    names = QUICK if options.quick else FULL
    print_figures((_cost(name, PROBLEMS[name]().observing()) for name in names), names)


def _print_invented(options: argparse.Namespace, records: Path) -> None:
    found = collect(options.problems or (90 if options.quick else 20_000), records, options.workers)
    problems = len({(answer.kind, answer.seed) for answer in found})
    print(f"{problems:,} invented problems, {len(found):,} answers; {tightness(found)}")
    print_figures(rows := table(found), (row["kind"] for row in rows))
    for line in broken(found):
        print(line)


def _cost(name: str, problem: Problem) -> dict[str, object]:
    size = problem.observed.size
    y = add_noise(problem, np.zeros(size) if problem.truth is None else problem.truth, rng=0)
    (P, _), first = timed(lambda: ((P := blue(problem)), P @ y + P.offset))
    x, apply = timed(lambda: P @ y + P.offset)
    certificate, proving = timed(lambda: certify(problem, y, x))
    return {
        "problem": name,
        "cells": size,
        "bound": "none: " + certificate.reason if certificate.bound is None else certificate.bound,
        "disagreement": certificate.violation,
        "plan+apply s": first,
        "apply s": apply,
        "certify s": proving,
        "x apply": proving / apply,
    }

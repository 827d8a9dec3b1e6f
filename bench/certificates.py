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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench.measuring import parser_of, print_table, row_of, timed
from bench.problems import block_geoids, m5, state
from bench.synthetic_answers import HEADER, broken, collect, table, tightness
from blue_solvers import blue
from blue_solvers.verification import certify
from constraint_builders import Problem, gallery
from noise_mechanisms import add_noise

COLUMNS = {
    "problem": "", "cells": ",", "bound": "", "disagreement": ".1e", "plan+apply s": ".3f", "apply s": ".4f",
    "certify s": ".4f", "x apply": ".1f",
}  # fmt: skip


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
    problems = _problems(options.quick)
    print_table(COLUMNS, (row_of(COLUMNS, _cost(name, make().observing())) for name, make in problems.items()))


def _print_invented(options: argparse.Namespace, records: Path) -> None:
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
        "5^5": partial(gallery.cube, 5, 5),
        "6^6": partial(gallery.cube, 6, 6),
        "Adult, two-way": partial(gallery.adult, 2),
    }
    if not quick:
        found |= {"2^12": partial(gallery.cube, 12, 2), "Adult, three-way": gallery.adult,
                  "50 x 10, three-way": gallery.wide}  # fmt: skip
    found["M5's shape, one item in 100" if quick else "M5's shape"] = partial(_m5, 100 if quick else 1)
    cells = "16" if quick else "2016"
    return found | {f"{block_geoids()[0]}, {cells} cells": partial(state, cells)}


def _m5(part: int) -> Problem:
    """The sums of sales over twelve crossed levels, each with a variance of its own."""
    S = m5(part)
    return Problem.from_summing_matrix(S, np.random.default_rng(0).uniform(1, 3, S.shape[0]) * np.diff(S.indptr))


def _cost(name: str, problem: Problem) -> dict[str, object]:
    size = problem.observed.size
    y = add_noise(problem, np.zeros(size) if problem.truth is None else problem.truth, rng=0)
    (P, _), first = timed(lambda: ((P := blue(problem)), P @ y + P.offset))
    x, apply = timed(lambda: P @ y + P.offset)
    certificate, proving = timed(lambda: certify(problem, y, x))
    return {
        "problem": name,
        "cells": size,
        "bound": "none: " + certificate.reason if certificate.bound is None else f"{certificate.bound:.1e}",
        "disagreement": certificate.violation,
        "plan+apply s": first,
        "apply s": apply,
        "certify s": proving,
        "x apply": proving / apply,
    }

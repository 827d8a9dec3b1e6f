"""What is proved of an answer, how closely, and at what cost, beside an apply.

    python -m bench certificates             gallery, M5's shape, Rhode Island at 2,016 cells
    python -m bench certificates --quick     small ones, an item in 100, Rhode Island at 16 cells

Times are processor time; "x apply" counts applies of the solver that `blue` chooses. Bounds beside true errors of
invented problems, by every solver, are judged by `scripts/soak` and by the tests against exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from bench.measuring import is_quick, print_table, row_of, timed
from bench.problems import block_geoids, m5, state
from blue_solvers import blue
from blue_solvers.verification import certify
from constraint_builders import Problem, gallery
from noise_mechanisms import add_noise

COLUMNS = {
    "problem": "", "cells": ",", "bound": "", "disagreement": ".1e", "plan+apply s": ".3f", "apply s": ".4f",
    "certify s": ".4f", "x apply": ".1f",
}  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table."""
    problems = _problems(is_quick(argv, "certificates", __doc__, "small problems"))
    print_table(
        COLUMNS, (row_of(COLUMNS, _cost(name, make().observing())) for name, make in problems.items()), problems
    )


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

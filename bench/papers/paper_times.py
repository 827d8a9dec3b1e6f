"""Table 2 of the SEA BLUE paper: seconds of an estimate on its seven problems, printed beside measured now.

The paper's are means of 40 runs (of one for the DHC) on a laptop, in numpy. Ours are the least of several applies of
`sea_blue` to one vector of noise, on one thread, after preparing once, whose time is beside; and of preparing and
applying `dense` once, the projection with a matrix, where that has at most 10,000 counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import isfinite

import numpy as np

from bench.measuring import best_seconds, timed
from bench.papers.printed_figures import TABLE_2
from blue_solvers import Dense, SeaBlue, blue
from constraint_builders import Problem, gallery

SEED = 2
MOST_DENSE = 10_000  # counts
PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{f"{k} x {k}": partial(gallery.cube, k, k) for k in (3, 4, 5, 6)},
    "PL94 Block": gallery.pl94_block,
    "PL94 Multi": partial(gallery.pl94_counties, 55, recoded=False),
    "DHC State": gallery.dhc,
}
QUICK = ("3 x 3", "4 x 4", "PL94 Block")
HEADER = ["table", "row", "counts", "prepare s", "apply s", "paper's SEA BLUE s", "dense s", "paper's projection s"]
wall = partial(timed, clock=time.perf_counter)


def rows(quick: bool) -> Iterator[list[str]]:
    """The printed rows."""
    return map(_row, QUICK if quick else PROBLEMS)


def _row(name: str) -> list[str]:
    problem, (counts, paper, projection) = PROBLEMS[name](), TABLE_2[name]
    y = np.random.default_rng(SEED).standard_normal(problem.observed.size) * np.sqrt(problem.variances)
    P, preparing = wall(lambda: blue(problem, SeaBlue()))
    ours = [f"{preparing:.4f}", f"{best_seconds(lambda: P @ y):.5f}"]
    dense = f"{wall(lambda: blue(problem, Dense()) @ y)[1]:.2f}" if counts <= MOST_DENSE else ""
    theirs = f"{projection:g}" if isfinite(projection) else "did not fit"
    return ["2", name, f"{counts:,}", *ours, f"{paper:g}", dense, theirs]

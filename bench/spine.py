"""The two passes over the blocks of a state: seconds and memory beside the time to copy input and output once.

    python -m bench spine             16 and 2,016 cells a geounit, replicated states, projection to the country
    python -m bench spine --quick     16 cells only

The state is Rhode Island of 2010 where the shared data folder is at hand, otherwise an invented one of its shape. Noise
has the variances of the 2020 redistricting release, as far as a state alone has them. At 2,016 cells the detailed
tables of all levels are desired; the counts are noise, since only speed is measured here.

A copy costs what its memory costs, so both it and the apply are timed twice, interleaved: into new memory, which the
system has to clear and map page by page, and into memory that the process has used before and kept. The target, 5 times
the copy, refers to new memory: every apply and every copy returns a new array, and the copy of 1.2 s that the target
was set beside is that of new memory. The ratio in memory at hand is the stricter one: nothing there hides the passes.
"""

from __future__ import annotations

import numpy as np

from bench.measuring import is_quick, keep_freed_memory, peak_bytes, print_apart, shortest, timed
from bench.problems import block_geoids, state
from blue_solvers import TwoPass, blue

NATION_BLOCKS = 8_100_000
CASES = {"16 cells": ("16", 1), "2,016 cells": ("2016", 1), "16 cells x 2": ("16", 2), "16 cells x 4": ("16", 4),
         "16 cells x 8": ("16", 8)}  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    quick = is_quick(argv, "spine", __doc__, "16 cells only")
    print(block_geoids()[0])
    print_apart("spine", {"16 cells": CASES["16 cells"]} if quick else CASES)


def measure(cells: str, copies: int) -> dict[str, float]:
    """Figures of one case, in this process."""
    problem, describe = timed(lambda: state(cells, copies))
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    P, plan = timed(lambda: blue(problem, TwoPass()))
    before = peak_bytes() - y.nbytes
    x = P @ y
    memory = peak_bytes() - before
    apply, copy, variances = shortest(lambda: P @ y, lambda: (y.copy(), x.copy()), P.variances)
    keep_freed_memory()
    apply_at_hand, copy_at_hand = shortest(lambda: P @ y, lambda: (y.copy(), x.copy()))
    geounits, numbers = problem.spine.size, y.size + x.size
    return {
        "geounits": geounits,
        "cells in": y.size,
        "out": x.size,
        "describe s": describe,
        "plan s": plan,
        "apply s": apply,
        "x copy": apply / copy,
        "at hand s": apply_at_hand,
        "x memory copy": apply_at_hand / copy_at_hand,
        "variances s": variances,
        "peak, x in+out": memory / 8 / numbers,
        "country: hours": apply / geounits * NATION_BLOCKS / 3600,
        "GB on disk": numbers * 8 / geounits * NATION_BLOCKS / 1e9,
    }

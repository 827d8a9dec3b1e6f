"""Summing matrices: the twelve crossed levels of the M5 competition, and trees as large as a country's census blocks.

    python -m bench hierarchies            M5 with 28 columns, and a tree of 8.1 million nodes
    python -m bench hierarchies --quick    M5, and a tree of 80 thousand

M5: 3,049 items in 7 departments of 3 categories, sold in 10 stores of 3 states; 30,490 series at the bottom, 42,840 in
all. The textbook's way, (S' W S)^-1 S' W, has a dense matrix there, 7.4 GB and an hour to factorise, since the total
sums all. Measured as `python -m bench solvers` measures; "error" is what is proved, in standard errors.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from bench.measuring import is_quick, print_table, row_of
from bench.problems import SEED, m5, tree
from bench.solvers import measured
from blue_solvers import SOLVERS
from constraint_builders import Problem

DAYS, TIMEOUT = 28, 600.0
COLUMNS = {
    "case": "", "cells in": ",", "solver": "", "prepare s": ".3f", "apply s": ".4f", f"{DAYS} columns s": ".4f",
    "variances s": ".3f", "peak MiB": ".0f", "error": ".1e",
}  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    quick = is_quick(argv, "hierarchies", __doc__, "a small tree")
    of_m5 = {name: SOLVERS[name]() for name in ("auto", "cholesky", "cg")}
    cases = {"M5": (m5(), of_m5), "tree": (tree(78_000 if quick else 7_860_000), {"auto": SOLVERS["auto"]()})}
    found = (measured(name, forecasts(S), own, None, DAYS, TIMEOUT) for name, (S, own) in cases.items())
    print_table(COLUMNS, (row_of(COLUMNS, figures) for some in found for figures in some))


def forecasts(S: sparse.csr_array) -> Problem:
    """Each node forecast with a variance of its own, around the root of how many leaves it sums."""
    variances = np.random.default_rng(SEED).uniform(1, 3, S.shape[0]) * np.sqrt(np.diff(S.indptr))
    return Problem.from_summing_matrix(S, variances)

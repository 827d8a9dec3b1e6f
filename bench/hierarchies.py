"""Summing matrices: the twelve crossed levels of the M5 competition, and trees as large as a country's census blocks.

    python -m bench hierarchies            M5 with 28 columns, and a tree of 8.1 million nodes
    python -m bench hierarchies --quick    M5, and a tree of 80 thousand

M5: 3,049 items in 7 departments of 3 categories, sold in 10 stores of 3 states; 30,490 series at the bottom, 42,840 in
all. The textbook's way, (S' W S)^-1 S' W, has a dense matrix there, 7.4 GB and an hour to factorise, since the total
sums all. Measured as `python -m bench solvers` measures; "error" is what is proved, in standard errors.
"""

from __future__ import annotations

from bench.measuring import is_quick, print_figures
from bench.problems import PROBLEMS
from bench.solvers import measured
from blue_solvers import SOLVERS

DAYS, TIMEOUT = 28, 600.0


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    quick = is_quick(argv, "hierarchies", __doc__, "a small tree")
    of_m5 = {name: SOLVERS[name]() for name in ("auto", "cholesky", "cg")}
    cases = {"M5": of_m5, "tree of 80,000" if quick else "tree of 8,100,000": {"auto": SOLVERS["auto"]()}}
    found = (measured(name, PROBLEMS[name](), own, None, DAYS, TIMEOUT) for name, own in cases.items())
    print_figures((figures for some in found for figures in some), cases)

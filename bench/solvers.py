"""Every solver on every size: seconds to prepare, to apply, to apply 64 columns, peak memory, proved error.

    python -m bench solvers                        all cases, some minutes
    python -m bench solvers --quick                small ones
    python -m bench solvers --case dhc --case adult
    python -m bench solvers --solver auto --case 7^7 --case "recoded 3"
    python -m bench solvers --case M5 --columns 28 --solver auto --solver cholesky --solver cg
    python -m bench solvers --resume FILE          goes on where a run with the same file was
    python -m bench solvers --ratio 3 --law log-uniform --solver "cg plain" --solver cholesky --columns 1

By `blue_solvers.benchmark`, which anybody has: each solver runs in a process of its own, so that its peak memory is its
own, in seconds and bytes. "x copy" is beside the time to copy input and output once on the same machine; ratios to
that are what compares between machines. Cases are those of `bench.problems`. M5 is 3,049 items in 7 departments of 3
categories, sold in 10 stores of 3 states, 42,840 series in all: the textbook's way, (S' W S)^-1 S' W, has a dense
matrix there, 7.4 GB and an hour to factorise, since the total sums all. With a ratio every cell has a variance of its
own between 1 and that, uniform or with a uniform logarithm; plain and Jacobi iterations use all rows, multigrid the
independent ones, and those around two passes nearly equal variances.
"""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from bench.measuring import parser_of, print_figures
from bench.problems import PROBLEMS, cellwise
from blue_solvers import SOLVERS, ConjugateGradient, Solver, benchmark

CASES = ("3^3", "4^4", "5^5", "6^6", "pl94", "pl94 x 55", "dhc", "adult", "50 x 10", "2^12")
QUICK = ("3^3", "4^4", "pl94")
PRECONDITIONERS = {"cg two_pass": "two_pass", "cg multigrid": "multigrid", "cg plain": None}
CHOICES: dict[str, Solver] = {
    **{name: kind() for name, kind in SOLVERS.items()},
    **{name: ConjugateGradient(preconditioner=own) for name, own in PRECONDITIONERS.items()},
}
BY_DEFAULT = [name for name in SOLVERS if name != "auto"]
FIGURES = (
    "problem", "cells_in", "cells_out", "solver", "by", "prepare", "apply", "many_columns", "variances", "memory",
    "iterations", "error", "status",
)  # fmt: skip
SEED, COLUMNS_AT_ONCE, TIMEOUT = 2024, 64, 300.0


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = parser_of("solvers", __doc__, "small cases only")
    parser.add_argument("--case", action="append", choices=PROBLEMS, help="one case, may be repeated")
    parser.add_argument("--solver", action="append", choices=CHOICES, help="one solver, may be repeated")
    parser.add_argument("--columns", type=int, default=COLUMNS_AT_ONCE, help="at once, beside one")
    parser.add_argument("--resume", metavar="FILE", help="keep figures in a file, and go on where it ends")
    parser.add_argument("--ratio", type=float, help="of the largest variance of a cell to the least (those of tables)")
    parser.add_argument("--law", choices=("uniform", "log-uniform"), default="uniform", help="of variances in a ratio")
    options = parser.parse_args(argv)
    cases = options.case or (QUICK if options.quick else CASES)
    print_figures((figures for case in cases for figures in measured(case, options)), cases)


def measured(case: str, options: Namespace) -> Iterator[dict[str, Any]]:
    """Figures of `benchmark`, in seconds and bytes, or why there are none, as soon as each is there."""
    problem = PROBLEMS[case]()
    if options.ratio:
        problem = cellwise(problem, options.ratio, options.law)
    asked = {"columns": options.columns, "resume": options.resume, "timeout": TIMEOUT, "seed": SEED}
    for name in options.solver or BY_DEFAULT:
        frame = benchmark({case: problem}, {name: CHOICES[name]}, **asked)
        own = frame.row(0, named=True)
        copies = own["apply"] and own["apply"] / own["copy"]
        sizes = own["memory"] and own["memory"] / 8 / (own["cells_in"] + own["cells_out"])
        yield {**{name: own[name] for name in FIGURES}, "x copy": copies, "memory, x in+out": sizes}

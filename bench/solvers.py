"""Every solver on every size: seconds to prepare, to apply, to apply 64 columns, peak memory, proved error.

    python -m bench solvers                        all cases, some minutes
    python -m bench solvers --quick                small ones
    python -m bench solvers --case dhc --case adult
    python -m bench solvers --solver auto --case 7^7 --case "recoded 3"
    python -m bench solvers --case M5 --columns 28 --solver auto --solver cholesky --solver cg
    python -m bench solvers --resume FILE          goes on where a run with the same file was

By `blue_solvers.benchmark`, which anybody has: each solver runs in a process of its own, so that its peak memory is its
own, in seconds and bytes. "x copy" is beside the time to copy input and output once on the same machine; ratios to
that are what compares between machines. Cases are those of `bench.problems`. M5 is 3,049 items in 7 departments of 3
categories, sold in 10 stores of 3 states, 42,840 series in all: the textbook's way, (S' W S)^-1 S' W, has a dense
matrix there, 7.4 GB and an hour to factorise, since the total sums all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from bench.measuring import parser_of, print_figures
from bench.problems import PROBLEMS
from blue_solvers import SOLVERS, benchmark
from blue_solvers.contract import Solver
from constraint_builders import Problem

CASES = ("3^3", "4^4", "5^5", "6^6", "pl94", "pl94 x 55", "dhc", "adult", "50 x 10", "2^12")
QUICK = ("3^3", "4^4", "pl94")
FIGURES = (
    "problem", "cells_in", "cells_out", "solver", "by", "prepare", "apply", "many_columns", "variances", "memory",
    "iterations", "error", "status",
)  # fmt: skip
SEED, COLUMNS_AT_ONCE, TIMEOUT = 2024, 64, 300.0


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = parser_of("solvers", __doc__, "small cases only")
    parser.add_argument("--case", action="append", choices=PROBLEMS, help="one case, may be repeated")
    parser.add_argument("--solver", action="append", choices=SOLVERS, help="one solver, may be repeated")
    parser.add_argument("--columns", type=int, default=COLUMNS_AT_ONCE, help="at once, beside one")
    parser.add_argument("--resume", metavar="FILE", help="keep figures in a file, and go on where it ends")
    options = parser.parse_args(argv)
    solvers = {name: SOLVERS[name]() for name in options.solver or SOLVERS if name != "auto" or options.solver}
    cases = options.case or (QUICK if options.quick else CASES)
    found = (measured(name, PROBLEMS[name](), solvers, options.resume, options.columns) for name in cases)
    print_figures((figures for some in found for figures in some), cases)


def measured(
    case: str,
    problem: Problem,
    solvers: Mapping[str, Solver],
    resume: str | None = None,
    columns: int = COLUMNS_AT_ONCE,
    timeout: float = TIMEOUT,
) -> Iterator[dict[str, Any]]:
    """Figures of `benchmark`, in seconds and bytes, or why there are none, as soon as each is there."""
    for label, solver in solvers.items():
        frame = benchmark({case: problem}, {label: solver}, columns=columns, resume=resume, timeout=timeout, seed=SEED)
        own = frame.row(0, named=True)
        copies = own["apply"] and own["apply"] / own["copy"]
        sizes = own["memory"] and own["memory"] / 8 / (own["cells_in"] + own["cells_out"])
        yield {**{name: own[name] for name in FIGURES}, "x copy": copies, "memory, x in+out": sizes}

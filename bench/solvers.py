"""Every solver on every size: seconds to prepare, to apply, to apply 64 columns, peak memory, proved error.

    python -m bench solvers                        all cases, some minutes
    python -m bench solvers --quick                small ones
    python -m bench solvers --case dhc --case adult
    python -m bench solvers --resume FILE          goes on where a run with the same file was

By `blue_solvers.benchmark`, which anybody has: each solver runs in a process of its own, so that its peak memory is its
own. Beside each case stands the time to copy its input and output once on the same machine in the same run; ratios to
that are what compares between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from bench.measuring import parser_of, print_table, row_of
from blue_solvers import SOLVERS, benchmark
from blue_solvers.contract import Solver
from constraint_builders import Problem, gallery

CASES: dict[str, Callable[[], Problem]] = {
    "3^3": partial(gallery.cube, 3, 3),
    "4^4": partial(gallery.cube, 4, 4),
    "5^5": partial(gallery.cube, 5, 5),
    "6^6": partial(gallery.cube, 6, 6),
    "pl94": gallery.pl94,
    "pl94 x 55": partial(gallery.pl94_counties, 55),
    "dhc": gallery.dhc,
    "adult": gallery.adult,
    "50 x 10": gallery.wide,
    "2^12": partial(gallery.cube, 12, 2),
}
QUICK = ("3^3", "4^4", "pl94")
SEED, COLUMNS_AT_ONCE, TIMEOUT = 2024, 64, 300.0
COLUMNS = {
    "case": "", "cells in": ",", "out": ",", "solver": "", "prepare s": ".4f", "apply s": ".5f", "x copy": ".1f",
    "64 columns s": ".4f", "x copies": ".1f", "variances s": ".5f", "peak MiB": ".1f", "x in+out": ".1f",
    "iterations": "", "error": ".1e",
}  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = parser_of("solvers", __doc__, "small cases only")
    parser.add_argument("--case", action="append", choices=CASES, help="one case, may be repeated")
    parser.add_argument("--solver", action="append", choices=SOLVERS, help="one solver, may be repeated")
    parser.add_argument("--resume", metavar="FILE", help="keep figures in a file, and go on where it ends")
    options = parser.parse_args(argv)
    solvers = {name: SOLVERS[name]() for name in options.solver or SOLVERS if name != "auto" or options.solver}
    cases = options.case or (QUICK if options.quick else CASES)
    found = (measured(name, CASES[name](), solvers, options.resume) for name in cases)
    print_table(COLUMNS, (row_of(COLUMNS, figures) for some in found for figures in some))


def measured(
    case: str,
    problem: Problem,
    solvers: Mapping[str, Solver],
    resume: str | None = None,
    columns: int = COLUMNS_AT_ONCE,
    timeout: float = TIMEOUT,
) -> Iterator[dict[str, Any]]:
    """Figures of solvers on a problem by the headings of columns, or why there are none, as soon as each is there."""
    for label, solver in solvers.items():
        frame = benchmark({case: problem}, {label: solver}, columns=columns, resume=resume, timeout=timeout, seed=SEED)
        own = frame.row(0, named=True)
        sizes = {"case": case, "cells in": own["cells_in"], "out": own["cells_out"]}
        if own["status"] != "done":
            yield {**sizes, "solver": f"{label}: {own['status'][-110:]}"}
            continue
        many, copy = own["many_columns"], own["copy"]
        yield {
            **sizes,
            "solver": own["by"] if own["by"].startswith(label) else f"{label}: {own['by']}",
            "prepare s": own["prepare"],
            "apply s": own["apply"],
            "x copy": own["apply"] / copy,
            f"{columns} columns s": many,
            "x copies": many and many / copy / columns,
            "variances s": own["variances"],
            "peak MiB": own["memory"] / 2**20,
            "x in+out": own["memory"] / 8 / (own["cells_in"] + own["cells_out"]),
            "iterations": own["iterations"],
            "error": own["error"],
        }

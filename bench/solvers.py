"""Every solver on every size: seconds to prepare, to apply, to apply 64 columns, peak memory, difference from dense.

    python -m bench solvers            all cases, some minutes
    python -m bench solvers --quick    small ones
    python -m bench solvers --case dhc --case adult

Each solver runs in a process of its own, so that its peak memory is its own. Beside each case stands the time to
copy its input and output once on the same machine in the same run; ratios to that are what compares between
machines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from bench.measuring import best_seconds, copy_seconds, in_own_process, peak_bytes, print_table
from blue_solvers import SOLVERS, blue
from constraint_builders import Problem, gallery

CASES: dict[str, Callable[[], Problem]] = {
    "3^3": lambda: gallery.cube(3, 3),
    "4^4": lambda: gallery.cube(4, 4),
    "5^5": lambda: gallery.cube(5, 5),
    "6^6": lambda: gallery.cube(6, 6),
    "pl94": gallery.pl94,
    "pl94 x 55": lambda: gallery.pl94_counties(55),
    "dhc": gallery.dhc,
    "adult": gallery.adult,
    "50 x 10": gallery.wide,
    "2^12": lambda: gallery.cube(12, 2),
}
QUICK = ("3^3", "4^4", "pl94")
COLUMNS = 64
LARGE = 2_000_000  # cells above which 64 columns at once are not tried
TIMEOUT = 300.0
SEED = 2024


def measure(case: str, solver: str) -> dict[str, float | str]:
    """Figures of one solver on one case, in this process."""
    problem = CASES[case]()
    rng = np.random.default_rng(SEED)
    y = rng.standard_normal(problem.observed.size)
    before = peak_bytes()
    start = time.perf_counter()
    P = blue(problem, solver)
    prepare = time.perf_counter() - start
    x, info = P.apply(y)
    figures: dict[str, float | str] = {
        "prepare": prepare,
        "apply": best_seconds(lambda: P @ y),
        "memory": float(peak_bytes() - before),
        "copy": copy_seconds(y, x),
        "bytes": float(y.nbytes + x.nbytes),
        "iterations": float(info.iterations),
        "by": P.info.solver,
    }
    if solver == "sea_blue":
        figures["variances"] = best_seconds(P.variances)
    if y.size + x.size <= LARGE:
        Y = rng.standard_normal((problem.observed.size, COLUMNS))
        figures["columns"] = best_seconds(lambda: P @ Y, repeats=2, least=0)
    other = "sea_blue" if solver == "dense" or problem.observed.size > 20_000 else "dense"
    if other != solver:
        figures["difference"] = float(abs(x - blue(problem, other) @ y).max())
    return figures


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench solvers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--case", action="append", choices=CASES, help="one case, may be repeated")
    parser.add_argument("--solver", action="append", choices=SOLVERS, help="one solver, may be repeated")
    options = parser.parse_args(argv)
    cases = options.case or (QUICK if options.quick else tuple(CASES))
    solvers = options.solver or [name for name in SOLVERS if name != "auto"]
    header = ["case", "cells in", "out", "solver", "prepare s", "apply s", "x copy", "64 columns s", "x copy",
              "variances s", "peak MiB", "x in+out", "iterations", "difference"]  # fmt: skip
    rows = []
    for case in cases:
        problem = CASES[case]()
        for solver in solvers:
            output = in_own_process("bench.solvers", case, solver, timeout=TIMEOUT)
            cells = [case, f"{problem.observed.size:,}", f"{problem.desired.size:,}"]
            rows.append(cells + _row(solver, output, len(header) - len(cells)))
            if sys.stderr.isatty():
                print(f"\r{case}: {solver}".ljust(60), end="\r", file=sys.stderr, flush=True)
    print_table(header, rows)


def _row(solver: str, output: str, width: int) -> list[str]:
    try:
        figures = json.loads(output)
    except json.JSONDecodeError:
        return [solver, output.strip()[-110:], *[""] * (width - 2)]
    columns = figures.get("columns")
    return [
        figures["by"],
        f"{figures['prepare']:.4f}",
        f"{figures['apply']:.5f}",
        f"{figures['apply'] / figures['copy']:.1f}",
        f"{columns:.4f}" if columns else "",
        f"{columns / figures['copy'] / COLUMNS:.1f}" if columns else "",
        f"{figures['variances']:.5f}" if "variances" in figures else "",
        f"{figures['memory'] / 2**20:.1f}",
        f"{figures['memory'] / figures['bytes']:.1f}",
        f"{figures['iterations']:.0f}",
        f"{figures['difference']:.1e}" if "difference" in figures else "",
    ]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2])))

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

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bench.measuring import print_table
from blue_solvers import SOLVERS, benchmark
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
TIMEOUT = 300.0
SEED = 2024
HEADER = ["case", "cells in", "out", "solver", "prepare s", "apply s", "x copy", "64 columns s", "x copy",
          "variances s", "peak MiB", "x in+out", "iterations", "error"]  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench solvers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--case", action="append", choices=CASES, help="one case, may be repeated")
    parser.add_argument("--solver", action="append", choices=SOLVERS, help="one solver, may be repeated")
    parser.add_argument("--resume", metavar="FILE", help="keep figures in a file, and go on where it ends")
    options = parser.parse_args(argv)
    solvers = options.solver or [name for name in SOLVERS if name != "auto"]
    rows = []
    for case in options.case or (QUICK if options.quick else tuple(CASES)):
        if sys.stderr.isatty():
            print(f"\r{case}".ljust(60), end="\r", file=sys.stderr, flush=True)
        own = {case: CASES[case]()}
        frame = benchmark(own, solvers, columns=COLUMNS, resume=options.resume, timeout=TIMEOUT, seed=SEED)
        rows += [_row(figures) for figures in frame.iter_rows(named=True)]
    print_table(HEADER, rows)


def _row(figures: dict[str, Any]) -> list[str]:
    cells = [figures["problem"], f"{figures['cells_in']:,}", f"{figures['cells_out']:,}"]
    if figures["status"] != "done":
        return [*cells, figures["solver"], figures["status"][-110:], *[""] * (len(HEADER) - len(cells) - 2)]
    columns, copy, variances = figures["many_columns"], figures["copy"], figures["variances"]
    return [
        *cells,
        figures["by"],
        f"{figures['prepare']:.4f}",
        f"{figures['apply']:.5f}",
        f"{figures['apply'] / copy:.1f}",
        "" if columns is None else f"{columns:.4f}",
        "" if columns is None else f"{columns / copy / COLUMNS:.1f}",
        "" if variances is None else f"{variances:.5f}",
        f"{figures['memory'] / 2**20:.1f}",
        f"{figures['memory'] / 8 / (figures['cells_in'] + figures['cells_out']):.1f}",
        f"{figures['iterations']}",
        "" if figures["error"] is None else f"{figures['error']:.1e}",
    ]

"""``blue-solvers benchmark``: solvers on problems, measured side by side."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from blue_solvers.benchmarking import benchmark
from blue_solvers.commands.arguments import require_outputs
from blue_solvers.commands.common import print_columns, write_asked
from blue_solvers.commands.screen import progress, say
from constraint_builders import Problem, gallery

if TYPE_CHECKING:
    import polars

PLAIN = (gallery.toy, gallery.berkeley, gallery.pl94, gallery.pl94_counties, gallery.adult, gallery.dhc, gallery.wide)
PROBLEMS: dict[str, Callable[[], Problem]] = {make.__name__: make for make in PLAIN}
PROBLEMS |= {f"cube_{size}": partial(gallery.cube, size, size) for size in (3, 4, 5, 6)}
BY_DEFAULT = ("toy", "berkeley", "cube_3", "pl94")
HEADER = (
    "problem",
    "cells",
    "solver",
    "prepare s",
    "apply s",
    "columns s",
    "variances s",
    "MiB",
    "iterations",
    "error",
)


def run(args: argparse.Namespace) -> None:
    """Measure, print, and write what was asked for."""
    from constraint_builders.files import read_long_table

    tables = args.table or []
    require_outputs(args)
    names = args.problem or (() if tables else BY_DEFAULT)
    problems = {name: PROBLEMS[name]() for name in names}
    problems |= {path: read_long_table(path, undetermined="nan")[0] for path in tables}
    progress(f"measuring {len(problems)} problems")
    frame = benchmark(problems, args.solver, columns=args.columns, resume=args.resume, timeout=args.timeout)
    print_columns(HEADER, [_row(own) for own in frame.iter_rows(named=True)], left=3)
    for own in frame.filter(frame["status"] != "done").iter_rows(named=True):
        say("", f"{own['solver']} on {own['problem']}: {own['status']}")
    write_asked(args, frame, lambda: _figure(frame))


def _figure(frame: polars.DataFrame) -> Any:
    from matplotlib.figure import Figure

    from blue_solvers.plots import benchmark_times

    figure = Figure(figsize=(7, 5), layout="constrained")
    benchmark_times(figure.subplots(), frame)
    return figure


def _row(own: dict[str, Any]) -> list[str]:
    cells = [own["problem"], f"{own['cells_in']:,}", own["solver"]]
    seconds = [own[name] for name in ("prepare", "apply", "many_columns", "variances")]
    memory = None if own["memory"] is None else own["memory"] / 2**20
    said = [*("" if time is None else f"{time:.3g}" for time in seconds), "" if memory is None else f"{memory:.1f}"]
    iterations, error = own["iterations"], own["error"]
    return [*cells, *said, "" if iterations is None else str(iterations), "" if error is None else f"{error:.0e}"]

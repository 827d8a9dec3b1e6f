"""``blue-solvers estimate``: noisy tables in, consistent estimates with standard errors out."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from blue_solvers import SOLVERS, BlueOperator, blue
from blue_solvers.commands.common import SubParsers, add_input_arguments, new_parser, plural, progress, read_input
from constraint_builders.layout import Float


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "estimate",
        "make noisy tables consistent: best linear unbiased estimates with standard errors and intervals",
        "blue-solvers estimate noisy.csv --schema schema.toml --out estimates.csv --desired all",
    )
    add_input_arguments(parser)
    parser.add_argument("--out", metavar="FILE", required=True, help="where the estimates go, .csv or .parquet")
    parser.add_argument("--solver", choices=list(SOLVERS), default="auto", help="default: auto")
    parser.add_argument("--level", type=_level, default=0.95, help="coverage of the intervals; default: 0.95")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Estimate what was asked for and write it."""
    from constraint_builders.files import estimates_frame, write_frame
    from constraint_builders.files.long_table import require_suffix
    from constraint_builders.files.replacing import require_writable

    require_suffix(args.out)
    require_writable(args.out)
    _refuse_overwriting_input(args)
    problem, y = read_input(args)
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    progress(f"estimating {plural(problem.desired.size, 'cell')}")
    estimate = P @ y + P.offset
    progress("computing exact variances")
    std_error = np.sqrt(np.maximum(P.variances(), 0))
    lower, upper = normal_intervals(estimate, std_error, args.level)
    write_frame(estimates_frame(problem, estimate, std_error, lower, upper), args.out)
    _report(P, args.out)


def normal_intervals(estimate: Float, std_error: Float, level: float) -> tuple[Float, Float]:
    """Two-sided normal intervals.

    A stand-in for ``intervals(P, y, level)`` of `blue_solvers.uncertainty`, which is to replace it.
    """
    margin = ndtri((1 + level) / 2) * std_error
    return estimate - margin, estimate + margin


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = np.nan
    if not 0 < level < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, 0.95 for instance: got {text}")
    return level


def _refuse_overwriting_input(args: argparse.Namespace) -> None:
    for path in filter(None, (args.input, args.schema)):
        if Path(path).exists() and Path(args.out).exists() and os.path.samefile(path, args.out):
            raise ValueError(f"--out {args.out} would overwrite what is read: choose another file")


def _report(P: BlueOperator, out: str) -> None:
    problem, info = P.problem, P.info
    exact, unmeasured = int(problem.exact.sum()), int(problem.unmeasured.sum())
    observed = f"{plural(problem.observed.size, 'cell')} of {plural(len(problem.observed.names), 'table')}"
    desired = f"{plural(problem.desired.size, 'cell')} of {plural(len(problem.desired.names), 'table')}"
    print(f"observed   {observed}, {exact:,} exact, {unmeasured:,} not measured")
    print(f"estimated  {desired}, consistent to {info.violation:.1g}")
    print(f"solver     {info.solver}, {'exact' if info.exact else 'NOT the best estimate'}")
    if info.reason:
        print(f"because    {info.reason}")
    print(f"written    {out}")

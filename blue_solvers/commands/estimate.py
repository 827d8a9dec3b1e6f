"""``blue-solvers estimate``: noisy tables in, consistent estimates with standard errors out."""

from __future__ import annotations

import argparse
import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from blue_solvers import blue
from blue_solvers.commands.common import (
    SubParsers,
    add_digits_argument,
    add_solving_arguments,
    announce,
    coverage,
    listed_names,
    new_parser,
    plural,
    report,
    write_rounded,
)
from blue_solvers.commands.estimate_release import run_on_folder
from blue_solvers.commands.fit_line import FitReport, fit_report
from blue_solvers.commands.picture import picture
from blue_solvers.commands.progress import progress
from blue_solvers.commands.read_and_written import ReadPath, WrittenPath, require_outputs, settings_path
from blue_solvers.commands.screen import say
from blue_solvers.commands.strict import refuse_doubt
from blue_solvers.commands.table_input import (
    OF_TABLES,
    add_input_arguments,
    read_input,
    write_schema,
)
from blue_solvers.goodness import NOT_TESTED

if TYPE_CHECKING:
    from blue_solvers.nonnegative import Movement

LEVEL = 0.95
FITS = ("nnls", "max", "sequential", "reweighted", "anchored")  # the keys of METHODS, which is loaded where it is used
AMOUNT = re.compile(r"(\d+\.?\d*(?:[eE]\+?\d{1,2})?)\s*([kKMGT]?)(i?)[bB]?", re.ASCII)
PREFIXES = ("", "K", "M", "G", "T")
NOT_OF_FOLDERS = {
    "--level": "its result keeps standard errors, give --level to query",
    "--plot": "too many cells to draw",
    "--digits": "its result keeps all digits, give --digits to query",
    "--undetermined": "its tables are measured whole or not at all",
    "--nonnegative": "its result keeps unbiased estimates, of which any places can be asked; fit a long table instead",
} | dict.fromkeys(OF_TABLES, "its settings say what its columns are")


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "estimate",
        "blue-solvers estimate noisy.csv --schema schema.toml --out estimates.csv --desired all",
    )
    add_input_arguments(parser)
    parser.add_argument(
        "--settings",
        type=settings_path,
        help="of a folder of measurement files: a production run of 2020, such as pl94_us_persons, dhc_us_housing for "
        "households and units together, or a .toml file; by default the folder's settings.toml",
    )
    parser.add_argument(
        "--within",
        metavar="GEOCODE",
        action="append",
        help="read only geounits of the folder whose geocodes begin so, may be repeated",
    )
    parser.add_argument(
        "--totals",
        metavar="FILE",
        type=ReadPath,
        help="totals of geounits of the folder that are known exactly, .csv: columns geocode and total; 044+144 for "
        "two that are all the children of one",
    )
    parser.add_argument(
        "--state-totals",
        metavar="WHICH",
        type=ReadPath,
        help="populations of states that are known exactly, for a folder of persons: 2020 for those of the Census of "
        "2020, or a file, .csv: columns state and total; default: none",
    )
    parser.add_argument(
        "--variables",
        metavar="NAMES",
        type=listed_names,
        help="variables of the folder's schema to keep, with commas: tables are summed over the others when read",
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=_bytes,
        help="stream a folder that need not fit in memory, in at most so many bytes beside the program itself, 4e9 or "
        "4GB for instance; killed and run again it goes on where it was",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=WrittenPath,
        required=True,
        help="where the estimates go, such as .csv or .parquet; from measurement files a folder, for query",
    )
    add_solving_arguments(parser)
    parser.add_argument(
        "--level", type=coverage, help=f"coverage of a long table's intervals; default: {LEVEL}; of a folder query asks"
    )
    add_digits_argument(parser)
    parser.add_argument(
        "--nonnegative",
        metavar="METHOD",
        choices=FITS,
        help=f"also write non-negative counts that microdata can have, beside the unbiased estimates, in a column "
        f"'nonnegative', and print how far they moved: {', '.join(FITS)}",
    )
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=WrittenPath,
        help="draw residuals and their quantiles, table by table, .png, .svg or .pdf; needs the extra 'plots'",
    )
    parser.set_defaults(run=run)


def _bytes(text: str) -> float:
    """A number of bytes, also in kB, MB, GB, GiB and so on, from an argument."""
    amount = AMOUNT.fullmatch(text.strip())
    count = float(amount[1]) * (1024 if amount[3] else 1000) ** PREFIXES.index(amount[2].upper()) if amount else np.nan
    if not 0 < count < np.inf:
        raise argparse.ArgumentTypeError(f"must be a number of bytes, 4e9 for instance: got {text}")
    return count


def run(args: argparse.Namespace) -> None:
    """Estimate what was asked for and write it."""
    if not Path(args.input).exists():
        raise FileNotFoundError(f"{args.input}: No such file or directory")
    if Path(args.input).is_dir():
        for option, instead in NOT_OF_FOLDERS.items():
            if getattr(args, option[2:].replace("-", "_")) is not None:
                raise ValueError(f"{option} is for one file of tables, and {args.input} is a folder: {instead}")
        return run_on_folder(args)
    for option in ("--settings", "--within", "--totals", "--state-totals", "--variables", "--memory"):
        if getattr(args, option[2:].replace("-", "_")) is not None:
            raise ValueError(f"{option} is for a folder of measurement files: {args.input} is none")
    return run_on_table(args)


def run_on_table(args: argparse.Namespace) -> None:
    """Estimate from a file of tables, long or wide."""
    from blue_solvers.uncertainty import normal_intervals
    from constraint_builders.files import estimates_frame
    from constraint_builders.files.long_table import with_nonnegative

    require_outputs(args)
    problem, y = read_input(args)
    announce(problem, args.solver)
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    if args.plot is not None and not P.info.exact:
        raise ValueError(
            f"--plot draws residuals of the best estimate, which --solver {args.solver} does not give of this input: "
            "choose another solver, such as auto"
        )
    progress(f"estimating {plural(problem.desired.size, 'cell')}")
    est = P.estimate(y, certify=True)
    estimate = est.values
    progress("computing exact variances")
    std_error = est.std_errors
    fit = FitReport("", NOT_TESTED)
    if args.fit:
        progress("testing the fit")
        fit = fit_report(est)
    level = LEVEL if args.level is None else args.level
    lower, upper = normal_intervals(estimate, std_error, level)
    frame = estimates_frame(problem, estimate, std_error, lower, upper)
    moved: list[Movement] = []
    if args.nonnegative:
        from blue_solvers.nonnegative import METHODS, movements

        progress(f"fitting non-negative cells by {args.nonnegative}")
        counts = METHODS[args.nonnegative](problem, y)
        frame = with_nonnegative(frame, counts.desired)
        moved = [own for own in movements(counts, estimate) if np.isfinite(own.unbiased_total)]
    frame = est.with_measurements(frame)
    with ExitStack() as written:
        if args.plot is not None:
            written.enter_context(picture(est.fit(draws=0), args.plot))
        write_rounded(frame, args.out, args.digits)
    report(est, args.out, est.tied)
    write_schema(args, problem)
    if fit.line:
        say(f"fit        {fit.line}")
    for movement in moved:
        say(f"moved      {movement}")
    refuse_doubt(args, fit.doubt, *problem.understood.notes)

"""``blue-solvers report``: what is known of a result, on one page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.commands.common import SubParsers, coverage, new_parser, plural
from blue_solvers.commands.kinds import RESULT, require_file, what_is
from blue_solvers.commands.progress import progress
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.read_and_written import ReadPath, WrittenPath, require_outputs
from blue_solvers.commands.screen import say
from blue_solvers.commands.strict import add_strict_argument, refuse_doubt
from blue_solvers.commands.table_input import OF_TABLES, add_said_arguments, said_of

if TYPE_CHECKING:
    from blue_solvers.reporting import Page

LEVEL = 0.95
SUFFIXES = (".html", ".htm")
OF_ESTIMATES = ("--areas", "--rounded", "--cell-key", "--variance")  # which a file of them does not say


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "report",
        "blue-solvers report estimates.csv --out report.html\n"
        "  blue-solvers report counts.csv --areas areas.csv --rounded 3 --out report.html",
    )
    parser.add_argument(
        "result",
        metavar="RESULT",
        type=ReadPath,
        help="what estimate wrote, .csv or .parquet, or a folder of it; or noisy tables, which are estimated for it",
    )
    parser.add_argument(
        "--measured",
        metavar="INPUT",
        type=ReadPath,
        help="the noisy tables that a file of estimates was made from, by whomever: it is judged by them; by default "
        "those that it holds itself",
    )
    parser.add_argument(
        "--schema", metavar="FILE", type=ReadPath, help="variables and recodes, .toml; by default inferred"
    )
    add_said_arguments(parser)
    add_strict_argument(parser)
    parser.add_argument(
        "--level", type=coverage, default=LEVEL, help=f"confidence level of intervals; default: {LEVEL}"
    )
    parser.add_argument("--out", metavar="FILE", type=WrittenPath, required=True, help="the page, .html")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    from blue_solvers.reporting import html_of
    from constraint_builders.files.new_files import replacing

    require_outputs(args, _require_page)
    if not Path(args.result).exists():
        raise FileNotFoundError(f"{args.result}: No such file or directory")
    page = _of_folder(args) if Path(args.result).is_dir() else _of_file(args)
    text = html_of(page)
    with replacing(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    for tile in page.tiles:
        say(f"{tile.label}: {', '.join(filter(None, (tile.value, tile.note)))}")
    say(f"written    {args.out}, {plural(len(text.encode()), 'byte')}, which needs no network")
    refuse_doubt(args, page.doubt)


def _require_page(path: str) -> None:
    from constraint_builders.files.new_files import require_writable

    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out {path}: give a file that ends in {' or '.join(SUFFIXES)}")
    require_writable(path)


def _of_folder(args: argparse.Namespace) -> Page:
    from blue_solvers.reporting import stored_page

    for option in ("--measured", "--schema", *OF_TABLES):
        if getattr(args, option[2:].replace("-", "_"), None) is not None:
            raise ValueError(f"{option} is for a file of estimates: {args.result} is a folder, which says itself")
    if not (Path(args.result) / RESULT).exists():
        raise ValueError(f"{args.result} {what_is(args.result)}")
    progress(f"reading {args.result}")
    with reading():
        return stored_page(Path(args.result), args.level)


def _refuse_of_measured(args: argparse.Namespace) -> None:
    """Refuse what is said of noisy tables where the estimates hold them, in columns of their own."""
    for option in OF_TABLES:
        if option not in OF_ESTIMATES and getattr(args, option[2:].replace("-", "_"), None) is not None:
            raise ValueError(f"{option} is of noisy tables, and {args.result} holds estimates: give --measured too")


def _of_file(args: argparse.Namespace) -> Page:
    from blue_solvers.reporting.of_tables import page_of_estimates, page_of_measurements
    from blue_solvers.reporting.result_file import ResultFile
    from constraint_builders.files import read_schema_file
    from constraint_builders.files.naming import naming
    from constraint_builders.files.source import open_source
    from constraint_builders.files.survey_frame import Said

    if args.measured is not None:
        require_file(args.measured, "a long table")
    said = said_of(args)
    with reading():
        source = (said or Said()).open(args.result) if args.measured is None else open_source(args.result)
    name = Path(args.result).name
    with naming(args.result):
        result = ResultFile.of(source)
    with reading():
        file = read_schema_file(args.schema) if args.schema else None
    if result is not None:
        if args.measured is None:
            _refuse_of_measured(args)
        with reading():
            return page_of_estimates(result, name, args.measured, file, args.level, said)
    if args.measured is not None:
        raise ValueError(f"{args.result} holds no estimates to judge by --measured: give what estimate wrote")
    with reading():
        return page_of_measurements(args.result, name, file, args.level, said)

"""``blue-solvers report``: what is known of a result, on one page that needs no network."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.commands.common import (
    SubParsers,
    coverage,
    new_parser,
    plural,
    refuse_overwriting,
)
from blue_solvers.commands.kinds import RESULT, require_file, what_is
from blue_solvers.commands.progress import progress
from blue_solvers.commands.quiet import reading

if TYPE_CHECKING:
    from blue_solvers.reporting import Page

LEVEL = 0.95
SUFFIXES = (".html", ".htm")


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "report",
        "show a result on one page: its fit, its certificate, the largest adjustments, its precision, its figures",
        "blue-solvers report estimates.csv --out report.html",
    )
    parser.add_argument(
        "result",
        metavar="RESULT",
        help="what estimate wrote, .csv or .parquet, or a folder of it; or noisy tables, which are estimated for it",
    )
    parser.add_argument(
        "--measured",
        metavar="INPUT",
        help="the noisy tables that a file of estimates was made from, by whomever: it is judged by them; by default "
        "those that it holds itself",
    )
    parser.add_argument("--schema", metavar="FILE", help="variables and recodes, .toml; by default inferred")
    parser.add_argument("--level", type=coverage, default=LEVEL, help=f"coverage of intervals; default: {LEVEL}")
    parser.add_argument("--out", metavar="FILE", required=True, help="the page, .html")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the page."""
    from blue_solvers.reporting import html_of
    from constraint_builders.files.replacing import replacing, require_writable

    if Path(args.out).suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out {args.out}: give a file that ends in {' or '.join(SUFFIXES)}")
    require_writable(args.out)
    refuse_overwriting(args.out, (args.result, args.measured, args.schema))
    if not Path(args.result).exists():
        raise FileNotFoundError(f"{args.result}: No such file or directory")
    page = _of_folder(args) if Path(args.result).is_dir() else _of_file(args)
    text = html_of(page)
    with replacing(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    for tile in page.tiles:
        print(f"{tile.label}: {tile.value}, {tile.note}")
    print(f"written    {args.out}, {plural(len(text.encode()), 'byte')}, which needs no network")


def _of_folder(args: argparse.Namespace) -> Page:
    from blue_solvers.reporting import stored_page

    for option in ("measured", "schema"):
        if getattr(args, option) is not None:
            raise ValueError(f"--{option} is for a file of estimates: {args.result} is a folder, which says itself")
    if not (Path(args.result) / RESULT).exists():
        raise ValueError(f"{args.result} {what_is(args.result)}")
    progress(f"reading {args.result}")
    with reading():
        return stored_page(Path(args.result), args.level)


def _of_file(args: argparse.Namespace) -> Page:
    from blue_solvers.reporting.of_tables import page_of_estimates, page_of_measurements
    from blue_solvers.reporting.result_file import ResultFile
    from constraint_builders.files.naming import naming
    from constraint_builders.files.source import open_source

    if args.measured is not None:
        require_file(args.measured, "a long table")
    with reading():
        source = open_source(args.result)
    name = Path(args.result).name
    with naming(args.result):
        result = ResultFile.of(source)
    if result is not None:
        return page_of_estimates(result, name, args.measured, args.schema, args.level)
    if args.measured is not None:
        raise ValueError(f"{args.result} holds no estimates to judge by --measured: give what estimate wrote")
    return page_of_measurements(args.result, name, args.schema, args.level)

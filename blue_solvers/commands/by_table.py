"""``blue-solvers table``: published tables of any places, line by line, from a stored result."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blue_solvers.commands import published_places
from blue_solvers.commands.common import (
    CSV_DIGITS,
    SubParsers,
    add_digits_argument,
    bounds_header,
    new_parser,
    plural,
    print_columns,
)
from blue_solvers.commands.progress import LevelBar
from blue_solvers.commands.read_and_written import require_outputs
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    import polars as pl


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "table",
        "blue-solvers table result P12 --geoid 44007000101\n"
        "  blue-solvers table result P1 P2 --geolevel tract --geoid 44007 --out tracts.csv --wide",
    )
    published_places.add_result_argument(parser)
    parser.add_argument(
        "tables", metavar="TABLE", nargs="+", help="such as P12, or one line of it, such as P12_003N; see tables"
    )
    published_places.add_place_arguments(parser)
    parser.add_argument("--wide", action="store_true", help="a row for each place and columns for lines; with --out")
    add_digits_argument(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Answer by table, and show or write it."""
    require_outputs(args)
    if args.out is None and (args.wide or args.digits is not None):
        raise ValueError("--wide and --digits are of what is written: give --out, or leave them out")
    geoids, geolevel = published_places.places_of(args)
    result = published_places.open_result(args.result)
    with LevelBar("answering", alike=True) as bar:
        frames = [result.table(name, geoids, geolevel, args.level, progress=bar) for name in args.tables]
    _require_different(frames)
    if args.out is None:
        _show(frames, args.level)
    else:
        _write(frames, args)
    published_places.print_proof(args, result)


def _require_different(frames: list[pl.DataFrame]) -> None:
    """Refuse a line that is asked for twice, by itself or in its table."""
    seen: set[str] = set()
    for frame in frames:
        own = set(frame["line"])
        if own & seen:
            raise ValueError(f"line {min(own & seen)} is asked for twice: name its table or itself once")
        seen |= own


def _show(frames: list[pl.DataFrame], level: float) -> None:
    import polars as pl

    frame = pl.concat(frames)
    published_places.require_few(frame)
    header = ("geoid", "line", "label", "", "estimate", "std error", *bounds_header(level))
    rows = [
        (geoid, line, label, _mark(confidence), *(f"{value:,.2f}" for value in values))
        for geoid, line, label, *values, confidence in frame.iter_rows()
    ]
    print_columns(header, rows, left=4)
    if any(row[3] for row in rows):
        say(published_places.UNSURE_NOTE)


def _mark(confidence: str) -> str:
    from constraint_builders.files.published_tables import UNSURE

    return confidence if confidence == UNSURE else ""


def _write(frames: list[pl.DataFrame], args: argparse.Namespace) -> None:
    import polars as pl

    from blue_solvers.results.published_answers import wide_frame
    from constraint_builders.files import rounded, write_frame

    digits = args.digits or (CSV_DIGITS if args.out.lower().endswith(".csv") else None)
    if isinstance(digits, int):
        frames = [rounded(frame, digits) for frame in frames]
    if args.wide:
        first, *others = map(wide_frame, frames)
        frame = pl.concat([first, *(own.drop("geoid") for own in others)], how="horizontal")
    else:
        frame = pl.concat(frames)
    write_frame(frame, args.out)
    say(f"written    {args.out}, {plural(frame.height, 'row')}")

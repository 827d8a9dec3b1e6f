"""``blue-solvers compare``: ratios, differences and ranks of lines of published tables, from a stored result."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blue_solvers.commands import published_places
from blue_solvers.commands.common import SubParsers, bounds_header, new_parser, plural, print_columns
from blue_solvers.commands.progress import LevelBar
from blue_solvers.commands.read_and_written import require_outputs
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers.results.questions import Result

SAME = ""
DIGITS = 13  # significant ones in .csv: more than is proved of any estimate, and no traces of rounding


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "compare",
        "blue-solvers compare result P12_003N --over P12_001N --geolevel tract\n"
        "  blue-solvers compare result P12_001N --minus --base 44007 --geoid 44001 44003\n"
        "  blue-solvers compare result P12_001N --rank --geolevel county --out ranks.csv",
    )
    published_places.add_result_argument(parser)
    parser.add_argument("line", metavar="LINE", help="of a published table, such as P12_003N")
    how = parser.add_mutually_exclusive_group(required=True)
    for option, what in (
        ("--over", "the ratio to another line, a share where that is the whole"),
        ("--minus", "less another line"),
    ):
        how.add_argument(
            option, metavar="LINE", nargs="?", const=SAME, help=f"{what}; with --base the same line by default"
        )
    how.add_argument("--rank", action="store_true", help="places from the largest down, with the ranks they may have")
    parser.add_argument("--base", metavar="CODE", help="the place that the other line is of; default: the same place")
    published_places.add_place_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Compare, and show or write it."""
    require_outputs(args)
    if args.rank and args.base is not None:
        raise ValueError("--rank compares places with one another: leave --base out")
    result = published_places.open_result(args.result)
    frame = _answers(args, result)
    if args.out is None:
        _show(frame, args.level)
    else:
        _write(frame, args.out)
    published_places.print_proof(args, result)


def _answers(args: argparse.Namespace, result: Result) -> pl.DataFrame:
    geoids, geolevel = published_places.places_of(args)
    if args.rank:
        return result.ranks(args.line, geoids, geolevel, args.level)
    other = args.over if args.over is not None else args.minus
    ask = result.ratios if args.over is not None else result.differences
    if other == SAME and args.base is None:
        raise ValueError("give a line after --over or --minus, or another place by --base")
    with LevelBar("answering", alike=True) as bar:
        return ask(args.line, other or None, geoids, geolevel, args.base, args.level, bar)


def _show(frame: pl.DataFrame, level: float) -> None:
    published_places.require_few(frame)
    lower, upper = bounds_header(level)
    names = {"std_error": "std error", "lower": lower, "upper": upper, "rank_from": lower, "rank_to": upper}
    names |= {"other_geoid": "against", "other_line": "of"}
    shown = [name for name in frame.columns if name != "confidence"]
    texts = sum(frame[name].dtype == frame["geoid"].dtype for name in shown)
    print_columns(
        [names.get(name, name) for name in shown],
        [[_text(x) for x in row] for row in frame.select(shown).rows()],
        texts,
    )
    if "C" in frame["confidence"]:
        say(published_places.UNSURE_NOTE)


def _text(value: str | int | float | None) -> str:
    if value is None:
        return "unbounded"
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


def _write(frame: pl.DataFrame, path: str) -> None:
    import polars as pl

    from constraint_builders.files import write_frame

    if path.lower().endswith(".csv"):
        frame = frame.with_columns(pl.col(pl.Float64).round_sig_figs(DIGITS))
    write_frame(frame, path)
    say(f"written    {path}, {plural(frame.height, 'row')}")

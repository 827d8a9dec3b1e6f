"""``blue-solvers query --over``, ``--minus``, ``--rank``: lines of published tables compared, from a stored result."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blue_solvers.commands.common import CSV_DIGITS, bounds_header, plural, print_columns
from blue_solvers.commands.progress import LevelBar
from blue_solvers.commands.published_places import UNSURE_NOTE, places_of, print_proof, require_few
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers.results.questions import Result

SAME = ""


def add_comparison_arguments(parser: argparse.ArgumentParser, required: bool) -> None:
    """Declare what a line is compared with."""
    how = parser.add_mutually_exclusive_group(required=required)
    for option, what in (
        ("--over", "of a line, the ratio to another line, a share where that is the whole"),
        ("--minus", "of a line, less another line"),
    ):
        how.add_argument(
            option, metavar="LINE", nargs="?", const=SAME, help=f"{what}; with --base the same line by default"
        )
    how.add_argument(
        "--rank", action="store_true", help="of a line, places from the largest down, with the ranks they may have"
    )
    parser.add_argument("--base", metavar="CODE", help="the place that the other line is of; default: the same place")


def compare(args: argparse.Namespace, result: Result) -> None:
    """Compare, and show or write it."""
    if args.rank and args.base is not None:
        raise ValueError("--rank compares places with one another: leave --base out")
    if args.wide or args.digits is not None:
        raise ValueError("--wide and --digits are of tables and counts: leave them out of a comparison")
    frame = _answers(args, result)
    if args.out is None:
        _show(frame, args.level)
    else:
        _write(frame, args.out)
    print_proof(args, result)


def _answers(args: argparse.Namespace, result: Result) -> pl.DataFrame:
    (line,), (geoids, geolevel) = args.table, places_of(args)
    if args.rank:
        return result.ranks(line, geoids, geolevel, args.level)
    other = args.over if args.over is not None else args.minus
    ask = result.ratios if args.over is not None else result.differences
    if other == SAME and args.base is None:
        raise ValueError("give a line after --over or --minus, or another place by --base")
    with LevelBar("answering", alike=True) as bar:
        return ask(line, other or None, geoids, geolevel, args.base, args.level, bar)


def _show(frame: pl.DataFrame, level: float) -> None:
    require_few(frame)
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
        say(UNSURE_NOTE)


def _text(value: str | int | float | None) -> str:
    if value is None:
        return "unbounded"
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


def _write(frame: pl.DataFrame, path: str) -> None:
    import polars as pl

    from constraint_builders.files import write_frame

    if path.lower().endswith(".csv"):
        frame = frame.with_columns(pl.col(pl.Float64).round_sig_figs(CSV_DIGITS))
    write_frame(frame, path)
    say(f"written    {path}, {plural(frame.height, 'row')}")

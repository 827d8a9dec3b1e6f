"""``blue-solvers query --over``, ``--minus``, ``--rank``, ``--published``: lines of published tables compared.

With one another, or the estimates of a stored result with what was published.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blue_solvers.commands.common import CSV_DIGITS, LEVEL, bounds_header, print_columns
from blue_solvers.commands.progress import LevelBar
from blue_solvers.commands.published_places import (
    MOST_SHOWN,
    names_of,
    places_of,
    print_proof,
    require_few,
    say_unnamed,
    with_names,
    write_answers,
)
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.screen import say
from constraint_builders.printable import counted

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers.results.questions import Result

SAME = ""
MOST_FAR = 20  # counts, of more than can be shown, that are furthest from what was published


def compare(args: argparse.Namespace, result: Result) -> None:
    """Compare, and show or write it."""
    if args.rank and args.base is not None:
        raise ValueError("--rank compares places with one another: leave --base out")
    if args.wide or args.whole or args.digits is not None:
        raise ValueError("--wide, --whole and --digits are of tables and counts: leave them out of a comparison")
    names = names_of(args)
    frame = with_names(_answers(args, result), names)
    say_unnamed(args, [frame])
    if args.out is None:
        _show(frame, args.level)
    else:
        _write(frame, args)
    print_proof(args, result)


def answer_beside(args: argparse.Namespace, result: Result) -> None:
    """Put a published file beside the estimates, and show or write it: all of it, or what is furthest apart."""
    import polars as pl

    from blue_solvers.results.published_beside import beside_published
    from constraint_builders.files.naming import naming
    from constraint_builders.files.published_files import read_published

    left_out = ("count", "places", "geounits", "geounits_file", "all", "base", "wide", "whole", "digits")
    given = next((name for name in left_out if getattr(args, name) not in (None, False)), None)
    if given is not None:
        raise ValueError(f"--published is compared line by line: leave --{given.replace('_', '-')} out")
    if args.level != LEVEL:
        raise ValueError("--published gives standard errors, and no intervals: leave --level out")
    with reading():
        published = read_published(args.published_file)
    with LevelBar("answering", alike=True) as bar, naming(args.published_file):
        beside = beside_published(result, published, args.table or None, args.geoid, args.geolevel, bar)
    for table, reason in beside.left_out.items():
        say(f"left out   {table}: {reason}")
    if published.others:
        others = counted(len(published.others), "row")
        say(f"left out   {others} of places that are no state, county, tract or part of one: {published.others[0]}")
    rest = published.counts.height - beside.frame["geoid"].n_unique()
    if rest and args.geoid is None and args.geolevel is None:
        say(f"left out   {counted(rest, 'row')} of places that this result has not, or not whole, or without a count")
    names = names_of(args) or published.names
    frame = with_names(beside.frame, names)
    say_unnamed(args, [frame])
    say(f"compared   {counted(frame.height, 'count')}: {beside}")
    if args.out is None:
        if frame.height > MOST_SHOWN:
            frame = with_names(pl.concat([beside.differ, beside.far]), names).head(MOST_FAR)
            say(f"shown      the {frame.height} furthest apart, exact or beyond 3 standard errors; all with --out")
        keys = [name for name in ("geoid", "name", "line", "label") if name in frame.columns]
        numbers = ("published", "estimate", "std_error", "difference", "z")
        rows = [(*(row[key] for key in keys), *map(_number, map(row.get, numbers))) for row in frame.rows(named=True)]
        print_columns((*keys, "published", "estimate", "std error", "difference", "std errors"), rows, len(keys))
    else:
        _write(frame, args)
    print_proof(args, result)


def _number(value: float | None) -> str:
    return "exact" if value is None else f"{value:,.2f}"


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


def _text(value: str | int | float | None) -> str:
    if value is None:
        return "unbounded"
    return f"{value:,.4f}" if isinstance(value, float) else str(value)


def _write(frame: pl.DataFrame, args: argparse.Namespace) -> None:
    import polars as pl

    if args.out.lower().endswith(".csv"):
        frame = frame.with_columns(pl.col(pl.Float64).round_sig_figs(CSV_DIGITS))
    write_answers(frame, args)

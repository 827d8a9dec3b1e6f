"""``blue-solvers query --table P12``: published tables of any places, line by line, from a stored result."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blue_solvers.commands.common import bounds_header, print_columns, rounded_for
from blue_solvers.commands.progress import LevelBar
from blue_solvers.commands.published_places import (
    names_of,
    places_of,
    print_proof,
    require_few,
    say_unnamed,
    with_names,
    write_answers,
)
from blue_solvers.commands.screen import say
from constraint_builders.printable import counted

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers.results.questions import Result

MARKS = {"high": "", "medium": " *", "low": "**"}
RELIABILITY_NOTE = "*: the standard error is more than 10 % of the estimate, **: more than 30 %"
MOST_PERCENT = 1000.0  # more are nothing to print
MOST_ADVICE = 3  # lines


def answer_tables(args: argparse.Namespace, result: Result) -> None:
    """Answer by table, and show or write it."""
    geoids, geolevel = places_of(args)
    names = names_of(args)
    with LevelBar("answering", alike=True) as bar:
        frames = [
            result.table(name, geoids, geolevel, args.level, progress=bar, whole=args.whole) for name in args.table
        ]
    _require_different(frames)
    named = [with_names(frame, names) for frame in frames]
    say_unnamed(args, named)
    if args.out is None:
        _show(named, args.level)
        if not isinstance(geoids, dict):
            _advise(result, frames)
    else:
        _write(frames, args, names)
    print_proof(args, result)


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

    frame = pl.concat([own.with_columns(label=_labels(own)) for own in frames])
    require_few(frame)
    keys = [name for name in ("geoid", "name", "line", "label") if name in frame.columns]
    header = (*keys, "estimate", "std error", "90% ±", "cv", *bounds_header(level))
    rows = [
        (
            *(row[key] for key in keys),
            *(f"{row[name]:,.2f}" for name in ("estimate", "std_error", "margin_90")),
            _percent(row["cv"], row["reliability"]),
            *(f"{row[name]:,.2f}" for name in ("lower", "upper")),
        )
        for row in frame.iter_rows(named=True)
    ]
    print_columns(header, rows, left=len(keys))
    if (frame["reliability"] != "high").any():
        say(RELIABILITY_NOTE)


def _labels(frame: pl.DataFrame) -> pl.Series:
    """The labels of a table's lines, indented as they are parts of one another; of one line alone its path."""
    import polars as pl

    from constraint_builders.files.published_tables import BELOW

    if frame["line"].n_unique() == 1:
        return frame["path"].str.splitn(BELOW, 2).struct[1].fill_null(frame["label"])
    depth = frame["path"].str.count_matches(BELOW, literal=True)
    indents = ["  " * own for own in depth]
    return pl.Series([own + label for own, label in zip(indents, frame["label"], strict=True)])


def _percent(cv: float | None, reliability: str) -> str:
    """The standard error in percent of the estimate, with the mark of its reliability."""
    return f"{'' if cv is None or cv >= MOST_PERCENT else f'{cv:.1f}%'}{MARKS[reliability]:<2}"


def _advise(result: Result, frames: list[pl.DataFrame]) -> None:
    """Say of lines that are hardly known, the first of each table, which group with them is."""
    import polars as pl

    from blue_solvers.results.known_groups import KNOWN_TO, known_groups
    from constraint_builders.geography.geoids import IN_PART

    for frame in frames:
        hopeless = frame.filter((pl.col("reliability") == "low") & ~pl.col("geoid").str.ends_with(IN_PART))
        if hopeless.is_empty():
            continue
        place = hopeless["geoid"][0]
        lines = hopeless.filter(pl.col("geoid") == place)["line"].head(MOST_ADVICE).to_list()
        for line, group in zip(lines, known_groups(result, lines, place), strict=True):
            known = (
                f"the smallest group with it that is, to {KNOWN_TO:.0%}: {group}" if group else "nor its whole table"
            )
            say(f"{line} at {place} is hardly known, {known}")
        if hopeless.height > len(lines):
            say(f"and {counted(hopeless.height - len(lines), 'figure')} more: ask for one line at one place to be told")


def _write(frames: list[pl.DataFrame], args: argparse.Namespace, names: dict[str, str]) -> None:
    import polars as pl

    from blue_solvers.results.published_answers import wide_frame

    frames = [rounded_for(frame, args.out, args.digits) for frame in frames]
    if args.wide:
        first, *others = map(wide_frame, frames)
        frame = pl.concat([first, *(own.drop("geoid") for own in others)], how="horizontal")
    else:
        frame = pl.concat(frames)
    write_answers(with_names(frame, names), args)

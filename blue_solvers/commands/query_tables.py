"""``blue-solvers query --table P12``: published tables of any places, line by line, from a stored result."""

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


def answer_tables(args: argparse.Namespace, result: Result) -> None:
    """Answer by table, and show or write it."""
    geoids, geolevel = places_of(args)
    with LevelBar("answering", alike=True) as bar:
        frames = [result.table(name, geoids, geolevel, args.level, progress=bar) for name in args.table]
    _require_different(frames)
    if args.out is None:
        _show(frames, args.level)
    else:
        _write(frames, args)
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

    frame = pl.concat(frames)
    require_few(frame)
    header = ("geoid", "line", "label", "", "estimate", "std error", *bounds_header(level))
    rows = [
        (geoid, line, label, _mark(confidence), *(f"{value:,.2f}" for value in values))
        for geoid, line, label, *values, confidence in frame.iter_rows()
    ]
    print_columns(header, rows, left=4)
    if any(row[3] for row in rows):
        say(UNSURE_NOTE)


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

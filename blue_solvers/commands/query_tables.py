"""``blue-solvers query --table P12`` and ``blue-solvers tables``: published tables from a stored result.

And what all answers from one share: which result, which places, how many rows are shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from blue_solvers.commands.arguments import RESULT, what_is
from blue_solvers.commands.common import print_columns, print_frame, rounded_for
from blue_solvers.commands.screen import LevelBar, reading, refuse_doubt, say
from constraint_builders.printable import counted

if TYPE_CHECKING:
    from blue_solvers.results.questions import Places, Result
    from constraint_builders.files.boundaries import Boundaries

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
    frame = pl.concat([own.with_columns(label=_labels(own)) for own in frames])
    require_few(frame)
    percent = map(_percent, frame["cv"], frame["reliability"])
    columns = ("geoid", "name", "line", "label", "estimate", "std_error", "margin_90", "cv", "lower", "upper")
    shown = frame.with_columns(pl.Series("cv", list(percent)))
    print_frame(shown.select(pl.col(name) for name in columns if name in frame.columns), level)
    if (frame["reliability"] != "high").any():
        say(RELIABILITY_NOTE)


def _labels(frame: pl.DataFrame) -> pl.Series:
    """The labels of a table's lines, indented as they are parts of one another; of one line alone its path."""
    from constraint_builders.files.published_tables import BELOW

    if frame["line"].n_unique() == 1:
        return frame["path"].str.splitn(BELOW, 2).struct[1].fill_null(frame["label"])
    indents = ["  " * own for own in frame["path"].str.count_matches(BELOW, literal=True)]
    return pl.Series([own + label for own, label in zip(indents, frame["label"], strict=True)])


def _percent(cv: float | None, reliability: str) -> str:
    """The standard error in percent of the estimate, with the mark of its reliability."""
    return f"{'' if cv is None or cv >= MOST_PERCENT else f'{cv:.1f}%'}{MARKS[reliability]:<2}"


def _advise(result: Result, frames: list[pl.DataFrame]) -> None:
    """Say of lines that are hardly known, the first of each table, which group with them is."""
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

    from blue_solvers.results.published_answers import wide_frame

    frames = [rounded_for(frame, args.out, args.digits) for frame in frames]
    if args.wide:
        first, *others = map(wide_frame, frames)
        frame = pl.concat([first, *(own.drop("geoid") for own in others)], how="horizontal")
    else:
        frame = pl.concat(frames)
    write_answers(with_names(frame, names), args)


MOST_SHOWN = 250  # rows on a screen: the longest table of one place has 209


def open_result(folder: str) -> Result:
    """The result in a folder; `ValueError` that says what else it is."""
    from blue_solvers.results.questions import Result

    if Path(folder).exists() and not (Path(folder) / RESULT).exists():
        raise ValueError(f"{folder} {what_is(folder)}")
    return Result(folder)


def places_of(args: argparse.Namespace) -> tuple[Places | None, str | None]:
    """The places of published tables that are asked for, as `Result.table` takes them."""
    if args.geounits is not None or args.geounits_file is not None:
        raise ValueError("--geounits and --geounits-file are of counts: name places of published tables by --geoid")
    if args.places is None:
        if args.geoid is None and args.geolevel is None:
            raise ValueError("no place is asked for: give --geoid, --geolevel or --places")
        return args.geoid, args.geolevel
    if args.geolevel is not None:
        raise ValueError("--places gives all places: leave --geoid and --geolevel out")
    return places_in(args.places), None


def places_in(path: str) -> dict[str, list[str]]:
    """The places in a file, and on the screen what was left out and is doubtful there."""
    from constraint_builders.files.block_tables import read_places

    with reading():
        return read_places(path, lambda remark: say(str(remark)))


def names_of(args: argparse.Namespace) -> dict[str, str]:
    """The names of places in ``--place-names``, by their GEOIDs."""
    from constraint_builders.files.published_files import read_published

    if args.place_names is None:
        return {}
    with reading():
        names = read_published(args.place_names).names
    if not names:
        raise ValueError(f"{args.place_names}: no column holds names of places: call one 'NAME'")
    return names


def boundaries_of(args: argparse.Namespace) -> Boundaries | None:
    """The shapes of places in ``--boundaries``."""
    from constraint_builders.files.boundaries import read_boundaries

    with reading():
        return None if args.boundaries is None else read_boundaries(args.boundaries)


def with_names(frame: pl.DataFrame, names: dict[str, str]) -> pl.DataFrame:
    """Answers with the name of every place, empty where it has none, after its GEOID."""
    from constraint_builders.description.geo_ids import geoid_of

    called = {geoid: names.get(geoid_of(geoid.upper()) or "", "") for geoid in frame["geoid"].unique()}
    own = pl.col("geoid").replace_strict(called, default="", return_dtype=pl.String).alias("name")
    return frame.select("geoid", own, pl.exclude("geoid")) if any(called.values()) else frame


def say_unnamed(args: argparse.Namespace, frames: Sequence[pl.DataFrame]) -> None:
    """Say how many places of answers have no name in ``--place-names``."""
    geoids = {geoid for frame in frames for geoid in frame["geoid"]}
    named = {
        row[0] for frame in frames if "name" in frame.columns for row in frame.select("geoid", "name").rows() if row[1]
    }
    if args.place_names is not None and geoids - named:
        lacking = counted(len(geoids - named), "place")
        say(f"no name    for {lacking} of {len(geoids):,} in {args.place_names}, such as {min(geoids - named)}")


def write_answers(frame: pl.DataFrame, args: argparse.Namespace) -> None:
    """Write answers, with the boundaries of their places if these are given, and say so."""
    from constraint_builders.files import write_frame
    from constraint_builders.files.naming import naming

    if args.shapes is None:
        write_frame(frame, args.out)
    else:
        from constraint_builders.files.boundaries import write_geoparquet

        key = next(name for name in ("geoid", "place", "geocode") if name in frame.columns)
        with naming(args.boundaries):
            write_geoparquet(frame, frame[key].to_list(), args.shapes, args.out)
    say(f"written    {args.out}, {counted(frame.height, 'row')}")


def print_proof(args: argparse.Namespace, result: Result) -> None:
    """Print what is proved, and whether the measurements fit their noise; doubt may be the end of it."""
    from blue_solvers.commands.fit_line import known_of

    known = known_of(result)
    if known:
        say(known)
    refuse_doubt(args, result.doubt)


def require_few(frame: pl.DataFrame) -> None:
    """Refuse to show very many rows."""
    if frame.height > MOST_SHOWN:
        raise ValueError(f"{frame.height:,} rows are too many to show: give --out FILE, .csv, .parquet or .arrow")


def run(args: argparse.Namespace) -> None:
    """List the tables, those that can be answered first."""
    result = open_result(args.result)
    frame = result.published_tables()
    known, unknown = frame.filter(frame["reason"] == ""), frame.filter(frame["reason"] != "")
    say(f"{counted(known.height, 'published table')} can be answered, {unknown.height:,} cannot")
    if known.height:
        rows = [(name, title, str(lines), levels) for name, title, lines, _, levels, _ in known.rows()]
        print_columns(("table", "title", "lines", "stored at, others are composed"), rows, left=2)
    if unknown.height:
        say()
        print_columns(
            ("table", "title", "cannot be answered:"), [(row[0], row[1], row[5]) for row in unknown.rows()], left=3
        )
    print_proof(args, result)

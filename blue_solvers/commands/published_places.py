"""What answers from a stored result share: which result, which places, how many rows are shown."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.commands.kinds import RESULT, what_is
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.screen import say
from blue_solvers.commands.strict import refuse_doubt
from constraint_builders.printable import counted

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers.results.questions import Places, Result
    from constraint_builders.files.boundaries import Boundaries

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
    import polars as pl

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

"""``blue-solvers query``: counts, published tables and comparisons of any places, from a stored result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from blue_solvers.commands.arguments import require_outputs
from blue_solvers.commands.common import CSV_DIGITS, LEVEL, print_frame, refuse_options, rounded_for
from blue_solvers.commands.query_tables import (
    MOST_SHOWN,
    answer_tables,
    boundaries_of,
    names_of,
    open_result,
    places_in,
    places_of,
    print_proof,
    require_few,
    say_unnamed,
    with_names,
    write_answers,
)
from blue_solvers.commands.screen import LevelBar, progress, reading, refuse_doubt, say
from constraint_builders.printable import counted

if TYPE_CHECKING:
    from blue_solvers.results.questions import Result
    from constraint_builders.arrays import Index
    from constraint_builders.files.boundaries import Boundaries

TOTAL, ALL, TOGETHER = "total", "all", ""
BYTES_A_ROW = 200.0  # of an answer: labels, four numbers, and copies


def run(args: argparse.Namespace) -> None:
    """Answer what was asked, and show or write it."""
    require_outputs(args)
    if args.out is None:
        refuse_options(args, ("--wide", "--digits"), "is of what is written: give --out, or leave it out")
    args.shapes = _shapes(args)
    compared = args.rank or args.over is not None or args.minus is not None
    if args.published_file is not None:
        return answer_beside(args, open_result(args.result))
    if compared and len(args.table or ()) != 1:
        raise ValueError("--over, --minus and --rank compare one line of a published table: give it by --table")
    if args.base is not None and not compared:
        raise ValueError("--base is what --over or --minus compares with: give one of these too")
    result = open_result(args.result)
    if compared:
        return compare(args, result)
    if args.published or _is_published(args, result):
        return answer_tables(args, result)
    return _answer_counts(args, result)


def _shapes(args: argparse.Namespace) -> Boundaries | None:
    """The boundaries that answers are to be written with, read before any work."""
    if args.boundaries is None:
        return None
    if not (args.out or "").lower().endswith(".parquet"):
        raise ValueError("--boundaries makes GeoParquet: give --out FILE.parquet")
    if args.geounits is not None or args.geounits_file is not None:
        raise ValueError("--boundaries are of places one by one: give --geoid, --geolevel, --places or --all")
    return boundaries_of(args)


def _is_published(args: argparse.Namespace, result: Result) -> bool:
    """Whether published tables are asked for, by names such as P12 that are no variables here."""
    names = [name.strip() for name in args.table or ()]
    from constraint_builders.files.published_tables import published_name

    return any(published_name(name) and name not in result.schema.factor_names for name in names)


def _answer_counts(args: argparse.Namespace, result: Result) -> None:
    """Answer counts and tables of the result's own variables."""
    refuse_options(args, ("--wide", "--whole", "--place-names"), "is of published tables: leave it out")
    lowest = result.spine.levels[-1]
    geolevel = lowest if args.geoid is not None else args.geolevel or lowest
    places = _places(args, result, geolevel)
    frame = _answers(args, result, geolevel, places)
    if args.out is None:
        from blue_solvers.commands.fit_line import known_of

        say(_title(args, geolevel, places), known_of(result))
        print_frame(frame.drop("geolevel", strict=False), args.level)  # which is the same in all of them
        refuse_doubt(args, result.doubt)
    else:
        write_answers(rounded_for(frame, args.out, args.digits), args)
        print_proof(args, result)


def _places(args: argparse.Namespace, result: Result, geolevel: str) -> dict[str, Index]:
    """Positions in the spine of the geounits of every place that is asked for."""
    from constraint_builders.files.naming import naming

    spine = result.spine
    members = spine.members[spine.level_index(geolevel)]
    if args.all:
        return {spine.geocodes[i]: members[[rank]] for rank, i in enumerate(members.tolist())}
    if args.geoid is not None:
        from constraint_builders.geography import leaves

        geoids, blocks = result.geoids, leaves(spine)
        found = geoids.of(args.geoid) if args.geolevel is None else geoids.every(args.geolevel, args.geoid)
        return {name: blocks[found.contains[[i]].indices] for i, name in enumerate(found.names)}
    if args.places is None:
        if args.geounits is None and args.geounits_file is None:
            raise ValueError("no place is asked for: give --geoid, --geounits, --geounits-file, --places or --all")
        with naming(args.geounits_file or args.result):
            codes = args.geounits or _lines(args.geounits_file)
            return {TOGETHER: members[_geounits(result, geolevel, codes)]}
    places = places_in(args.places)
    different = list(dict.fromkeys(code for codes in places.values() for code in codes))
    with naming(args.places):
        number = dict(zip(different, _geounits(result, geolevel, different).tolist(), strict=True))
    return {name: members[[number[code] for code in codes]] for name, codes in places.items()}


def _answers(args: argparse.Namespace, result: Result, geolevel: str, places: dict[str, Index]) -> pl.DataFrame:
    """What is asked of places, the positions of their geounits being (k,), as a frame."""
    from blue_solvers.results.tidy import at_geounits, counts_frame, geounits_frame, tables_frame

    counts = {name: parse_count(name) for name in args.count or [TOTAL]}
    tables = _tables(args.table or [], result, geolevel)
    rows = len(places) * (sum(tables.values()) if tables else len(counts))
    if args.out is None and rows > MOST_SHOWN:
        raise ValueError(f"{rows:,} answers are too many to show: give --out FILE, .csv or .parquet")
    from constraint_builders.memory import require_memory

    require_memory(rows * BYTES_A_ROW, f"{rows:,} answers", "ask for fewer tables or a geolevel above")
    progress(f"computing the variances of {counted(rows, 'answer')}")
    with LevelBar("answering", alike=True) as bar:
        if not tables:
            frame = counts_frame(result, places, counts, args.level, bar)
        elif args.all:
            return geounits_frame(result, geolevel, list(tables), args.level, bar)
        else:
            frame = tables_frame(result, places, list(tables), args.level, bar)
    if args.all:
        return at_geounits(frame, geolevel)
    return frame if args.places or args.geoid else frame.drop("place")


def _tables(names: Sequence[str], result: Result, geolevel: str) -> dict[str, int]:
    """The tables that are asked for, and how many cells they have."""
    from constraint_builders.description.table import parse_table

    if list(names) == [ALL]:
        found = {table.name: table.size for table in result.tables(geolevel)}
        if not found:
            raise ValueError(f"no table is stored at {geolevel!r}: name the tables that are asked for")
        return found
    return {name: parse_table(result.schema, name).size for name in names}


def _title(args: argparse.Namespace, geolevel: str, places: dict[str, Index]) -> str:
    """What answers are headed with, of places, the positions of their geounits being (k,)."""
    if args.all:
        return f"{counted(len(places), 'geounit')} of level {geolevel}"
    if args.places or args.geoid:
        return f"{counted(len(places), 'place')} of geounits of level {geolevel}"
    return f"{counted(places[TOGETHER].size, 'geounit')} of level {geolevel} together"


def _geounits(result: Result, geolevel: str, codes: Sequence[str]) -> Index:
    """Positions of geounits; where one is at another level the error says at which."""
    try:
        return result.geounits(geolevel, codes)
    except ValueError as error:
        spine = result.spine
        own = {spine.geocodes[i] for i in spine.members[spine.level_index(geolevel)]}
        levels = {code: spine.levels[level] for level, code in zip(spine.level_of, spine.geocodes, strict=True)}
        other = next((code for code in codes if code not in own and code in levels), None)
        if other is None:
            raise ValueError(f"{error}: its codes are such as {min(own)!r}{_by_geoid(codes, list(own))}") from None
        raise ValueError(f"{error}: {other!r} is a {levels[other]}, give --geolevel {levels[other]}") from None


def _by_geoid(codes: Sequence[str], own: Sequence[str]) -> str:
    """What to do instead where GEOIDs are given and the result's own codes are those of the spine of 2020."""
    from constraint_builders.description.geo_ids import KINDS, geoid_in
    from constraint_builders.files.tabulated_places import are_geoids

    kinds = [KINDS.get(len(geoid_in(code) or code)) for code in codes if code[-1:].isdigit()]
    if are_geoids(own) or not any(kinds):
        return ""
    kind = next(filter(None, kinds)).replace("_", " ")
    return f", which are the spine's; a {kind} goes by its GEOID, --geoid {codes[0]}"


def parse_count(text: str) -> dict[str, list[str]]:
    """Read ``total``, or ``variable=label|label,variable=label``.

    Raises
    ------
    ValueError
        If it is neither, or names a variable twice.
    """
    if text.strip() == TOTAL:
        return {}
    count: dict[str, list[str]] = {}
    for part in text.split(","):
        name, equals, labels = (piece.strip() for piece in part.partition("="))
        if not (name and equals and labels) or name in count:
            raise ValueError(f"--count {text!r} is not understood: write total, or variable=label|label,variable=label")
        count[name] = [label.strip() for label in labels.split("|")]
    return count


def _lines(path: str) -> list[str]:
    from constraint_builders.opening import read_text

    codes = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if not codes:
        raise ValueError("there is no geocode: give one on every line")
    return codes


SAME = ""
MOST_FAR = 20  # counts, of more than can be shown, that are furthest from what was published


def compare(args: argparse.Namespace, result: Result) -> None:
    """Compare, and show or write it."""
    if args.rank and args.base is not None:
        raise ValueError("--rank compares places with one another: leave --base out")
    if args.wide or args.whole or args.digits is not None:
        raise ValueError("--wide, --whole and --digits are of tables and counts: leave them out of a comparison")
    frame = with_names(_compared(args, result), names_of(args))
    say_unnamed(args, [frame])
    if args.out is None:
        require_few(frame)
        print_frame(frame.drop("confidence"), args.level, digits=4, empty="unbounded")
    else:
        _write_comparison(frame, args)
    print_proof(args, result)


def answer_beside(args: argparse.Namespace, result: Result) -> None:
    """Put a published file beside the estimates, and show or write it: all of it, or what is furthest apart."""
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
        columns = ("geoid", "name", "line", "label", "published", "estimate", "std_error", "difference", "z")
        print_frame(frame.select(pl.col(name) for name in columns if name in frame.columns), args.level, empty="exact")
    else:
        _write_comparison(frame, args)
    print_proof(args, result)


def _compared(args: argparse.Namespace, result: Result) -> pl.DataFrame:
    (line,), (geoids, geolevel) = args.table, places_of(args)
    if args.rank:
        return result.ranks(line, geoids, geolevel, args.level)
    other = args.over if args.over is not None else args.minus
    ask = result.ratios if args.over is not None else result.differences
    if other == SAME and args.base is None:
        raise ValueError("give a line after --over or --minus, or another place by --base")
    with LevelBar("answering", alike=True) as bar:
        return ask(line, other or None, geoids, geolevel, args.base, args.level, bar)


def _write_comparison(frame: pl.DataFrame, args: argparse.Namespace) -> None:
    if args.out.lower().endswith(".csv"):
        frame = frame.with_columns(pl.col(pl.Float64).round_sig_figs(CSV_DIGITS))
    write_answers(frame, args)

"""``blue-solvers query``: counts over any geounits, with intervals, from a stored result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blue_solvers.commands.common import (
    SubParsers,
    add_digits_argument,
    bounds_header,
    coverage,
    new_parser,
    plural,
    print_columns,
    write_rounded,
)
from blue_solvers.commands.fit_line import known_of
from blue_solvers.commands.progress import LevelBar, progress
from blue_solvers.commands.published_places import add_result_argument, open_result, places_in, print_proof
from blue_solvers.commands.read_and_written import ReadPath, WrittenPath, require_outputs
from blue_solvers.commands.screen import say
from blue_solvers.commands.strict import refuse_doubt
from constraint_builders.arrays import Index
from constraint_builders.memory import require_memory
from constraint_builders.opening import read_text

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers.results.questions import Result

TOTAL, ALL, TOGETHER = "total", "all", ""
MOST_SHOWN = 200  # answers on a screen
BYTES_A_ROW = 200.0  # of an answer: labels, four numbers, and copies


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "query",
        "blue-solvers query result --count total --count votingage=adult --geounits 440070001011000 440070001011001\n"
        "  blue-solvers query result --count total --places places.csv --out places_total.csv\n"
        "  blue-solvers query result --table all --all --geolevel County --out counties.parquet",
    )
    add_result_argument(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--count",
        metavar="COUNT",
        action="append",
        help="what to count, may be repeated: total, or levels of variables or recodes, as in "
        "'votingage=adult,hispanic=hispanic' or 'cenrace=black|asian'; default: total",
    )
    what.add_argument(
        "--table",
        metavar="TABLE",
        action="append",
        help="a table of which to give every cell, may be repeated, or 'all' that were estimated at the level",
    )
    units = parser.add_mutually_exclusive_group(required=True)
    units.add_argument("--geounits", metavar="CODE", nargs="+", help="geocodes, or 15-digit GEOIDs of blocks, together")
    units.add_argument(
        "--geounits-file", metavar="FILE", type=ReadPath, help="a file with a geocode on every line, together"
    )
    units.add_argument(
        "--places",
        metavar="FILE",
        type=ReadPath,
        help="many places, on the spine or off it: a table with a row for each block of each place, columns place and "
        "geocode; an answer for each place",
    )
    units.add_argument("--all", action="store_true", help="every geounit of the level by itself")
    parser.add_argument("--geolevel", metavar="LEVEL", help="of the geounits; default: the lowest")
    parser.add_argument("--level", type=coverage, default=0.95, help="coverage of the intervals; default: 0.95")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=WrittenPath,
        help="write the answers, a row for each, .csv or .parquet; by default they are shown",
    )
    add_digits_argument(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Answer what was asked, and show or write it."""
    require_outputs(args)
    if args.out is None and args.digits is not None:
        raise ValueError("--digits rounds what is written: give --out, or leave it out")
    result = open_result(args.result)
    geolevel = args.geolevel or result.spine.levels[-1]
    places = _places(args, result, geolevel)
    frame = _answers(args, result, geolevel, places)
    if args.out is None:
        _show(frame, _title(args, geolevel, places), known_of(result), args.level)
        refuse_doubt(args, result.doubt)
    else:
        write_rounded(frame, args.out, args.digits)
        say(f"written    {args.out}, {plural(frame.height, 'row')}")
        print_proof(args, result)


def _places(args: argparse.Namespace, result: Result, geolevel: str) -> dict[str, Index]:
    """Positions in the spine of the geounits of every place that is asked for."""
    from constraint_builders.files.naming import naming

    spine = result.spine
    members = spine.members[spine.level_index(geolevel)]
    if args.all:
        return {spine.geocodes[i]: members[[rank]] for rank, i in enumerate(members.tolist())}
    if args.places is None:
        with naming(args.geounits_file or args.result):
            codes = args.geounits or _lines(args.geounits_file)
            return {TOGETHER: members[_geounits(result, geolevel, codes)]}
    places = places_in(args.places)
    different = list(dict.fromkeys(code for codes in places.values() for code in codes))
    with naming(args.places):
        number = dict(zip(different, _geounits(result, geolevel, different).tolist(), strict=True))
    return {name: members[[number[code] for code in codes]] for name, codes in places.items()}


def _answers(args: argparse.Namespace, result: Result, geolevel: str, places: dict[str, Index]) -> pl.DataFrame:
    from blue_solvers.results.tidy import at_geounits, counts_frame, geounits_frame, tables_frame

    names = args.count or [TOTAL]
    counts = {name: parse_count(name) for name in names}
    tables = _tables(args.table or [], result, geolevel)
    rows = len(places) * (sum(tables.values()) if tables else len(counts))
    if args.out is None and rows > MOST_SHOWN:
        raise ValueError(f"{rows:,} answers are too many to show: give --out FILE, .csv or .parquet")
    require_memory(rows * BYTES_A_ROW, f"{rows:,} answers", "ask for fewer tables or a geolevel above")
    progress(f"computing the variances of {plural(rows, 'answer')}")
    with LevelBar("answering", alike=True) as bar:
        if not tables:
            frame = counts_frame(result, places, counts, args.level, bar)
        elif args.all:
            return geounits_frame(result, geolevel, list(tables), args.level, bar)
        else:
            frame = tables_frame(result, places, list(tables), args.level, bar)
    if args.all:
        return at_geounits(frame, geolevel)
    return frame if args.places else frame.drop("place")


def _tables(names: Sequence[str], result: Result, geolevel: str) -> dict[str, int]:
    """The tables that are asked for, and how many cells they have."""
    from constraint_builders.description.table import parse_table

    if list(names) == [ALL]:
        return {table.name: table.size for table in result.tables(geolevel)}
    return {name: parse_table(result.schema, name).size for name in names}


def _title(args: argparse.Namespace, geolevel: str, places: dict[str, Index]) -> str:
    if args.all:
        return f"{plural(len(places), 'geounit')} of level {geolevel}"
    if args.places:
        return f"{plural(len(places), 'place')} of geounits of level {geolevel}"
    return f"{plural(places[TOGETHER].size, 'geounit')} of level {geolevel} together"


def _show(frame: pl.DataFrame, title: str, known: str, level: float) -> None:
    """Print answers in columns, without what is the same in all of them, under what is known of them."""
    shown = frame.drop("geolevel", strict=False)
    keys = shown.columns[:-4]
    header = (*keys, "estimate", "std error", *bounds_header(level))
    rows = [(*row[: len(keys)], *(f"{value:,.2f}" for value in row[len(keys) :])) for row in shown.iter_rows()]
    say(title, known)
    print_columns(header, rows, left=len(keys))


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
            raise ValueError(f"{error}: its codes are such as {min(own)!r}") from None
        raise ValueError(f"{error}: {other!r} is a {levels[other]}, give --geolevel {levels[other]}") from None


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
    codes = [line.strip() for line in read_text(path).splitlines() if line.strip()]
    if not codes:
        raise ValueError("there is no geocode: give one on every line")
    return codes

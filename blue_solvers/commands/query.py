"""``blue-solvers query``: counts over any geounits, with intervals, from a stored result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from blue_solvers.commands.common import (
    SubParsers,
    coverage,
    new_parser,
    plural,
    print_columns,
)
from blue_solvers.commands.kinds import RESULT, what_is
from blue_solvers.commands.progress import progress
from blue_solvers.uncertainty import normal_intervals

if TYPE_CHECKING:
    from blue_solvers.results.questions import Result

TOTAL = "total"


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "query",
        "answer a question about any geounits, with an interval, from what estimate stored",
        "blue-solvers query result --count total --count votingage=adult --geounits 440070001011000 440070001011001",
    )
    parser.add_argument("result", metavar="RESULT", help="folder that estimate made from measurement files")
    parser.add_argument(
        "--count",
        metavar="COUNT",
        action="append",
        help="what to count, may be repeated: total, or levels of variables or recodes, as in "
        "'votingage=adult,hispanic=hispanic' or 'cenrace=black|asian'; default: total",
    )
    units = parser.add_mutually_exclusive_group(required=True)
    units.add_argument("--geounits", metavar="CODE", nargs="+", help="geocodes, or 15-digit GEOIDs of blocks")
    units.add_argument("--geounits-file", metavar="FILE", help="a file with a geocode on every line")
    parser.add_argument("--geolevel", metavar="LEVEL", help="of the geounits; default: the lowest")
    parser.add_argument("--level", type=coverage, default=0.95, help="coverage of the intervals; default: 0.95")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Estimate the counts over all the geounits together."""
    from blue_solvers.results.questions import Result
    from constraint_builders.files.naming import naming

    if Path(args.result).exists() and not (Path(args.result) / RESULT).exists():
        raise ValueError(f"{args.result} {what_is(args.result)}")
    result = Result(args.result)
    geolevel = args.geolevel or result.spine.levels[-1]
    names = args.count or [TOTAL]
    counts = [parse_count(name) for name in names]
    with naming(args.geounits_file or args.result):
        geounits = _geounits(result, geolevel, args.geounits or _lines(args.geounits_file))
    progress(f"computing the variance of {plural(len(counts), 'count')}")
    answer = result.ask(geolevel, geounits, counts)
    lower, upper = normal_intervals(answer.estimate, answer.std_errors, args.level)
    print(f"{plural(geounits.size, 'geounit')} of level {geolevel} together\n")
    columns = (answer.estimate, answer.std_errors, lower, upper)
    rows = [(name, *(f"{value:,.2f}" for value in row)) for name, *row in zip(names, *columns, strict=True)]
    print_columns(("count", "estimate", "std error", f"{args.level:.0%} from", "to"), rows)


def _geounits(result: Result, geolevel: str, codes: Sequence[str]) -> NDArray[np.intp]:
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
    codes = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    if not codes:
        raise ValueError("there is no geocode: give one on every line")
    return codes

"""``blue-solvers tables``: which published tables a stored result can answer, and why not the others."""

from __future__ import annotations

import argparse

from blue_solvers.commands.common import print_columns
from blue_solvers.commands.published_places import open_result, print_proof
from blue_solvers.commands.screen import say
from constraint_builders.printable import counted


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

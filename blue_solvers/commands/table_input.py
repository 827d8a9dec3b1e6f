"""Noisy tables from a file, long or wide: the arguments that say what it does not, and the schema that was inferred."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from blue_solvers.commands.arguments import flags_of
from blue_solvers.commands.common import desired_of
from blue_solvers.commands.kinds import require_file
from blue_solvers.commands.progress import progress
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    from constraint_builders import Problem
    from constraint_builders.arrays import Float
    from constraint_builders.files.survey_frame import Said
    from noise_mechanisms.laws import Law

OF_TABLES = (*flags_of("said"), "--write-schema")


def _law(args: argparse.Namespace) -> Law | None:
    """The noise of values, how they were rounded or perturbed; None where nothing is said of that."""
    from noise_mechanisms.laws import CellKey, Gaussian, RandomRounding, Rounding

    if args.cell_key is not None:
        return CellKey.read(args.cell_key)
    if args.variance is not None:
        return Gaussian(args.variance)
    if args.rounded is None:
        return None
    nearest, base = args.rounded
    return Rounding(base) if nearest else RandomRounding(base)


def read_input(args: argparse.Namespace) -> tuple[Problem, Float]:
    """Read the problem that the options of an input describe, and show the schema if it had to be inferred."""
    from constraint_builders.files import format_schema, read_schema_file
    from constraint_builders.files.survey_frame import tables_as_said

    desired = desired_of(args)
    undetermined: Literal["error", "nan"] = args.undetermined or "nan"
    require_file(args.input, "a table")
    said = said_of(args)
    path: str | None = args.schema
    if path is not None and args.write_schema:
        raise ValueError("--write-schema writes the schema that was inferred: leave it out where --schema is given")
    progress(f"reading {args.input}")
    with reading():
        file = None if path is None else read_schema_file(path)
        table = tables_as_said(args.input, file, said, desired=desired, undetermined=undetermined)
    if path is None:
        wrong = "" if args.acs else "; where it is wrong, correct it in a file and pass that as --schema"
        say(f"Schema inferred from {args.input}{wrong}:", "")
        say(*textwrap.indent(format_schema(table.problem.domain.schema), "    ").split("\n"))
    for own in table.ignored:
        say(f"ignored    {own}")
    for name in table.combined:
        say(f"combined   table {name!r} of several sources")
    understood = table.problem.understood
    if understood.totals:
        say(f"totals     {', '.join(understood.totals)}")
    for name, rows in table.silent.items():
        for label, row in rows.items():
            say(f"empty      {label!r} in column {name!r}, row {row}, was taken for a level that was not measured")
    if understood.places:
        say(f"{'spine' if table.problem.areas is None else 'areas':<10} {understood.places}")
    for doubt in table.doubts:
        say(f"doubt      {doubt}")
    return table.problem, table.y


def read_table(
    path: str, schema: str | None, args: argparse.Namespace, marks: Mapping[str, list[Any] | None]
) -> tuple[Problem, Float]:
    """Read one of several tables, of which nothing is said but a schema and `marks`; what it measured is estimated.

    Of all of them `args` say how they were rounded, and the areas.
    """
    own = argparse.Namespace(input=path, schema=schema, desired=None, undetermined="nan", write_schema=None, acs=None)
    own.sheet = own.skip_rows = None
    for option in ("sdmx", "sum", "plus_minus", "rounded", "cell_key", "variance", "areas"):
        setattr(own, option, getattr(args, option))
    for option in ("columns", "names_to", "names_sep", "cells", "suppressed", "exact", "total"):
        setattr(own, option, marks.get(option))
    return read_input(own)


def said_of(args: argparse.Namespace) -> Said | None:
    """What the arguments say of the table; None where they say nothing."""
    from constraint_builders.files.survey_frame import Said

    given = {
        "columns": None if args.columns is None else once(args.columns, "--columns"),
        "names_to": args.names_to[0] if args.names_to and len(args.names_to) == 1 else args.names_to,
        "names_sep": args.names_sep,
        "cells": args.cells,
        "suppressed": args.suppressed,
        "exact": args.exact,
        "total": args.total,
        "areas": args.areas,
        "law": _law(args),
        "style": _style(args),
        "sums": args.sum,
        "plus_minus": args.plus_minus,
        "sheet": args.sheet,
        "skip_rows": args.skip_rows,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if args.names_sep is not None and args.names_to is None:
        raise ValueError("--names-sep stands between levels in the names of cells: give --names-to too")
    return Said(**given) if given else None


def _style(args: argparse.Namespace) -> Literal["acs", "sdmx"] | None:
    if args.acs and args.sdmx:
        raise ValueError("--acs and --sdmx are two styles: a table has one")
    return "acs" if args.acs else "sdmx" if args.sdmx else None


def once(pairs: list[tuple[str, str]], option: str) -> dict[str, str]:
    """What an option that may be repeated says of each name; `ValueError` where it says two things of one."""
    said = dict(pairs)
    if len(said) < len(pairs):
        twice = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        raise ValueError(f"{option} says twice what {twice!r} is")
    return said


def write_schema(args: argparse.Namespace, problem: Problem) -> None:
    """Write the schema that was inferred, if that was asked for."""
    from constraint_builders.files import write_schema_file

    if args.write_schema:
        write_schema_file(args.write_schema, problem.domain.schema)
        say(f"written    {args.write_schema}, to be corrected and given as --schema")

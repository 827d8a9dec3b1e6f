"""Noisy tables from a file, long or wide: the arguments that say what it does not, and the schema that was inferred."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Literal

from blue_solvers.commands.common import refuse_overwriting
from blue_solvers.commands.kinds import require_file
from blue_solvers.commands.progress import progress
from blue_solvers.commands.quiet import reading
from constraint_builders import Problem
from constraint_builders.arrays import Float

if TYPE_CHECKING:
    from constraint_builders.files.survey_frame import Said

OF_TABLES = ("--columns", "--names-to", "--names-sep", "--cells", "--suppressed", "--exact", "--write-schema")


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare INPUT, what is said of it, ``--schema`` and ``--desired``."""
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="noisy tables in CSV, Parquet, Arrow or Excel: a row for each cell, with columns table, one for "
        "each variable (a level, * where summed out, a recode's group), value and variance (0 exact, inf not "
        "measured), or std_error, moe_90, cv_percent; without a column table the labels say what a row counts; wide "
        "tables with --names-to; for estimate also a folder of noisy measurement files",
    )
    parser.add_argument("--schema", metavar="FILE", help="variables and recodes, .toml; by default inferred and shown")
    parser.add_argument(
        "--write-schema",
        metavar="FILE",
        help="write the schema that was inferred, .toml, to correct it and give as --schema",
    )
    parser.add_argument(
        "--desired",
        metavar="TABLE",
        action="append",
        help="a table to estimate, may be repeated, or 'all'; by default those of the schema file, else those of INPUT",
    )
    parser.add_argument(
        "--undetermined",
        choices=["nan", "error"],
        help="of a table, what becomes of cells that nothing measured determines: NaN with a note that says why "
        "(the default), or an error",
    )
    said = parser.add_argument_group("what a table does not say itself")
    said.add_argument(
        "--columns",
        metavar="NAME=ROLE",
        action="append",
        type=_pair,
        help="what a column is: moe=moe_90, FIPS=geocode, remark=note; may be repeated",
    )
    said.add_argument(
        "--names-to",
        metavar="VARIABLE",
        action="append",
        help="of a wide table, one column a cell: the variable of which cells' names are levels; repeated for several",
    )
    said.add_argument("--names-sep", metavar="TEXT", help="between the levels of several in a cell's name; default: _")
    said.add_argument(
        "--cells",
        metavar="COLUMN",
        action="append",
        help="a column that is a cell, where none says its precision beside it",
    )
    said.add_argument(
        "--suppressed", metavar="MARK", action="append", help="what stands for a value that was not published: (D)"
    )
    said.add_argument(
        "--exact", metavar="MARK", action="append", help="what stands for the precision of a value without error: *****"
    )


def _pair(text: str) -> tuple[str, str]:
    name, _, role = text.rpartition("=")
    if not (name and role):
        raise argparse.ArgumentTypeError(f"must be the name of a column and what it is, moe=moe_90: got {text}")
    return name, role


def read_input(args: argparse.Namespace) -> tuple[Problem, Float]:
    """Read the problem that `add_input_arguments` describes, and show the schema if it had to be inferred."""
    from constraint_builders.files import format_schema, read_schema_file
    from constraint_builders.files.measured_table import measured
    from constraint_builders.files.source import open_source
    from constraint_builders.files.survey_frame import measured_as_said, names_its_tables

    desired = "all" if args.desired == ["all"] else args.desired
    undetermined: Literal["error", "nan"] = args.undetermined or "nan"
    require_file(args.input, "a table")
    said = _said(args)
    path: str | None = args.schema
    if path is not None and args.write_schema:
        raise ValueError("--write-schema writes the schema that was inferred: leave it out where --schema is given")
    progress(f"reading {args.input}")
    with reading():
        file = None if path is None else read_schema_file(path)
        schema, noise = (None, "gaussian") if file is None else (file.schema, file.noise)
        wanted = desired if file is None else desired or file.desired
        source = open_source(args.input)
        if said is None and names_its_tables(source):
            table = measured(source, schema, desired=wanted, noise=noise, undetermined=undetermined)
        else:
            table = measured_as_said(
                source, schema, said or _nothing_said(), desired=wanted, noise=noise, undetermined=undetermined
            )
    if path is None:
        print(
            f"Schema inferred from {args.input}; where it is wrong, correct it in a file and pass that as --schema:\n"
        )
        print(textwrap.indent(format_schema(table.problem.domain.schema), "    "))
    for column in table.ignored:
        print(f"ignored    column {column!r}, of notes")
    for name in table.combined:
        print(f"combined   table {name!r} of several sources")
    return table.problem, table.y


def read_table(path: str, schema: str | None) -> tuple[Problem, Float]:
    """Read one of several tables, of which nothing is said but a schema; what it measured is to be estimated."""
    own = argparse.Namespace(input=path, schema=schema, desired=None, undetermined="nan", write_schema=None)
    for option in ("columns", "names_to", "names_sep", "cells", "suppressed", "exact"):
        setattr(own, option, None)
    return read_input(own)


def _said(args: argparse.Namespace) -> Said | None:
    """What the arguments say of the table; None where they say nothing."""
    from constraint_builders.files.survey_frame import Said

    given = {
        "columns": None if args.columns is None else _once(args.columns),
        "names_to": args.names_to[0] if args.names_to and len(args.names_to) == 1 else args.names_to,
        "names_sep": args.names_sep,
        "cells": args.cells,
        "suppressed": args.suppressed,
        "exact": args.exact,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if args.names_sep is not None and args.names_to is None:
        raise ValueError("--names-sep stands between levels in the names of cells: give --names-to too")
    return Said(**given) if given else None


def _nothing_said() -> Said:
    from constraint_builders.files.survey_frame import Said

    return Said()


def _once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    said = dict(pairs)
    if len(said) < len(pairs):
        twice = next(name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1)
        raise ValueError(f"--columns says twice what {twice!r} is")
    return said


def require_schema_writable(args: argparse.Namespace) -> None:
    """Refuse, before any work, a schema that could not be written after it."""
    from constraint_builders.files.replacing import require_writable

    if args.write_schema:
        require_writable(args.write_schema)
        refuse_overwriting(args.write_schema, (args.input, args.schema), "--write-schema")


def write_schema(args: argparse.Namespace, problem: Problem) -> None:
    """Write the schema that was inferred, if that was asked for."""
    from constraint_builders.files import write_schema_file

    if args.write_schema:
        write_schema_file(args.write_schema, problem.domain.schema)
        print(f"written    {args.write_schema}, to be corrected and given as --schema")

"""Noisy tables from a file, long or wide: the arguments that say what it does not, and the schema that was inferred."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from blue_solvers.commands.common import desired_of, whole_from
from blue_solvers.commands.kinds import require_file
from blue_solvers.commands.progress import progress
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.read_and_written import ReadPath, WrittenPath
from blue_solvers.commands.screen import say

if TYPE_CHECKING:
    from constraint_builders import Problem
    from constraint_builders.arrays import Float
    from constraint_builders.files.survey_frame import Said
    from noise_mechanisms.laws import Law

OF_TABLES = (
    "--columns", "--names-to", "--names-sep", "--cells", "--suppressed", "--exact", "--total",
    "--areas", "--acs", "--sdmx", "--sum", "--plus-minus", "--sheet", "--skip-rows",
    "--rounded", "--cell-key", "--variance", "--write-schema",
)  # fmt: skip


def add_input_arguments(parser: argparse.ArgumentParser, several: bool = False, first: str = "") -> None:
    """Declare INPUT, or `several` of it, of which help begins with what is `first`, and what is said of it."""
    parser.add_argument(
        "inputs" if several else "input",
        nargs="+" if several else None,
        metavar="INPUT",
        type=ReadPath,
        help=f"{first}noisy tables in CSV, TSV, Parquet, Arrow or Excel: a row for each cell, with columns table, one "
        "for each variable (a level, * where summed out, a recode's group), value and variance (0 exact, inf not "
        "measured), or std_error, moe_90, cv_percent; without a column table the labels say what a row counts; wide "
        "tables with --names-to; for estimate and report also a folder of noisy measurement files, or two or more "
        "inputs of one kind over the same lowest places, matched by GEOID or by name, of which one's schema refines "
        "all others'",
    )
    parser.add_argument(
        "--schema",
        metavar="FILE",
        action="append" if several else "store",
        type=ReadPath,
        help="variables and recodes, .toml; by default inferred and shown"
        + ("; of several tables given for each in turn, or for none" if several else ""),
    )
    parser.add_argument(
        "--write-schema",
        metavar="FILE",
        type=WrittenPath,
        help="write the schema that was inferred, .toml, to correct it and give as --schema",
    )
    parser.add_argument(
        "--desired",
        metavar="TABLE",
        action="append",
        help="a table to estimate, may be repeated, or 'all'; by default those of the schema file, else those of "
        "INPUT, of folders by the input at whose geolevels they are stored",
    )
    parser.add_argument(
        "--undetermined",
        choices=["nan", "error"],
        help="of a table, what becomes of cells that nothing measured determines: NaN with a note that says why "
        "(the default), or an error",
    )
    add_said_arguments(parser)


def add_said_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is said of a table that it does not say itself."""
    said = parser.add_argument_group("what a table does not say itself")
    said.add_argument(
        "--columns",
        metavar="NAME=ROLE",
        action="append",
        type=_pair,
        help="what a column is: moe=moe_90, FIPS=geocode, remark=note; may be repeated; of several inputs with the "
        "name of the input, first:moe=moe_90",
    )
    said.add_argument(
        "--acs",
        action="store_true",
        default=None,
        help="a table of the American Community Survey as data.census.gov gives it: columns, places, margins and marks "
        "are known; --names-to names its variables",
    )
    said.add_argument(
        "--sdmx",
        action="store_true",
        default=None,
        help="a table of SDMX-CSV, or Eurostat's TSV: dimensions, totals and flags are known; --rounded and the like "
        "say how precise values are",
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
        help="a column that is a cell, where none says its precision beside it; by default, of rounded tables and "
        "others whose precision is said below, every column of numbers",
    )
    said.add_argument(
        "--suppressed",
        metavar="MARK",
        action="append",
        help="what stands for a value that was not published: (D), or '' for nothing at all; of several inputs "
        "with the name of the input, first:(D)",
    )
    said.add_argument(
        "--exact", metavar="MARK", action="append", help="what stands for the precision of a value without error: *****"
    )
    said.add_argument(
        "--total",
        metavar="MARK",
        action="append",
        help="a label that counts everybody, may be repeated: in its column no others do, '*' that in none any other "
        "does; by default total and the like in many languages, and what may be one is asked about; of several inputs "
        "with the name of the input, first:T",
    )
    said.add_argument(
        "--areas",
        metavar="FILE",
        type=ReadPath,
        help="areas that may cross: a row for each leaf, a column for each partition, - where it lies in none; rows of "
        "the tables have columns level and code, or one for each partition, * where it is summed out. A level is the "
        "column of its name, or whose name it begins, or that has its codes; --columns NAME=LEVEL says which",
    )
    said.add_argument(
        "--sum",
        metavar="VARIABLE=RECODE",
        action="append",
        type=_pair,
        help="that longer periods in a column are sums of shorter ones: quarter=year where rows have 2020-Q1, 2020K1, "
        "2020-01 or the like, and 2020",
    )
    said.add_argument(
        "--plus-minus",
        metavar="ROLE",
        help="what stands behind ± where values are written 100 ± 2: std_error, moe_90",
    )
    said.add_argument(
        "--sheet",
        metavar="NAME",
        action="append",
        help="of a workbook, the sheet that holds the table; repeated for several, which are read as one table",
    )
    said.add_argument(
        "--skip-rows",
        metavar="N",
        type=whole_from(1),
        help="how many rows stand above the header; default: those that are plainly titles",
    )
    law = said.add_mutually_exclusive_group()
    law.add_argument(
        "--rounded",
        metavar="BASE",
        type=_rounded,
        help="values were each rounded randomly to multiples of 3, or of another base; nearest:5 for conventional "
        "rounding. No column need say how precise they are",
    )
    law.add_argument(
        "--cell-key",
        metavar="FILE",
        type=ReadPath,
        help="values were each perturbed by their cell keys: the perturbation table, with columns i, v and p, or pcv, "
        "ckey and pvalue. No column need say how precise they are",
    )
    law.add_argument(
        "--variance",
        metavar="VARIANCE",
        type=_variance,
        help="of the noise in every value, where no column says it, in squared counts",
    )


def _rounded(text: str) -> tuple[bool, int]:
    kind, colon, base = text.rpartition(":")
    whole = base.strip()
    if (colon and kind.strip() != "nearest") or not whole.isdecimal() or len(whole) > 20 or int(whole) < 2:
        raise argparse.ArgumentTypeError(f"must be a base, 3, or nearest:5 for conventional rounding: got {text}")
    return bool(colon), int(base)


def _variance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0: got {text}")
    return value


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


def _pair(text: str) -> tuple[str, str]:
    name, _, role = text.rpartition("=")
    if not (name and role):
        raise argparse.ArgumentTypeError(f"must be the name of a column and what it is, moe=moe_90: got {text}")
    return name, role


def read_input(args: argparse.Namespace) -> tuple[Problem, Float]:
    """Read the problem that `add_input_arguments` describes, and show the schema if it had to be inferred."""
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
    if table.totals:
        say(f"totals     {', '.join(table.totals)}")
    for name, rows in table.silent.items():
        for label, row in rows.items():
            say(f"empty      {label!r} in column {name!r}, row {row}, was taken for a level that was not measured")
    if table.spine:
        say(f"{'spine' if table.problem.areas is None else 'areas':<10} {table.spine}")
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

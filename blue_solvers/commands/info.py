"""``blue-solvers info``: what a file of noisy tables asks for, before any work is done."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from blue_solvers import Auto
from blue_solvers.commands.common import (
    SubParsers,
    new_parser,
    plural,
    print_columns,
    report_undetermined,
)
from blue_solvers.commands.fit_line import proof_lines
from blue_solvers.commands.kinds import RESULT
from blue_solvers.commands.progress import progress
from blue_solvers.commands.table_input import add_input_arguments, read_input, require_schema_writable, write_schema
from blue_solvers.contract import plain_problem
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.description.layout import Layout

ASSUMPTIONS = {  # what it means that one holds, and that it fails
    "A1": ("the covariance of the noise is known", "some cells were not measured, their variance is infinite"),
    "A2": ("noise is uncorrelated", "noise is correlated"),
    "A3": ("variances are equal within each table", "variances differ within a table"),
}


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "info",
        "describe noisy tables: sizes, rank, which assumptions hold, which solver auto would take and why",
        "blue-solvers info noisy.csv --schema schema.toml",
    )
    add_input_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read the problem and print it."""
    if (Path(args.input) / RESULT).exists():
        print_result(args.input)
    else:
        require_schema_writable(args)
        problem, _ = read_input(args)
        print_problem(problem)
        write_schema(args, problem)


def print_result(path: str) -> None:
    """Print what a stored result holds and what is proved of it, once all files are compared with what was written."""
    from blue_solvers.results.questions import Result

    result = Result(path)
    progress(f"comparing {plural(len(result.description['files']), 'file')} with their checksums")
    result.require_intact()
    rows = [
        (level, f"{result.spine.members[i].size:,}", ", ".join(table.name for table in result.tables(level)))
        for i, level in enumerate(result.spine.levels)
    ]
    print_columns(("geolevel", "geounits", "tables"), rows)
    print(f"\nschema     {result.schema}")
    print(f"solver     {result.description['solver']}: {result.description['reason']}")
    print("\n".join(proof_lines(result.proof, result.fit_schema)))


def print_problem(problem: Problem) -> None:
    """Print a problem's tables, sizes, rank, assumptions, and the solver that auto would take."""
    variances = problem.observed.tables(problem.variances)
    rows = [
        (str(name), _shape(problem.observed, name), f"{cells.size:,}", _describe_variances(cells.ravel()))
        for name, cells in variances.items()
    ]
    print_columns(("observed table", "shape", "cells", "variance"), rows)
    print()
    print(f"schema       {problem.schema}")
    print(f"observed     {_summary(problem.observed)}")
    print(f"desired      {_summary(problem.desired)}")
    print(f"constraints  {problem.rank:,} independent")
    if problem.places is not None:
        print(f"geography    {problem.places}")
    for name, (holds, fails) in ASSUMPTIONS.items():
        print(f"{name}           {f'holds: {holds}' if getattr(problem.assumptions, name) else f'FAILS: {fails}'}")
    report_undetermined(problem)
    solver, reason = Auto().choose(plain_problem(problem))
    print(f"solver       auto would take {solver.name}: {reason}")


def _summary(layout: Layout) -> str:
    return f"{plural(layout.size, 'cell')} of {plural(len(layout.names), 'table')}"


def _shape(layout: Layout, name: object) -> str:
    return " x ".join(map(str, layout.shape(name))) or "1"


def _describe_variances(variances: Float) -> str:
    finite = variances[np.isfinite(variances)]
    unmeasured = variances.size - finite.size
    parts = []
    if finite.size:
        low, high = finite.min(), finite.max()
        parts.append("exact" if high == 0 else f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}")
    if unmeasured:
        parts.append(f"{unmeasured:,} not measured" if finite.size else "not measured")
    return ", ".join(parts)

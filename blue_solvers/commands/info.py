"""``blue-solvers info``: what a file of noisy tables asks for, before any work is done."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.commands.arguments import RESULT, flags_of, require_outputs
from blue_solvers.commands.common import print_columns, refuse_options, report_undetermined
from blue_solvers.commands.screen import progress, refuse_doubt, say
from blue_solvers.commands.table_input import OF_TABLES, read_input, write_schema
from constraint_builders.printable import counted

if TYPE_CHECKING:
    from constraint_builders import Problem
    from constraint_builders.arrays import Float
    from constraint_builders.description.layout import Layout

ASSUMPTIONS = {  # what it means that one holds, and that it fails
    "A1": ("the covariance of the noise is known", "some cells were not measured, their variance is infinite"),
    "A2": ("noise is uncorrelated", "noise is correlated"),
    "A3": ("variances are equal within each table", "variances differ within a table"),
}


def run(args: argparse.Namespace) -> None:
    """Read the problem and print it."""
    if (Path(args.input) / RESULT).exists():
        options = ("--schema", *flags_of("tables"), *OF_TABLES)
        refuse_options(args, options, f"is for tables: {args.input} is a stored result, which says itself")
        doubt = print_result(args.input)
    else:
        require_outputs(args)
        problem, _ = read_input(args)
        doubt = print_problem(problem)
        write_schema(args, problem)
    refuse_doubt(args, doubt)


def print_result(path: str) -> str:
    """Print what a stored result holds and what is proved of it, once all files are compared with what was written.

    Gives what is doubtful about it.
    """
    from blue_solvers.commands.fit_line import proof_lines
    from blue_solvers.results.questions import Result

    result = Result(path)
    progress(f"comparing {counted(len(result.description.files), 'file')} with their checksums")
    result.require_intact()
    rows = [
        (level, f"{result.spine.members[i].size:,}", ", ".join(table.name for table in result.tables(level)))
        for i, level in enumerate(result.spine.levels)
    ]
    print_columns(("geolevel", "geounits", "tables"), rows)
    say("", f"schema     {result.schema}")
    say(f"tied by    {result.tied}")
    say(f"solver     {result.description.solver}: {result.description.reason}")
    say(*proof_lines(result.proof, result.fit_schema), *map(str, result.description.remarks))
    return result.doubt


def print_problem(problem: Problem) -> str:
    """Print a problem's tables, sizes, rank, assumptions, and the solver that auto would take; gives a doubt."""
    from blue_solvers import Auto
    from blue_solvers.contract import plain_problem
    from blue_solvers.goodness import LOOSE
    from constraint_builders.tied_together import tied_together

    variances = problem.observed.tables(problem.variances)
    rows = [
        (str(name), _shape(problem.observed, name), f"{cells.size:,}", _describe_variances(cells.ravel()))
        for name, cells in variances.items()
    ]
    print_columns(("observed table", "shape", "cells", "variance"), rows)
    say()
    say(f"schema       {problem.schema}")
    say(f"observed     {_summary(problem.observed)}")
    say(f"desired      {_summary(problem.desired)}")
    say(f"constraints  {problem.rank:,} independent")
    tied = tied_together(problem)
    say(f"tied by      {tied}")
    if problem.places is not None:
        say(f"geography    {problem.places}")
    for name, (holds, fails) in ASSUMPTIONS.items():
        say(f"{name}           {f'holds: {holds}' if getattr(problem.assumptions, name) else f'FAILS: {fails}'}")
    report_undetermined(problem)
    solver, reason = Auto().choose(plain_problem(problem))
    say(f"solver       auto would take {solver.name}: {reason}")
    return "; ".join([*([LOOSE] if tied.is_loose else []), *problem.understood.notes])


def _summary(layout: Layout) -> str:
    return f"{counted(layout.size, 'cell')} of {counted(len(layout.names), 'table')}"


def _shape(layout: Layout, name: object) -> str:
    return " x ".join(map(str, layout.shape(name))) or "1"


def _describe_variances(variances: Float) -> str:
    """What variances, (n,), are, in a few words."""
    import numpy as np

    finite = variances[np.isfinite(variances)]
    unmeasured = variances.size - finite.size
    parts = []
    if finite.size:
        low, high = finite.min(), finite.max()
        parts.append("exact" if high == 0 else f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}")
    if unmeasured:
        parts.append(f"{unmeasured:,} not measured" if finite.size else "not measured")
    return ", ".join(parts)

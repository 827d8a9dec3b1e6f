"""``blue-solvers estimate`` on files of tables, long or wide."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from blue_solvers import blue
from blue_solvers.commands.arguments import require_outputs
from blue_solvers.commands.common import LEVEL, announce, desired_of, picture, report, write_rounded
from blue_solvers.commands.fit_line import FitReport, fit_report
from blue_solvers.commands.screen import progress, refuse_doubt, say
from blue_solvers.commands.table_input import (
    for_each,
    marks_of,
    names_of,
    once,
    parts_of,
    print_copied,
    print_matches,
    read_input,
    read_table,
    write_schema,
)
from blue_solvers.goodness import NOT_TESTED
from constraint_builders import Problem
from constraint_builders.arrays import Float
from constraint_builders.printable import counted

if TYPE_CHECKING:
    import polars as pl

    from blue_solvers import Estimate
    from blue_solvers.nonnegative import Movement
    from constraint_builders.joint_problem import LeavesByGroup


class ReadTables(NamedTuple):
    """What is estimated: a problem of one file or of several, and the parts of these as they were read."""

    problem: Problem
    y: Float
    read: dict[str, tuple[Problem, Float]]
    apart: LeavesByGroup | None = None


def run_on_tables(args: argparse.Namespace) -> None:
    """Estimate, write, and say what was found."""
    require_outputs(args)
    tables = read_tables_of(args)
    problem = tables.problem
    announce(problem, args.solver)
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    if args.plot is not None and not P.info.exact:
        raise ValueError(
            f"--plot draws residuals of the best estimate, which --solver {args.solver} does not give of this input: "
            "choose another solver, such as auto"
        )
    progress(f"estimating {counted(problem.desired.size, 'cell')}")
    est = P.estimate(tables.y, certify=True)
    progress("computing exact variances")
    frame = _frame(est, LEVEL if args.level is None else args.level, tables.apart)
    fit = FitReport("", NOT_TESTED)
    if args.fit:
        progress("testing the fit")
        fit = fit_report(est)
    moved: list[Movement] = []
    if args.nonnegative:
        frame, moved = _nonnegative(args.nonnegative, est, frame)
    frame = est.with_measurements(frame)
    with ExitStack() as written:
        if args.plot is not None:
            written.enter_context(picture(est.goodness_of_fit(draws=0), args.plot))
        write_rounded(frame, args.out, args.digits)
    report(est, args.out, est.tied)
    write_schema(args, problem)
    if fit.line:
        say(f"fit        {fit.line}")
    for movement in moved:
        say(f"moved      {movement}")
    copied = print_copied(tables.read)
    notes = [note for own, _ in tables.read.values() for note in own.understood.notes]
    refuse_doubt(args, fit.doubt, *notes, *copied)


def read_tables_of(args: argparse.Namespace) -> ReadTables:
    """What the inputs say, which are files of tables."""
    return _read_one(args) if len(args.inputs) == 1 else _read_several(args)


def _read_one(args: argparse.Namespace) -> ReadTables:
    args.input, (args.schema,) = args.inputs[0], for_each(args.schema, args.inputs, "--schema")
    problem, y = read_input(args)
    return ReadTables(problem, y, {args.input: (problem, y)})


def _read_several(args: argparse.Namespace) -> ReadTables:
    """Files of tables that are estimated together, and how their schemas match."""
    from constraint_builders import joint
    from constraint_builders.files.sdmx_table import refuse_apart
    from constraint_builders.files.source import open_source
    from constraint_builders.joint_problem import joint_parts

    schemas = for_each(args.schema, args.inputs, "--schema")
    names = names_of(args, [Path(path).stem for path in args.inputs])
    said = zip(names, args.inputs, schemas, marks_of(args, names), strict=True)
    read = {name: read_table(path, schema, args, marks) for name, path, schema, marks in said}
    if args.sdmx:
        refuse_apart({name: open_source(path) for name, path in zip(names, args.inputs, strict=True)})
    problems, parts, apart = [problem for problem, _ in read.values()], parts_of(args, names), None
    same, desired = once(args.same or [], "--same"), desired_of(args)
    if parts.only and (args.nonnegative or args.plot):
        raise ValueError("--nonnegative and --plot are not of inputs that count some people alone: leave them out")
    print_matches(parts, {name: own.domain.schema for name, own in zip(names, problems, strict=True)}, same)
    if not parts.only:
        problem = joint(*problems, recodes=same, names=names, desired=desired, undetermined="nan")
    elif desired == "all":
        raise ValueError("--desired all is not told by name where inputs count some people alone: name the tables")
    else:
        problem, apart = joint_parts(problems, names, parts, recodes=same, desired=args.desired)
    y = np.concatenate([own for _, own in read.values()])
    problem.check_vector(y)
    return ReadTables(problem, y, read, apart)


def _frame(est: Estimate, level: float, apart: LeavesByGroup | None) -> pl.DataFrame:
    """The estimates, a row for each cell; in the terms of all inputs where some count some people alone."""
    from constraint_builders.files import estimates_frame
    from constraint_builders.files.long_table import with_groups

    frame = estimates_frame(est.problem, est.values, est.std_errors, *est.interval(level))
    return frame if apart is None else with_groups(frame, est.problem, apart)


def _nonnegative(method: str, est: Estimate, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Movement]]:
    """Non-negative counts beside the estimates, and how far they moved."""
    from blue_solvers.nonnegative import METHODS, movements
    from constraint_builders.files.long_table import with_nonnegative

    progress(f"fitting non-negative cells by {method}")
    counts = METHODS[method](est.problem, est.problem.noise.published(est.y))
    moved = [own for own in movements(counts, est.values) if np.isfinite(own.unbiased_value)]
    return with_nonnegative(frame, counts.desired), moved

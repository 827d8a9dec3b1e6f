"""``blue-solvers estimate`` on a folder of noisy measurement files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from blue_solvers import Estimate, blue
from blue_solvers.commands.common import announce, plural, report
from blue_solvers.commands.fit_line import proof_lines
from blue_solvers.commands.kinds import is_release, what_is
from blue_solvers.commands.progress import LevelBar, progress
from blue_solvers.commands.quiet import reading
from blue_solvers.commands.read_and_written import require_outputs
from blue_solvers.commands.screen import say
from blue_solvers.commands.strict import refuse_doubt
from blue_solvers.goodness import doubt_of
from blue_solvers.solvers import TwoPass
from constraint_builders import Schema
from constraint_builders.files.reading_report import doubtful

if TYPE_CHECKING:
    from blue_solvers.results.proof import StoredProof
    from constraint_builders.files import ExactTotal, ReadingReport, Release, Settings

Desired: TypeAlias = Sequence[str] | str | None

SETTINGS_FILE = "settings.toml"
NO_TOTALS = "none"


def run_on_folder(args: argparse.Namespace) -> None:
    """Estimate the tables at all geounits and store them for `query`."""
    given: str | None = args.schema
    if given is not None:
        raise ValueError(f"--schema is for long tables, {args.input} is a folder: its schema is in --settings")
    if not is_release(Path(args.input)):
        raise ValueError(f"{args.input} {what_is(args.input)}")
    desired = "all" if args.desired == ["all"] else args.desired
    if args.memory is None:
        _run_in_memory(args, desired)
    else:
        _run_streamed(args, desired)


def _run_in_memory(args: argparse.Namespace, desired: Desired) -> None:
    from blue_solvers.results.proof import StoredProof
    from blue_solvers.results.store import write_result
    from blue_solvers.verification import fit_of_geography
    from constraint_builders.files import read_noisy_measurements
    from constraint_builders.files.new_files import require_new

    require_outputs(args, require_new)
    settings = settings_of(args.input, args.settings)
    with reading(), LevelBar("reading") as bar:
        totals = _totals(args, settings)
        release = read_noisy_measurements(
            args.input,
            settings,
            desired=desired,
            within=args.within,
            totals=totals,
            variables=args.variables,
            progress=bar,
        )
    settings = release.settings
    problem = release.problem
    announce(problem, args.solver)
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    progress(f"estimating {plural(problem.desired.size, 'cell')}")
    release.y.flags.writeable = False  # or the estimate would keep a copy
    est = P.estimate(release.y, certify=True)
    fit = None
    if args.fit and est.observed is not None:
        progress("testing the fit")
        fit = fit_of_geography(est.problem, est.y, est.observed, P.over_observed.variances_by_table().of)
    proof = StoredProof(est.proof, fit)
    with LevelBar("writing") as bar:
        write_result(args.out, P, est.values, None, settings, bar, proof, release)
    print_stored(est, proof, settings.schema, args.out)
    report_rows(release)
    refuse_doubt(args, doubt_of(proof.fit, doubtful(release.read.remarks)))


def print_stored(est: Estimate, proof: StoredProof, schema: Schema, out: str) -> None:
    """Say what was estimated and stored, how, what is proved of it, and how measurements fit."""
    from blue_solvers.results.questions import Result

    report(replace(est, proof=None), out, Result(out).tied)
    say(*proof_lines(proof, schema))


def report_rows(release: Release) -> None:
    """Say what became of every row of a folder, and what bounds say."""
    zeros = [(level, table, int(cells.sum())) for (level, table), cells in release.zeros.items()]
    _report_rows(zeros, release.read)


def _run_streamed(args: argparse.Namespace, desired: Desired) -> None:
    from blue_solvers.results.questions import Result
    from blue_solvers.streaming import estimate_measurements

    if args.solver not in ("auto", TwoPass.name):
        raise ValueError(f"--memory streams the passes of {TwoPass.name!r}: leave --solver {args.solver} out")
    require_outputs(args, Path)  # what may be there, an earlier run's work, it knows itself
    settings = settings_of(args.input, args.settings)
    totals = _totals(args, settings)
    with LevelBar("estimating", alike=True) as bar:
        read = estimate_measurements(
            args.input,
            settings,
            args.out,
            memory=args.memory,
            desired=desired,
            within=args.within,
            totals=totals,
            variables=args.variables,
            progress=bar,
        )
    observed = f"{plural(read.cells, 'cell')} of {plural(read.tables, 'table')}"
    say(f"observed   {observed}, {read.exact:,} exact, {read.unmeasured:,} not measured")
    found = Result(args.out)
    proof = found.proof if args.fit else replace(found.proof, fit=None)
    say(f"tied by    {found.tied}")
    say(f"solver     {TwoPass.name}, {found.description['reason']}")
    say(f"written    {args.out}")
    say(*proof_lines(proof, found.schema))
    _report_rows(read.zeros, read.read)
    refuse_doubt(args, doubt_of(proof.fit, found.noticed))


def settings_of(folder: str, given: str | None) -> Settings:
    """The settings of a folder: those that are given, by name or path, or its own."""
    from constraint_builders.files import read_settings
    from constraint_builders.files.kept_variables import TIED, tied_settings
    from constraint_builders.files.settings import find_settings

    if given in TIED:
        return tied_settings(given)[0]
    if given is not None:
        return find_settings(given)
    own = Path(folder) / SETTINGS_FILE
    if not own.exists():
        raise ValueError(f"{folder} has no {SETTINGS_FILE}: give --settings, such as pl94_us_persons")
    return read_settings(own)


def _totals(args: argparse.Namespace, settings: Settings) -> list[ExactTotal]:
    """All totals that are known exactly; what is left out of those of states is said."""
    from constraint_builders.files import read_state_totals, read_totals

    totals = [] if args.totals is None else read_totals(args.totals)
    if args.state_totals in (None, NO_TOTALS):
        return totals
    states = read_state_totals(args.state_totals, args.input, settings, args.within)
    for reason in states.left_out:
        say(f"not used   {reason}")
    return [*totals, *states.totals]


def _report_rows(zeros: Iterable[tuple[str, str, int]], read: ReadingReport) -> None:
    """Say what became of every row, and what bounds say."""
    for kind in dict.fromkeys(own.kind for own in read.rows):
        rows = [own for own in read.rows if own.kind == kind]
        found, used, unused = (sum(getattr(own, name) for own in rows) for name in ("read", "used", "unused"))
        say(f"rows       {kind}: {found:,} read, {used:,} used, {unused:,} not used")
    if read.facilities:
        say(f"facilities {', '.join(f'{count:,} {kind}' for kind, count in read.facilities.items())}")
    for line in read.implied_lines():
        say(f"bounds     {line}")
    if read.summed_out:
        lost = (
            "nothing is lost"
            if read.is_lossless
            else "estimates are the best from sums, not from all that was measured"
        )
        say(f"summed     over {', '.join(read.summed_out)} when read: {lost}")
    for remark in read.remarks:
        say(str(remark))
    for geolevel, table, cells in zeros:
        say(f"empty      {plural(cells, 'structural zero')} of table {table!r} at {geolevel}")
    for geolevel, name, count, reason in read.unused:
        say(f"not used   {name} at {geolevel}, {plural(count, 'row')}: {reason}")

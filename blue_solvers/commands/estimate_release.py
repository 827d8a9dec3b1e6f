"""``blue-solvers estimate`` on folders of noisy measurement files: one, several together, or one streamed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blue_solvers import Estimate, blue
from blue_solvers.commands.arguments import is_release, require_outputs, what_is
from blue_solvers.commands.common import announce, desired_of, report
from blue_solvers.commands.fit_line import proof_lines
from blue_solvers.commands.screen import LevelBar, progress, reading, refuse_doubt, say
from blue_solvers.commands.table_input import (
    for_each,
    names_of,
    once,
    parts_of,
    print_copied,
    print_matches,
    require_input,
)
from blue_solvers.goodness import doubt_of
from blue_solvers.solvers import TwoPass
from constraint_builders import Problem, Schema
from constraint_builders.arrays import Float
from constraint_builders.files.reading_report import doubtful
from constraint_builders.printable import counted

if TYPE_CHECKING:
    from blue_solvers.results.proof import StoredProof
    from constraint_builders.files import ExactTotal, ReadingReport, Release, Settings
    from constraint_builders.geography.joined_releases import JoinedReleases

SETTINGS_FILE = "settings.toml"
NO_TOTALS = "none"
SHIPPED = {"hhgq": "hhgq8lev", "votingage": "votingage"}  # of redistricting persons, in the schema of DHC persons
MOST_LINES = 3  # of one kind, about what was read; of several products fewer, so that all is one screen
AGREES = "averaged"  # remarks of measurements that agree


def run_on_folders(args: argparse.Namespace) -> None:
    """Estimate the tables at all geounits and store them for `query`."""
    for path in args.inputs:
        if not is_release(Path(path)):
            raise ValueError(f"{path} {what_is(path)}")
    if len(args.inputs) > 1:
        return _run_on_several(args)
    args.input, (args.settings,) = args.inputs[0], for_each(args.settings, args.inputs, "--settings")
    return _run_in_memory(args) if args.memory is None else _run_streamed(args)


def _run_in_memory(args: argparse.Namespace) -> None:
    from blue_solvers.results.store import write_result
    from constraint_builders.files import read_noisy_measurements
    from constraint_builders.files.new_files import require_new

    require_outputs(args, require_new)
    settings = settings_of(args.input, args.settings)
    with reading(), LevelBar("reading") as bar:
        totals = _totals(args, settings)
        release = read_noisy_measurements(args.input, settings, totals=totals, progress=bar, **_asked(args))
    release.y.flags.writeable = False  # or the estimate would keep a copy
    est, proof = _estimated(args, release.problem, release.y)
    with LevelBar("writing") as bar:
        write_result(args.out, est.operator, est.values, None, release.settings, bar, proof, release)
    _print_stored(est, proof, release.settings.schema, args.out)
    _print_release(args, release)
    refuse_doubt(args, doubt_of(proof.fit, doubtful(release.read.remarks)))


def _run_on_several(args: argparse.Namespace) -> None:
    from blue_solvers.results.store import write_joint_result
    from constraint_builders.files.new_files import require_new

    require_outputs(args, require_new)
    joined = _read_several(args)
    print_matches(joined.parts, {name: own.settings.schema for name, own in joined.releases.items()}, joined.recodes)
    est, proof = _estimated(args, joined.problem, joined.y)
    with LevelBar("writing") as bar:
        write_joint_result(args.out, est.operator, est.values, est.std_errors, joined, bar, proof)
    _print_stored(est, proof, joined.problem.domain.schema, args.out)
    for name, release in joined.releases.items():
        say(f"product    {name}{', at whose geolevels tables are stored' if name == joined.stored else ''}")
        _print_release(args, release)
    copied = print_copied({name: (own.problem, own.y) for name, own in joined.releases.items()})
    noticed = doubtful([remark for own in joined.releases.values() for remark in own.read.remarks])
    refuse_doubt(args, doubt_of(proof.fit, noticed), *copied)


def _read_several(args: argparse.Namespace) -> JoinedReleases:
    from constraint_builders.geography.joined_releases import read_joined_releases

    named = for_each(args.settings, args.inputs, "--settings")
    names = names_of(args, [Path(path).resolve().name for path in args.inputs])
    settings = {name: settings_of(path, own) for name, path, own in zip(names, args.inputs, named, strict=True)}
    known = {factor for own in settings.values() for factor in own.schema.factor_names}
    shipped = {name: own for name, own in SHIPPED.items() if {"relgq", name, own} <= known}
    parts, same = parts_of(args, names), once(args.same or [], "--same")
    if args.at is not None:
        require_input("at", args.at, names)
    with reading(), LevelBar("reading") as bar:
        return read_joined_releases(
            dict(zip(names, args.inputs, strict=True)),
            settings,
            recodes={**shipped, **same},
            parts=parts,
            at=args.at,
            progress=bar,
            **_asked(args),
        )


def _estimated(args: argparse.Namespace, problem: Problem, y: Float) -> tuple[Estimate, StoredProof]:
    """The estimate of folders, of y (n,), what is proved of it, and how measurements fit, if that is asked."""
    from blue_solvers.results.proof import StoredProof
    from blue_solvers.verification import fit_of_geography
    from noise_mechanisms.laws.named_laws import tails_in

    announce(problem, args.solver)
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    progress(f"estimating {counted(problem.desired.size, 'cell')}")
    est = P.estimate(y, certify=True)
    fit = None
    if args.fit and est.observed is not None:
        progress("testing the fit")
        spread = P.over_observed.variances_by_table().of
        fit = fit_of_geography(est.problem, est.y, est.observed, spread, tails_in(est.problem))
    return est, StoredProof(est.proof, fit)


def _print_stored(est: Estimate, proof: StoredProof, schema: Schema, out: str) -> None:
    """Say what was estimated and stored, how, what is proved of it, and how measurements fit."""
    from blue_solvers.results.questions import Result

    report(replace(est, proof=None), out, Result(out).tied)
    say(*proof_lines(proof, schema))


def _print_release(args: argparse.Namespace, release: Release) -> None:
    """Say what became of every row of a folder, and what bounds say."""
    zeros = [(level, table, int(cells.sum())) for (level, table), cells in release.zeros.items()]
    _print_rows(args, zeros, release.read)


def _run_streamed(args: argparse.Namespace) -> None:
    from blue_solvers.results.questions import Result
    from blue_solvers.streaming import estimate_measurements

    if args.solver not in ("auto", TwoPass.name):
        raise ValueError(f"--memory streams the passes of {TwoPass.name!r}: leave --solver {args.solver} out")
    require_outputs(args, Path)  # what may be there, an earlier run's work, it knows itself
    settings = settings_of(args.input, args.settings)
    totals = _totals(args, settings)
    with LevelBar("estimating", alike=True) as bar:
        asked = {"memory": args.memory, "totals": totals, "progress": bar, **_asked(args)}
        read = estimate_measurements(args.input, settings, args.out, **asked)
    observed = f"{counted(read.cells, 'cell')} of {counted(read.tables, 'table')}"
    say(f"observed   {observed}, {read.exact:,} exact, {read.unmeasured:,} not measured")
    found = Result(args.out)
    proof = found.proof if args.fit else replace(found.proof, fit=None)
    say(f"tied by    {found.tied}")
    say(f"solver     {TwoPass.name}, {found.description.reason}")
    say(f"written    {args.out}")
    say(*proof_lines(proof, found.schema))
    _print_rows(args, read.zeros, read.read)
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


def _asked(args: argparse.Namespace) -> dict[str, Any]:
    """Which tables, places and variables of folders are read."""
    return {"desired": desired_of(args), "within": args.within, "variables": args.variables}


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


def _print_rows(args: argparse.Namespace, zeros: Sequence[tuple[str, str, int]], read: ReadingReport) -> None:
    """Say what became of every row, and what bounds say; what is long in few words, unless all is asked for."""
    kinds = list[str]()
    for kind in dict.fromkeys(own.kind for own in read.rows):
        rows = [own for own in read.rows if own.kind == kind]
        found, used, unused = (sum(getattr(own, name) for own in rows) for name in ("read", "used", "unused"))
        kinds.append(f"{kind}: {found:,} read, {used:,} used, {unused:,} not used")
    if kinds:
        say(f"rows       {'; '.join(kinds)}")
    if read.facilities and args.verbose:
        say(f"facilities {', '.join(f'{count:,} {kind}' for kind, count in read.facilities.items())}")
    for line in read.implied_lines() if args.verbose else ():
        say(f"bounds     {line}")
    if read.summed_out:
        lost = (
            "nothing is lost"
            if read.is_lossless
            else "estimates are the best from sums, not from all that was measured"
        )
        say(f"summed     over {', '.join(read.summed_out)} when read: {lost}")
    said = [remark for remark in read.remarks if args.verbose or remark.about != AGREES]
    for about in dict.fromkeys(remark.about for remark in said):
        remarks = [str(remark) for remark in said if remark.about == about]
        _say_some(args, remarks, f"{remarks[0]}; and {len(remarks) - 1:,} more such remarks")
    empty = [
        f"empty      {counted(cells, 'structural zero')} of table {table!r} at {geolevel}"
        for geolevel, table, cells in zeros
    ]
    total = sum(cells for _, _, cells in zeros)
    _say_some(args, empty, f"empty      {counted(total, 'structural zero')} of {counted(len(zeros), 'table')}")
    unused_rows = [
        f"not used   {name} at {geolevel}, {counted(count, 'row')}: {reason}"
        for geolevel, name, count, reason in read.unused
    ]
    names, rows_unused = {own.name for own in read.unused}, sum(own.rows for own in read.unused)
    _say_some(args, unused_rows, f"not used   {counted(rows_unused, 'row')} under {counted(len(names), 'name')}")


def _say_some(args: argparse.Namespace, lines: Sequence[str], in_few_words: str) -> None:
    """Print lines, or, where there are many and not all is asked for, one line instead."""
    if args.verbose or len(lines) <= max(MOST_LINES // len(args.inputs), 1):
        for line in lines:
            say(line)
    else:
        say(f"{in_few_words}; --verbose lists them")

"""``blue-solvers estimate`` on a folder of noisy measurement files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from blue_solvers import blue
from blue_solvers.commands.common import plural, progress, report
from blue_solvers.commands.progress import LevelBar

if TYPE_CHECKING:
    from constraint_builders.files import Release, Settings

SETTINGS_FILE = "settings.toml"


def run_on_folder(args: argparse.Namespace) -> None:
    """Estimate the tables at all geounits and store them for `query`."""
    from blue_solvers.result_files import write_result
    from constraint_builders.files import read_noisy_measurements
    from constraint_builders.files.new_folder import require_new

    require_new(args.out)
    if args.schema is not None:
        raise ValueError("--schema is for long tables: the schema of measurement files is in their --settings")
    settings = _settings(args)
    desired = "all" if args.desired == ["all"] else args.desired
    with LevelBar("reading") as bar:
        release = read_noisy_measurements(args.input, settings, desired=desired, within=args.within, progress=bar)
    problem = release.problem
    progress(f"preparing {args.solver}")
    P = blue(problem, args.solver)
    progress(f"estimating {plural(problem.desired.size, 'cell')}")
    estimate = P @ release.y + P.offset
    progress("computing exact variances")
    std_error = np.sqrt(np.maximum(P.variances(), 0))
    with LevelBar("writing") as bar:
        write_result(args.out, P, estimate, std_error, settings, bar)
    report(P, args.out)
    _report_constraints(release)


def _settings(args: argparse.Namespace) -> Settings:
    from constraint_builders.files import read_settings
    from constraint_builders.files.settings import find_settings

    if args.settings is not None:
        return find_settings(args.settings)
    own = Path(args.input) / SETTINGS_FILE
    if not own.exists():
        raise ValueError(f"{args.input} has no {SETTINGS_FILE}: give --settings, such as pl94_us_persons")
    return read_settings(own)


def _report_constraints(release: Release) -> None:
    for (geolevel, table), cells in release.zeros.items():
        print(f"empty      {plural(int(cells.sum()), 'structural zero')} of table {table!r} at {geolevel}")
    for geolevel, name, rows, reason in release.unused:
        print(f"not used   {name} at {geolevel}, {plural(rows, 'row')}: {reason}")

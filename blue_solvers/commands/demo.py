"""``blue-solvers demo``: the whole job on an example that ships with the package."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from blue_solvers.commands.common import print_columns
from blue_solvers.commands.screen import say
from constraint_builders.extras import EXTRA_OF, how_to_install

if TYPE_CHECKING:
    from constraint_builders import Problem
    from constraint_builders.arrays import Float

MOST_WAYS = 2  # tables shown: the detailed one would not fit on a screen


def run(args: argparse.Namespace) -> None:
    """Add noise to a gallery problem, estimate it and print both beside the truth."""
    from blue_solvers import estimate
    from blue_solvers.examples import BERKELEY, BERKELEY_SCHEMA
    from constraint_builders import gallery
    from constraint_builders.true_tables import known_truth
    from noise_mechanisms import add_noise

    problem = gallery.berkeley()
    truth = known_truth(problem)
    noisy = add_noise(problem, truth, args.seed)
    est = estimate(problem, noisy)
    say("Applicants to Berkeley in 1973 by admission, sex and department, all eight tables measured with noise of")
    say("standard deviation 3. The tables of up to two variables:", "")
    print_columns(
        ("table", "cell", "truth", "noisy", "estimate", "std error"),
        list(_rows(problem, truth, noisy, est.values, est.std_errors)),
        left=2,
    )
    A, b = problem.equations()
    say("", f"largest inconsistency    {abs(A @ noisy - b).max():.3g} before, {est.info.violation:.1g} after")
    say(f"root mean squared error  {_rms(noisy - truth):.2f} before, {_rms(est.values - truth):.2f} after")
    say(f"solver                   {est.info.reason}")
    say(f"proof                    {est.certificate()} from the best linear unbiased estimate")
    missing = [library for library, extra in EXTRA_OF.items() if extra == "frames" and find_spec(library) is None]
    if missing and how_to_install("frames"):
        say("", f"Files need {' and '.join(missing)}: {shlex.quote(sys.executable)} -m {how_to_install('frames')}")
    say("", "The same from files:")
    arguments = ["estimate", str(BERKELEY), "--schema", str(BERKELEY_SCHEMA), "--out", "estimates.csv"]
    say(f"  {shlex.join([*own_command(), *arguments])}")


def own_command() -> list[str]:
    """How this command is called here, also where its environment is not active."""
    script = Path(sys.executable).with_name("blue-solvers")
    found = shutil.which("blue-solvers")
    if found is not None and Path(found).parent == script.parent:
        return ["blue-solvers"]
    if script.exists():
        return [os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)]
    return [sys.executable, "-m", "blue_solvers.cli"]


def _rms(errors: Float) -> float:
    """Root mean square of errors, (n,)."""
    return float((errors**2).mean() ** 0.5)


def _rows(problem: Problem, truth: Float, noisy: Float, estimate: Float, std_error: Float) -> Iterator[tuple[str, ...]]:
    """The cells of the small tables as text, of vectors (n,)."""
    schema = problem.domain.schema
    for name, table in zip(problem.observed.names, problem.observed_tables, strict=True):
        if len(table.axes) > MOST_WAYS:
            continue
        start = problem.observed.slice(name).start
        for position, cell in enumerate(product(*map(range, table.shape)), start):
            labels = [schema.labels_of(factor)[i] for factor, i in zip(table.factors, cell, strict=True)]
            numbers = f"{truth[position]:,.0f}", f"{noisy[position]:,.1f}", f"{estimate[position]:,.1f}"
            yield str(name) if position == start else "", ", ".join(labels), *numbers, f"{std_error[position]:.2f}"

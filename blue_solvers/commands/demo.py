"""``blue-solvers demo``: the whole job on an example that ships with the package."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from blue_solvers import blue, examples
from blue_solvers.commands.common import SubParsers, new_parser, print_columns
from constraint_builders import Problem, gallery
from constraint_builders.layout import Float
from noise_mechanisms import add_noise

SEED = 1973
MOST_WAYS = 2  # tables shown: the detailed one would not fit on a screen


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "demo",
        "measure the admissions to Berkeley of 1973 with noise, estimate them, and compare with the truth",
        "blue-solvers demo --seed 7",
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the noise; default: {SEED}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Add noise to a gallery problem, estimate it and print both beside the truth."""
    problem = gallery.berkeley()
    truth = problem.truth
    assert truth is not None
    noisy = add_noise(problem, truth, args.seed)
    P = blue(problem)
    estimate = P @ noisy + P.offset
    std_error = np.sqrt(P.variances())
    print("Applicants to Berkeley in 1973 by admission, sex and department, all eight tables measured with noise of")
    print("standard deviation 3. The tables of up to two variables:\n")
    print_columns(
        ("table", "cell", "truth", "noisy", "estimate", "std error"),
        list(_rows(problem, truth, noisy, estimate, std_error)),
        left=2,
    )
    A, b = problem.equations()
    print(f"\nlargest inconsistency    {abs(A @ noisy - b).max():.3g} before, {P.info.violation:.1g} after")
    print(f"root mean squared error  {_rms(noisy - truth):.2f} before, {_rms(estimate - truth):.2f} after")
    print(f"solver                   {P.info.reason}")
    print("\nThe same from files:")
    print(f"  blue-solvers estimate {examples.BERKELEY} --schema {examples.BERKELEY_SCHEMA} --out estimates.csv")


def _rms(errors: Float) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def _rows(problem: Problem, truth: Float, noisy: Float, estimate: Float, std_error: Float) -> Iterator[tuple[str, ...]]:
    """The cells of the small tables as text."""
    schema = problem.schema
    assert schema is not None
    for name, table in zip(problem.observed.names, problem.observed_tables, strict=True):
        if len(table.axes) > MOST_WAYS:
            continue
        start = problem.observed.slice(name).start
        for position, cell in enumerate(np.ndindex(table.shape), start):
            labels = [schema.labels_of(factor)[i] for factor, i in zip(table.factors, cell, strict=True)]
            numbers = f"{truth[position]:,.0f}", f"{noisy[position]:,.1f}", f"{estimate[position]:,.1f}"
            yield str(name) if position == start else "", ", ".join(labels), *numbers, f"{std_error[position]:.2f}"

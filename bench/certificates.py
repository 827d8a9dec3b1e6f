"""Certificates beside true errors and beside an apply: what is proved, how closely, at what cost.

    python -m bench certificates             gallery, Rhode Island at 2,016 cells, 2,000 invented problems of each kind
    python -m bench certificates --quick     small ones, Rhode Island at 16 cells, 60 invented problems of each kind

Invented problems are those of the tests, answered by every solver that takes them; true errors are against 600 bits, of
the figure that is furthest off, in its own standard errors. "ratio" is the median of bound over true error where both
are above 1e-14. Times are processor time; "x apply" counts applies of the solver that `blue` chooses.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bench.invented_state import block_geoids
from bench.measuring import print_table
from bench.spine import problem_of_a_state
from blue_solvers import SOLVERS, blue
from blue_solvers.verification import certify
from constraint_builders import Problem, gallery
from noise_mechanisms import add_noise

SEEN = 1e-14
Figures = list[str]


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m bench certificates", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small problems, and few invented ones")
    options = parser.parse_args(argv)
    header = ["problem", "cells", "bound", "disagreement", "plan+apply s", "apply s", "certify s", "x apply"]
    print_table(header, [_cost(name, problem()) for name, problem in _problems(options.quick).items()])
    print()
    header = ["kind", "problems", "answers", "worst error", "worst bound", "ratio", "above 1e-9", "too low",
              "refused", "not certified", "ms each"]  # fmt: skip
    print_table(header, _invented(60 if options.quick else 2000))


def _problems(quick: bool) -> dict[str, Callable[[], Problem]]:
    found: dict[str, Callable[[], Problem]] = {
        "toy": gallery.toy,
        "PL94": gallery.pl94,
        "5^5": lambda: gallery.cube(5, 5),
        "6^6": lambda: gallery.cube(6, 6),
        "Adult, two-way": lambda: gallery.adult(2),
    }
    if not quick:
        found |= {
            "2^12": lambda: gallery.cube(12, 2),
            "Adult, three-way": gallery.adult,
            "50 x 10, three-way": gallery.wide,
        }
    cells = "16" if quick else "2016"
    found[f"{block_geoids()[0]}, {cells} cells"] = lambda: problem_of_a_state(cells, 1)
    return found


def _cost(name: str, problem: Problem) -> Figures:
    problem = problem.observing()
    size = problem.observed.size
    truth = problem.truth if problem.truth is not None else np.zeros(size)
    y = add_noise(problem, truth, rng=0)
    seconds, P, x = _seconds(lambda: _planned(problem, y))
    apply, _, x = _seconds(lambda: (P, P @ y + P.offset))
    proving, certificate, _ = _seconds(lambda: (certify(problem, y, x), None))
    bound = "none: " + certificate.reason if certificate.bound is None else f"{certificate.bound:.1e}"
    apart = "" if certificate.violation is None else f"{certificate.violation:.1e}"
    figures = [f"{seconds:.3f}", f"{apply:.4f}", f"{proving:.4f}", f"{proving / apply:.1f}"]
    return [name, f"{size:,}", bound, apart, *figures]


def _planned(problem: Problem, y: np.ndarray) -> tuple:
    P = blue(problem)
    return P, P @ y + P.offset


def _seconds(run: Callable[[], tuple]) -> tuple:
    start = time.process_time()
    first, second = run()
    return time.process_time() - start, first, second


def _invented(seeds: int) -> list[Figures]:
    from tests.helpers.oracles.invent import all_kinds

    return [_of_kind(kind, seeds) for kind in all_kinds()]


def _of_kind(kind: object, seeds: int) -> Figures:
    from tests.helpers.oracles.exact import solve
    from tests.helpers.oracles.invent import invent

    counted: Counter[str] = Counter()
    found, spent = [], 0.0
    for seed in range(seeds):
        invented = invent(seed, kind)
        if invented is None:
            continue
        described = replace(invented.description, desired=invented.description.observed)
        try:
            problem = described.problem()
        except ValueError:
            counted["refused"] += 1
            continue
        counted["problems"] += 1
        reference = solve(described, invented.y)
        for solver in SOLVERS:
            try:
                P = blue(problem, solver)
                x, info = P.apply(invented.y)
                x = x + P.offset
            except (ValueError, NotImplementedError, RuntimeError):
                counted["refused answers"] += 1
                continue
            if not info.exact:
                continue
            start = time.process_time()
            certificate = certify(problem, invented.y, x)
            spent += time.process_time() - start
            counted["answers"] += 1
            if certificate.bound is None:
                counted["not certified"] += 1
                continue
            off = np.maximum(abs(x - reference.estimate) - np.spacing(abs(reference.estimate)), 0)
            uncertain = reference.std_errors > 0
            found.append((certificate.bound, (off[uncertain] / reference.std_errors[uncertain]).max(initial=0.0)))
    bounds, errors = np.array(found).reshape(-1, 2).T
    both = (bounds > SEEN) & (errors > SEEN)
    ratio = f"{np.median(bounds[both] / errors[both]):.1f}" if both.any() else ""
    name = f"{kind.covariance or 'independent'}{', cells' if kind.cellwise else ''}, "  # type: ignore[attr-defined]
    name += f"{kind.decades:g} decades, counts {kind.count:g}"  # type: ignore[attr-defined]
    return [
        name,
        f"{counted['problems']:,}",
        f"{counted['answers']:,}",
        f"{errors.max(initial=0.0):.1e}",
        f"{bounds.max(initial=0.0):.1e}",
        ratio,
        f"{int((bounds > 1e-9).sum()):,}",
        f"{int((bounds * (1 + 1e-6) < errors).sum()):,}",
        f"{counted['refused']:,}",
        f"{counted['not certified']:,}",
        f"{1000 * spent / max(counted['answers'], 1):.1f}",
    ]

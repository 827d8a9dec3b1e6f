"""Certificates beside true errors and beside an apply: what is proved, how closely, at what cost.

    python -m bench certificates             gallery, M5's shape, Rhode Island at 2,016 cells, 20,000 invented problems
    python -m bench certificates --quick     small ones, an item in 10, Rhode Island at 16 cells, 90 invented problems

Invented problems are those of the tests, of all kinds, beside 600 bits. Every one is answered by `estimate` as users
call it, proved and refined; what is then neither refused nor marked must be right to 1e-8 of a standard error, and what
has no standard error to roundings of the largest figure. "broken" counts answers that break this promise, or whose
bound is below the error; each is printed. All that other solvers say, and variances, adjoints and functionals, are
judged by `scripts/soak`. Times are CPU time; "x apply" counts applies of the solver that `blue` chooses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np

from bench.measuring import parser_of, print_figures, timed
from bench.problems import PROBLEMS
from blue_solvers import blue, estimate
from blue_solvers.verification import certify
from constraint_builders import Problem
from noise_mechanisms import add_noise

SMALL = ("toy", "pl94", "5^5", "6^6", "adult two-way")
QUICK, FULL = (*SMALL, "M5, an item in 10", "16 cells"), (*SMALL, "2^12", "adult", "50 x 10", "M5", "2,016 cells")
EPSILON = float(np.finfo(float).eps)
BARS = {"error": 1e-8, "known": 64.0}  # the latter in roundings of the largest figure
VERDICTS = ("exact", "marked", "refused", "not certified")
SEEN = 1e-14


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = parser_of("certificates", __doc__, "small problems, and few invented ones")
    parser.add_argument("--problems", type=int, help="invented problems (20,000)")
    options = parser.parse_args(argv)
    found: list[Answer] = []
    print_figures(claims(options.problems or (90 if options.quick else 20_000), found), ["independent, cells"])
    print("\n".join([*broken(found), ""]))
    names = QUICK if options.quick else FULL
    print_figures((_cost(name, PROBLEMS[name]().observing()) for name in names), names)


def _cost(name: str, problem: Problem) -> dict[str, object]:
    size = problem.observed.size
    y = add_noise(problem, np.zeros(size) if problem.truth is None else problem.truth, rng=0)
    (P, _), first = timed(lambda: ((P := blue(problem)), P @ y + P.offset))
    x, apply = timed(lambda: P @ y + P.offset)
    certificate, proving = timed(lambda: certify(problem, y, x))
    return {
        "problem": name,
        "cells": size,
        "bound": "none: " + certificate.reason if certificate.bound is None else certificate.bound,
        "disagreement": certificate.violation,
        "plan+apply s": first,
        "apply s": apply,
        "certify s": proving,
        "x apply": proving / apply,
    }


@dataclass(frozen=True)
class Answer:
    """What was said of an invented problem, and how far off it is.

    Attributes
    ----------
    kind, seed : int
    verdict : str
        One of `VERDICTS`.
    bound : float or None
        In standard errors.
    error : float
        Of the exact estimate furthest off, in its own standard errors, less half a unit of the reference's last place.
    known : float
        Of figures that are known exactly, in roundings of the largest figure.
    """

    kind: int
    seed: int
    verdict: str
    bound: float | None = None
    error: float = 0.0
    known: float = 0.0

    def wrong(self) -> list[str]:
        """What breaks a promise."""
        found = [name for name, bar in BARS.items() if getattr(self, name) > bar]
        sound = self.bound is None or self.bound * (1 + 1e-6) >= self.error
        return found if sound else [*found, "bound"]


def answers(kind: int) -> Iterator[Answer]:
    """Of a kind, by one seed after another; those that invent nothing are left out."""
    from tests.helpers.oracles.compare import largest
    from tests.helpers.oracles.invent import all_kinds, invent

    for seed in count():
        invented = invent(seed, all_kinds()[kind])
        if invented is None:
            continue
        try:
            est = estimate(invented.description.problem(), invented.y)
        except (ValueError, RuntimeError, NotImplementedError):
            yield Answer(kind, seed, "refused")
            continue
        bound, r = est.certificate().bound, invented.reference
        if not est.info.exact:
            yield Answer(kind, seed, "not certified" if bound is None else "marked", bound)
            continue
        off, uncertain = np.maximum(abs(est.values - r.estimate) - np.spacing(abs(r.estimate)) / 2, 0), r.std_errors > 0
        error = float((off[uncertain] / r.std_errors[uncertain]).max(initial=0.0))
        known = float(off[~uncertain].max(initial=0.0)) / (EPSILON * largest(invented))
        yield Answer(kind, seed, "exact", bound, error, known)


def claims(problems: int, found: list[Answer]) -> Iterator[dict[str, Any]]:
    """A row a kind of problem, and all, of about so many answers, which are kept."""
    from tests.helpers.oracles.invent import all_kinds

    kinds = all_kinds()
    for number, kind in enumerate(kinds):
        own = list(islice(answers(number), max(1, problems // len(kinds))))
        found += own
        cells = ", cells" if kind.cellwise else ""
        name = f"{kind.covariance or 'independent'}{cells}, {kind.decades:g} decades, counts {kind.count:g}"
        yield _row(name, own)
    yield _row("all", found)


def _row(kind: str, of: Sequence[Answer]) -> dict[str, Any]:
    counts = {verdict: sum(a.verdict == verdict for a in of) for verdict in VERDICTS}
    exact = [a for a in of if a.verdict == "exact"]
    largest = {name: max((getattr(a, name) or 0.0 for a in exact), default=0.0) for name in ("bound", *BARS)}
    both = [a.bound / a.error for a in of if a.bound is not None and min(a.bound, a.error) > SEEN]
    tight = float(np.median(both)) if both else None
    return {"kind": kind, "asked": len(of), **counts, **largest, "bound / error": tight, "broken": len(broken(of))}


def broken(found: Sequence[Answer]) -> list[str]:
    """Every broken promise, in a line that finds it again."""
    return [f"{', '.join(wrong)}: {answer}" for answer in found if (wrong := answer.wrong())]

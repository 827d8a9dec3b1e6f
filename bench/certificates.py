"""Certificates beside true errors and beside an apply: what is proved, how closely, at what cost.

    python -m bench certificates             gallery, M5's shape, Rhode Island at 2,016 cells, 20,000 invented problems
    python -m bench certificates --quick     small ones, an item in 100, Rhode Island at 16 cells, 90 invented problems

Invented problems are those of the tests, of all kinds, beside 600 bits. Every one is answered by `estimate` as users
call it, proved and refined; what is then neither refused nor marked must be right to 1e-8 of a standard error, and what
has no standard error to roundings of the largest figure. "broken" counts answers that break this promise, or whose
bound is below the error; each is printed. All that other solvers say, and variances, adjoints and functionals, are
judged by `scripts/soak`. Times are CPU time; "x apply" counts applies of the solver that `blue` chooses. With
`--records FILE` the answers are kept, and a run that was stopped resumes.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count, islice
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.measuring import parser_of, print_figures, timed
from bench.problems import PROBLEMS
from blue_solvers import blue, estimate
from blue_solvers.verification import certify
from constraint_builders import Problem
from noise_mechanisms import add_noise

SMALL = ("toy", "pl94", "5^5", "6^6", "adult two-way")
QUICK, FULL = (*SMALL, "M5, an item in 100", "16 cells"), (*SMALL, "2^12", "adult", "50 x 10", "M5", "2,016 cells")
EPSILON = float(np.finfo(float).eps)
BARS = {"error": 1e-8, "known": 64.0}  # the latter in roundings of the largest figure
VERDICTS = ("exact", "marked", "refused", "not certified")
SEEN = 1e-14
ROUND = 4  # seeds of a kind before the next kind


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = parser_of("certificates", __doc__, "small problems, and few invented ones")
    parser.add_argument("--problems", type=int, help="invented problems (20,000)")
    parser.add_argument("--records", type=Path, help="a file for their answers, one a line")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    options = parser.parse_args(argv)
    with TemporaryDirectory() as folder:
        records = options.records or Path(folder) / "answers.jsonl"
        found = collect(options.problems or (90 if options.quick else 20_000), records, options.workers)
    print(f"{len(found):,} invented problems; {tightness(found)}")
    print_figures(rows := table(found), (row["kind"] for row in rows))
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
    refined : bool
    bound : float or None
        In standard errors.
    error : float
        Of the exact estimate furthest off, in its own standard errors, less half a unit of the reference's last place.
    known : float
        Of figures that are known exactly, in roundings of the largest figure.
    why : str
        The reason of a refusal.
    """

    kind: int
    seed: int
    verdict: str
    refined: bool = False
    bound: float | None = None
    error: float = 0.0
    known: float = 0.0
    why: str = ""

    def wrong(self) -> list[str]:
        """What breaks a promise."""
        found = [name for name, bar in BARS.items() if getattr(self, name) > bar]
        sound = self.bound is None or self.bound * (1 + 1e-6) >= self.error
        return found if sound else [*found, "bound"]


def answered(place: tuple[int, int]) -> Answer | None:
    """Of a kind and a seed: None where it invents nothing."""
    from tests.helpers.oracles.compare import largest
    from tests.helpers.oracles.invent import all_kinds, invent

    kind, seed = place
    invented = invent(seed, all_kinds()[kind])
    if invented is None:
        return None
    try:
        est = estimate(invented.description.problem(), invented.y)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return Answer(kind, seed, "refused", why=str(error))
    bound, r = est.certificate().bound, invented.reference
    if not est.info.exact:
        return Answer(
            kind, seed, "not certified" if bound is None else "marked", bound=bound, why=str(est.certificate())
        )
    P, measured, uncertain = est.operator.over_observed, ~est.problem.unmeasured, r.std_errors > 0
    refined = est.observed is not None and not np.array_equal((P @ est.y + P.offset)[measured], est.observed[measured])
    off = np.maximum(abs(est.values - r.estimate) - np.spacing(abs(r.estimate)) / 2, 0)
    error = float((off[uncertain] / r.std_errors[uncertain]).max(initial=0.0))
    known = float(off[~uncertain].max(initial=0.0)) / (EPSILON * largest(invented))
    return Answer(kind, seed, "exact", refined, bound, error, known)


def collect(problems: int, records: Path, workers: int) -> list[Answer]:
    """The answers to so many problems, kind by kind in turn; those that `records` has are not asked again."""
    from tests.helpers.oracles.invent import all_kinds

    found, kinds = read(records), range(len(all_kinds()))
    done = {(answer.kind, answer.seed) for answer in found}
    seeds = ((kind, start + i) for start in count(0, ROUND) for kind in kinds for i in range(ROUND))
    left = (place for place in seeds if place not in done)
    with records.open("a") as file, Pool(workers) as pool:
        while len(done) < problems:
            for own in pool.imap(answered, islice(left, ROUND * len(kinds))):
                if own is not None:
                    found.append(own)
                    done.add((own.kind, own.seed))
                    file.write(json.dumps(asdict(own)) + "\n")
                    file.flush()
                if len(done) >= problems:
                    break
    return found


def read(records: Path) -> list[Answer]:
    """The answers of an earlier run."""
    return [Answer(**json.loads(line)) for line in records.read_text().splitlines()] if records.exists() else []


def table(found: Sequence[Answer]) -> list[dict[str, Any]]:
    """A row a kind of problem, and all."""
    from tests.helpers.oracles.invent import all_kinds

    rows = []
    for number in sorted({answer.kind for answer in found}):
        own = all_kinds()[number]
        kind = f"{own.covariance or 'independent'}{', cells' if own.cellwise else ''}, {own.decades:g} decades, "
        rows.append(_row(f"{kind}counts {own.count:g}", [answer for answer in found if answer.kind == number]))
    return [*rows, _row("all", found)]


def _row(kind: str, of: Sequence[Answer]) -> dict[str, Any]:
    counts = {verdict: sum(a.verdict == verdict for a in of) for verdict in VERDICTS}
    exact = [a for a in of if a.verdict == "exact"]
    largest = {name: max((getattr(a, name) or 0.0 for a in exact), default=0.0) for name in ("bound", *BARS)}
    refined = sum(a.refined for a in of)
    return {"kind": kind, "asked": len(of), "refined": refined, **counts, **largest, "broken": len(broken(of))}


def tightness(found: Sequence[Answer]) -> str:
    """The median of bound over true error."""
    both = [a.bound / a.error for a in found if a.bound is not None and min(a.bound, a.error) > SEEN]
    return f"median of bound over true error {np.median(both or np.nan):.1f}, of {len(both):,} answers"


def broken(found: Sequence[Answer]) -> list[str]:
    """Every broken promise, in a line that finds it again."""
    return [f"{', '.join(wrong)}: {answer}" for answer in found if (wrong := answer.wrong())]

"""Certificates beside true errors and beside an apply: what is proved, how closely, at what cost.

    python -m bench certificates             gallery, M5's shape, Rhode Island at 2,016 cells, 20,000 invented problems
    python -m bench certificates --quick     small ones, an item in 100, Rhode Island at 16 cells, 90 invented problems

Invented problems are those of the tests, of all kinds, beside 600 bits. Every one is answered by `estimate` as users
call it, proved and refined; every third by another solver too, in turn. Whatever is then neither refused nor marked
must be right: estimates and adjoints to 1e-8 of a standard error, variances, columns of the covariance and functional
covariances to 1e-7 of themselves. Figures without a standard error must be right to roundings of the largest figure.
"broken" counts answers that break such a promise, or whose bound is below the error; each is printed. Times are CPU
time; "x apply" counts applies of the solver that `blue` chooses. With `--records FILE` the answers are kept, and a run
that was stopped resumes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import sparse

from bench.measuring import parser_of, print_figures, timed
from bench.problems import PROBLEMS
from blue_solvers import SOLVERS, ConjugateGradient, Estimate, blue, estimate
from blue_solvers.verification import certify
from constraint_builders import Problem
from noise_mechanisms import add_noise

SMALL = ("toy", "pl94", "5^5", "6^6", "adult two-way")
QUICK, FULL = (*SMALL, "M5, an item in 100", "16 cells"), (*SMALL, "2^12", "adult", "50 x 10", "M5", "2,016 cells")
AROUND = "cg, two_pass"
OTHERS = [*(name for name in SOLVERS if name != "auto"), AROUND]
EVERY = 3  # problems, of which one is answered by another solver than `auto` too
EPSILON = float(np.finfo(float).eps)
FLOOR = 64.0  # roundings of the largest figure
BARS = {"error": 1e-8, "known": FLOOR, "variance": 1e-7, "adjoint": 1e-8, "column": 1e-7, "functionals": 1e-7}
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
    problems = len({(answer.kind, answer.seed) for answer in found})
    print(f"{problems:,} invented problems, {len(found):,} answers; {tightness(found)}")
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
    solver : str
    verdict : str
        One of `VERDICTS`.
    refined : bool
    bound : float or None
        In standard errors.
    off : dict of str to float
        Of an exact answer: "error" of the estimate furthest off, in its own standard errors, less half a unit of the
        reference's last place; "known" of figures that are known exactly, in roundings of the largest figure;
        "variance", relative, infinite where it is not 0 though the figure is known; "adjoint" of the weights of a
        functional, in standard deviations of the noise, beside its standard error; "column" and "functionals" of a
        column of the covariance and of covariances of two functionals, beside the roots of both variances. These and
        the adjoint are less the rounding of the terms that are added up.
    why : str
        The reason of a refusal, be it of the variances alone.
    """

    kind: int
    seed: int
    solver: str
    verdict: str
    refined: bool = False
    bound: float | None = None
    off: dict[str, float] = field(default_factory=dict)
    why: str = ""

    def wrong(self) -> list[str]:
        """What breaks a promise."""
        found = [name for name, off in self.off.items() if off > BARS[name]]
        sound = self.bound is None or self.bound * (1 + 1e-6) >= self.off.get("error", 0.0)
        return found if sound else [*found, "bound"]


def answers(place: tuple[int, int]) -> list[Answer]:
    """Of a kind and a seed: none where it invents nothing."""
    from tests.helpers.oracles.invent import all_kinds, invent

    kind, seed = place
    invented = invent(seed, all_kinds()[kind])
    if invented is None:
        return []
    solvers = ["auto", *([] if seed % EVERY else [OTHERS[(kind + seed // EVERY) % len(OTHERS)]])]
    return [Answer(kind, seed, solver, **_answer(solver, invented)) for solver in solvers]


def _answer(solver: str, invented: Any) -> dict[str, Any]:
    own = ConjugateGradient(preconditioner="two_pass") if solver == AROUND else solver
    try:
        est = estimate(invented.description.problem(), invented.y, own)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return {"verdict": "refused", "why": str(error)}
    bound = est.certificate().bound
    if not est.info.exact:
        verdict = "not certified" if bound is None else "marked"
        return {"verdict": verdict, "bound": bound, "why": str(est.certificate())}
    P, measured = est.operator.over_observed, ~est.problem.unmeasured
    refined = est.observed is not None and not np.array_equal((P @ est.y + P.offset)[measured], est.observed[measured])
    off, why = _estimates(est, invented), ""
    try:
        off |= {"variance": _variances(est, invented), **_linear(est, invented)}
    except (ValueError, RuntimeError) as error:
        why = f"refused its variances: {error}"
    return {"verdict": "exact", "refined": refined, "bound": bound, "off": off, "why": why}


def _estimates(est: Estimate, invented: Any) -> dict[str, float]:
    from tests.helpers.oracles.compare import largest

    r = invented.reference
    off = np.maximum(abs(est.values - r.estimate) - np.spacing(abs(r.estimate)) / 2, 0)
    uncertain = r.std_errors > 0
    error = float((off[uncertain] / r.std_errors[uncertain]).max(initial=0.0))
    return {"error": error, "known": float(off[~uncertain].max(initial=0.0)) / (EPSILON * largest(invented))}


def _variances(est: Estimate, invented: Any) -> float:
    exact, v = invented.reference.variances, invented.description.variances
    least = v[(v > 0) & np.isfinite(v)].min(initial=1.0)
    given, uncertain = est.variances, exact > 0
    if (given[~uncertain] > EPSILON * least * 1e-8).any():
        return float("inf")
    return float((abs(given - exact)[uncertain] / exact[uncertain]).max(initial=0.0))


def _linear(est: Estimate, invented: Any) -> dict[str, float]:
    """Adjoints, columns of the covariance and functionals, of one cell and of two combinations of cells."""
    from tests.helpers.oracles.exact import weigh

    rng, size, P, v = (
        np.random.default_rng(invented.y.size),
        est.values.size,
        est.operator,
        invented.description.variances,
    )
    V = np.zeros((size, 3))
    V[int(rng.integers(size)), 0] = 1
    V[:, 1:] = rng.integers(-3, 4, (size, 2)) * (rng.random((size, 2)) < 0.4)
    exact = weigh(invented.description, invented.y, V)
    off = P.T @ V - exact.weights
    off[~np.isfinite(v) | (v == 0)] = 0
    within, std_errors = V.T @ exact.covariance, invented.reference.std_errors
    own, summed = np.sqrt(np.maximum(np.diag(within), 0)), abs(V).T @ std_errors
    most = np.sqrt(v[np.isfinite(v)].max()) * abs(V).sum(axis=0)  # what is known exactly was summed of noise
    noise = np.sqrt(np.maximum(np.einsum("ij,ij->j", off, P.problem.noise_covariance @ off), 0))
    column = abs(P.covariance @ V[:, 0] - exact.covariance[:, 0])
    functionals = abs(P.functional_covariance(sparse.csc_array(V)) - within)
    everywhere = np.full(size, most[0])
    return {
        "adjoint": _largest(noise, own, summed, most),
        "column": _largest(column, std_errors * own[0], std_errors * summed[0], everywhere * most[0]),
        "functionals": _largest(functionals, np.outer(own, own), np.outer(summed, summed), np.outer(most, most)),
    }


def _largest(off: np.ndarray, size: np.ndarray, terms: np.ndarray, noise: np.ndarray) -> float:
    """What is off beyond the rounding of the terms that were added up, beside the size of their sum.

    Where that is 0, all there was is noise that went.
    """
    beyond = np.maximum(off - FLOOR * EPSILON * np.where(size > 0, terms, noise), 0)
    infinite = np.where(beyond > 0, np.inf, 0.0)
    return float(np.divide(beyond, size, out=infinite, where=size > 0).max(initial=0.0))


def collect(problems: int, records: Path, workers: int) -> list[Answer]:
    """The answers to so many problems, kind by kind in turn; those that `records` has are not asked again."""
    from tests.helpers.oracles.invent import all_kinds

    found, kinds = read(records), range(len(all_kinds()))
    done = {(answer.kind, answer.seed) for answer in found}
    seeds = ((kind, start + i) for start in count(0, ROUND) for kind in kinds for i in range(ROUND))
    left = (place for place in seeds if place not in done)
    with records.open("a") as file, Pool(workers) as pool:
        while len(done) < problems:
            for some in pool.imap(answers, islice(left, ROUND * len(kinds))):
                found += some
                done |= {(answer.kind, answer.seed) for answer in some}
                file.writelines(json.dumps(asdict(answer)) + "\n" for answer in some)
                file.flush()
                if len(done) >= problems:
                    break
    return found


def read(records: Path) -> list[Answer]:
    """The answers of an earlier run."""
    return [Answer(**json.loads(line)) for line in records.read_text().splitlines()] if records.exists() else []


def table(found: Sequence[Answer]) -> list[dict[str, Any]]:
    """A row a kind of problem for `auto`, one a solver for the others, and all."""
    from tests.helpers.oracles.invent import all_kinds

    rows = []
    for number, solver in sorted({(a.kind, a.solver) for a in found}, key=lambda own: (own[1] != "auto", *own)):
        own = all_kinds()[number]
        kind = f"{own.covariance or 'independent'}{', cells' if own.cellwise else ''}, {own.decades:g} decades, "
        rows.append(
            _row(f"{kind}counts {own.count:g}", solver, [a for a in found if (a.kind, a.solver) == (number, solver)])
        )
    rows += [_row("all", solver, [a for a in found if a.solver == solver]) for solver in ("auto", *OTHERS)]
    return [*rows, _row("all", "all", found)]


def _row(kind: str, solver: str, of: Sequence[Answer]) -> dict[str, Any]:
    figures = {"kind": kind, "solver": solver, "asked": len(of), "refined": sum(a.refined for a in of)}
    figures |= {verdict: sum(a.verdict == verdict for a in of) for verdict in VERDICTS}
    exact = [{"bound": a.bound or 0.0, **a.off} for a in of if a.verdict == "exact"]
    figures |= {name: max((own.get(name, 0.0) for own in exact), default=0.0) for name in ("bound", *BARS)}
    return {**figures, "broken": len(broken(of))}


def tightness(found: Sequence[Answer]) -> str:
    """The median of bound over true error."""
    both = [a.bound / a.off["error"] for a in found if a.bound and a.off and min(a.bound, a.off["error"]) > SEEN]
    return f"median of bound over true error {np.median(both or np.nan):.1f}, of {len(both):,} answers"


def broken(found: Sequence[Answer]) -> list[str]:
    """Every broken promise, in a line that finds it again."""
    return [f"{', '.join(wrong)}: {answer}" for answer in found if (wrong := answer.wrong())]

"""What every solver answers to invented problems, beside exact and ball arithmetic: `python -m bench certificates`.

Every problem is answered by `estimate` as users call it, proved and refined; every third by another solver too, in
turn. Whatever is then neither refused nor marked must be right: estimates and adjoints to 1e-8 of a standard error,
variances, columns of the covariance and functional covariances to 1e-7 of themselves. Figures without a standard
error must be right to roundings of the largest figure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from blue_solvers import SOLVERS, BlueOperator, ConjugateGradient, Estimate, Solver, estimate
from constraint_builders import Problem

AROUND = "cg, two_pass"
OTHERS = [*(name for name in SOLVERS if name != "auto"), AROUND]
EVERY = 3  # problems, of which one is answered by another solver than `auto` too
EPSILON = float(np.finfo(float).eps)
FLOOR = 64.0  # roundings of the largest figure
BARS = {"error": 1e-8, "known": FLOOR, "variance": 1e-7, "adjoint": 1e-8, "column": 1e-7, "functionals": 1e-7}
SEEN = 1e-14
ROUND, MOST_SEEDS = 4, 10**6


@dataclass(frozen=True)
class Answer:
    """What was said of an invented problem, and how far off it is.

    Attributes
    ----------
    kind, seed : int
    solver : str
    verdict : str
        "exact", "marked", "not certified", or "refused".
    refined : bool
    bound : float or None
        In standard errors.
    error : float
        Of the estimate furthest off, in its own standard errors, less half a unit of the reference's last place.
    known : float
        Of figures that are known exactly, in roundings of the largest figure.
    variance : float
        Relative; infinite where a variance is not 0 though the figure is known.
    adjoint : float
        Of the weights of a functional, in standard deviations of the noise, beside its standard error.
    column, functionals : float
        Of a column of the covariance and of covariances of two functionals, beside the roots of both variances; these
        and the adjoint less the rounding of the terms that are added up.
    why : str
        The reason of a refusal, be it of the variances alone.
    """

    kind: int
    seed: int
    solver: str
    verdict: str
    refined: bool = False
    bound: float | None = None
    error: float = 0.0
    known: float = 0.0
    variance: float = 0.0
    adjoint: float = 0.0
    column: float = 0.0
    functionals: float = 0.0
    why: str = ""

    def wrong(self) -> list[str]:
        """What breaks a promise."""
        found = [name for name, bar in BARS.items() if getattr(self, name) > bar]
        sound = self.bound is None or self.bound * (1 + 1e-6) >= self.error
        return found if sound else [*found, "bound"]


def answers(kind: int, seed: int, others: bool) -> list[Answer]:
    """Of one seed: none where it invents nothing."""
    from tests.helpers.oracles.invent import all_kinds, invent

    invented = invent(seed, all_kinds()[kind])
    if invented is None:
        return []
    solvers = ["auto", OTHERS[(kind + seed // EVERY) % len(OTHERS)]] if others else ["auto"]
    try:
        problem = invented.description.problem()
    except ValueError as error:
        return [Answer(kind, seed, solver, "refused", why=str(error)) for solver in solvers]
    return [_answer(kind, seed, solver, problem, invented) for solver in solvers]


def _answer(kind: int, seed: int, solver: str, problem: Problem, invented: Any) -> Answer:
    try:
        est = estimate(problem, invented.y, _configured(solver))
    except (ValueError, RuntimeError, NotImplementedError) as error:
        return Answer(kind, seed, solver, "refused", why=str(error))
    if not est.info.exact:
        verdict = "marked" if est.certificate().bound is not None else "not certified"
        return Answer(kind, seed, solver, verdict, bound=est.certificate().bound, why=str(est.certificate()))
    figures, why = _estimates(est, invented), ""
    try:
        figures |= {"variance": _variances(est, invented), **_linear(est, invented)}
    except (ValueError, RuntimeError) as error:
        why = f"refused its variances: {error}"
    return Answer(kind, seed, solver, "exact", _was_refined(est), est.certificate().bound, **figures, why=why)


def _configured(solver: str) -> Solver | str:
    return ConjugateGradient(preconditioner="two_pass") if solver == AROUND else solver


def _was_refined(est: Estimate) -> bool:
    P, measured = est.operator.over_observed, ~est.problem.unmeasured
    return est.observed is not None and not np.array_equal((P @ est.y + P.offset)[measured], est.observed[measured])


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

    rng, size = np.random.default_rng(invented.y.size), est.values.size
    V = np.zeros((size, 3))
    V[int(rng.integers(size)), 0] = 1
    V[:, 1:] = rng.integers(-3, 4, (size, 2)) * (rng.random((size, 2)) < 0.4)
    exact = weigh(invented.description, invented.y, V)
    P: BlueOperator = est.operator
    off = P.T @ V - exact.weights
    off[~np.isfinite(invented.description.variances) | (invented.description.variances == 0)] = 0
    within, std_errors = V.T @ exact.covariance, invented.reference.std_errors
    own, summed = np.sqrt(np.maximum(np.diag(within), 0)), abs(V).T @ std_errors
    v = invented.description.variances
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
    found = read(records)
    done = {(answer.kind, answer.seed) for answer in found}
    if len(done) >= problems:
        return found
    with records.open("a") as file, Pool(workers) as pool:
        for start in range(0, MOST_SEEDS, ROUND):
            for some in pool.imap(_of_seed, list(_open(start, done)), chunksize=1):
                if len(done) >= problems:
                    return found
                found += some
                done |= {(answer.kind, answer.seed) for answer in some}
                file.writelines(json.dumps(asdict(answer)) + "\n" for answer in some)
            file.flush()
    return found


def _open(start: int, done: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    from tests.helpers.oracles.invent import all_kinds

    for kind in range(len(all_kinds())):
        yield from ((kind, seed) for seed in range(start, start + ROUND) if (kind, seed) not in done)


def _of_seed(place: tuple[int, int]) -> list[Answer]:
    return answers(*place, others=place[1] % EVERY == 0)


def read(records: Path) -> list[Answer]:
    """The answers of an earlier run."""
    names = {own.name for own in fields(Answer)}
    lines = records.read_text().splitlines() if records.exists() else []
    return [Answer(**{key: value for key, value in json.loads(line).items() if key in names}) for line in lines]


VERDICTS = ("exact", "marked", "refused", "not certified")
COUNTS = ("asked", "exact", "refined", "marked", "refused", "not certified")


def table(found: Sequence[Answer]) -> list[dict[str, Any]]:
    """A row a kind of problem for `auto`, one a solver for the others, and all."""
    kinds, by = sorted({answer.kind for answer in found}), ["auto", *OTHERS]
    rows = []
    for kind, solver in [(kind, "auto") for kind in kinds] + [(kind, solver) for kind in kinds for solver in OTHERS]:
        if asked := [a for a in found if (a.kind, a.solver) == (kind, solver)]:
            rows.append(_row(_named(kind), solver, asked))
    rows += [_row("all", solver, [a for a in found if a.solver == solver]) for solver in by]
    return [*rows, _row("all", "all", found)]


def _row(kind: str, solver: str, of: Sequence[Answer]) -> dict[str, Any]:
    figures = {"kind": kind, "solver": solver, "asked": len(of), "refined": sum(a.refined for a in of)}
    figures |= {verdict: sum(a.verdict == verdict for a in of) for verdict in VERDICTS}
    exact = [a for a in of if a.verdict == "exact"]
    figures |= {name: max((getattr(a, name) or 0.0 for a in exact), default=0.0) for name in ("bound", *BARS)}
    return {**figures, "broken": sum(bool(a.wrong()) for a in of)}


def _named(kind: int) -> str:
    from tests.helpers.oracles.invent import all_kinds

    own = all_kinds()[kind]
    name = f"{own.covariance or 'independent'}{', cells' if own.cellwise else ''}, "
    return name + f"{own.decades:g} decades, counts {own.count:g}"


def tightness(found: Sequence[Answer]) -> str:
    """The median of bound over true error."""
    both = [a.bound / a.error for a in found if a.bound is not None and min(a.bound, a.error) > SEEN]
    return f"median of bound over true error {np.median(both or np.nan):.1f}, of {len(both):,} answers"


def broken(found: Sequence[Answer]) -> list[str]:
    """Every broken promise, in a line that finds it again."""
    return [f"{', '.join(wrong)}: {answer}" for answer in found if (wrong := answer.wrong())]

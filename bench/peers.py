"""Ours and others interleaved: how many times as long they take, and how far their answers are from the best.

    python -m bench peers                    some minutes
    python -m bench peers --quick            small problems, a minute
    python -m bench peers --peers FOLDER     also systems for tables whose repositories lie in FOLDER

A row is a problem and a peer. "apply": both were prepared, and answer again; "from the problem": both start with what
was measured, loaded and described; "frames", "arrays": both are given the same ones, of several columns. Times are
the least of several, in milliseconds of processor on one BLAS thread, ours and theirs taking turns. Peers for any
equalities are given these, while ours finds them from the problem.

"distance" is the largest difference from our answer in any cell, in our standard errors; "proved" bounds how far any
figure and any combination of them is from the best estimate, by certificate; "disagreement" is what sums miss. Of
forecasts "leaf error" is the root mean square of what bottom series are off the truth, and "squares" what is minimised,
over the least, where detailed cells or bottom series may not be negative. Variances of forecasts are the numbers of
leaves, or these times factors from 0.01 to 100.

Of hierarchicalforecast (extra ``forecasts``), and of general least squares as anybody writes them with scipy. Other
systems are run from clones of their repositories, JordanAwan/SeaBlue in FOLDER/SeaBlue and so on, with what these need
installed. Who is not there is named below. What they gave is in docs/comparison.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from bench import forecast_peers, general_peers
from bench.measuring import parser_of, print_figures, shortest
from bench.other_systems import SYSTEMS, Case, silent, source_of
from bench.problems import m5, margins, tree
from blue_solvers import blue, certify
from blue_solvers.adapters import ExactMinTrace
from blue_solvers.examples import POWER_HOUR
from blue_solvers.nonnegative import nnls, ols
from constraint_builders import Problem, Schema, gallery
from noise_mechanisms import draw_noise
from tests.helpers.designs import balances

Work = Callable[[], Any]


@dataclass(frozen=True)
class Rival:
    """What is timed beside ours.

    Attributes
    ----------
    timed : str
        What a turn is, such as ``"apply"``: ours is timed doing the same.
    ours, theirs : callable
    distance : callable, optional
        Of what `theirs` returns, how far it is from our answer, in our standard errors.
    judged : callable, optional
        Of what `theirs` returns, further figures by the headings of columns.
    """

    timed: str
    ours: Work
    theirs: Work
    distance: Callable[[Any], float | None] = lambda _: None
    judged: Callable[[Any], Mapping[str, float | None]] = lambda _: {}


@dataclass(frozen=True)
class Contest:
    """One problem and who answers it; each value prepares a rival or says by an error why it cannot be."""

    problem: str
    cells: int
    rivals: Mapping[str, Callable[[], Rival]]


def distance_from(x: NDArray, variances: NDArray) -> Callable[[NDArray], float]:
    """How far an answer is from `x` at most, in standard errors, where these are not 0."""

    def distance(answer: NDArray) -> float:
        errors = np.sqrt(variances).reshape(-1, *[1] * (x.ndim - 1))
        off = np.divide(abs(answer - x), errors, out=np.zeros_like(x), where=errors > 0)
        return float(off.max(initial=0.0))

    return distance


def held(contest: Contest, rounds: int, absent: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The results of a contest, of so many rounds for each rival; those who cannot take part are told why."""
    for name, make in contest.rivals.items():
        try:
            found = {"problem": contest.problem, "cells": contest.cells, "peer": name, **_duel(make(), rounds)}
        except Exception as error:  # of others' code, or of what it needs
            absent[f"{name} on {contest.problem}"] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            yield found


def _duel(rival: Rival, rounds: int) -> dict[str, Any]:
    """Least CPU milliseconds, and how theirs is judged."""
    rival.ours()
    answer = rival.theirs()  # the first call compiles and loads
    judged = {"distance": rival.distance(answer), **dict.fromkeys(FIGURES), **rival.judged(answer)}
    ours, theirs = shortest(rival.ours, rival.theirs, rounds=rounds)
    return {
        "timed": rival.timed,
        "ours ms": 1e3 * ours,
        "peer ms": 1e3 * theirs,
        "peer / ours": theirs / ours,
        **judged,
    }


SEED = 2024
MOST_DENSE = 3_000  # series above which dense matrices are not made
FIGURES = ("proved", "disagreement", "leaf error", "squares")
GENERAL = {
    "scipy lsmr": ("apply", general_peers.by_lsmr),
    "scipy splu": ("apply", general_peers.by_splu),
    "clarabel": ("from the problem", general_peers.by_clarabel),
}
Rivals = dict[str, Callable[[], Rival]]


def main(argv: list[str]) -> None:
    """Print the table, then who was absent."""
    parser = parser_of("peers", __doc__, "small problems, few rounds")
    parser.add_argument("--peers", metavar="FOLDER", type=Path, help="where clones of the other systems lie")
    options = parser.parse_args(argv)
    absent: dict[str, str] = {}
    systems = (_of_system(repository, options.peers, absent) for repository in SYSTEMS)
    contests, rounds = chain(_contests(options.quick), *systems), 3 if options.quick else 5
    print_figures(own for contest in contests for own in held(contest, rounds, absent))
    for name, why in absent.items():
        print(f"not run: {name}: {why}")


def _contests(quick: bool) -> Iterator[Contest]:
    named: dict[str, Callable[[], Problem]] = {"PL94, one recode": gallery.pl94, "4^4": partial(gallery.cube, 4, 4)}
    if not quick:
        named |= {
            "5^5": partial(gallery.cube, 5, 5),
            "Adult up to two-way": partial(gallery.adult, 2),
            "2 to 9 levels, three-way": partial(margins, [*range(2, 10)], 3),
        }
    for name, make in named.items():
        problem = make()
        if problem.desired.size != problem.observed.size:  # others give what was measured
            problem = problem.observing()
        y = np.random.default_rng(SEED).standard_normal(problem.observed.size) * np.sqrt(problem.variances)
        yield Contest(name, y.size, _general(problem, y))
    yield _not_negative("9 x 24 and margins", Schema({"rows": 9, "columns": 24}), ("total", "rows", "columns"))
    if not quick:
        yield _not_negative("PL94 and its cells", gallery.pl94().schema, gallery.pl94().observed.names)
        groups = {"leaf": {"group": (np.arange(30_000) // 100).tolist()}}
        yield _not_negative("tree of 30,000 leaves", Schema({"leaf": 30_000}, groups), ("total", "group"))
    yield _grid()
    yield from _of_hierarchy("tree of 8 leaves", tree(8), 12)
    yield from _of_hierarchy("tree of 1,000 leaves", tree(1_000), 12)
    yield from _of_hierarchy("M5's shape, a fortieth of its items", m5(40), 4)
    if not quick:
        yield from _of_hierarchy("M5's shape, 42,840 series", m5(), 28)


def _general(problem: Problem, y: NDArray) -> Rivals:
    """Peers for any equalities."""
    P = blue(problem)
    distance, proved = distance_from(P @ y, P.variances()), partial(_proved, problem, y)
    ours = {"apply": lambda: P @ y, "from the problem": lambda: blue(problem.replace()) @ y}

    def rival(name: str) -> Rival:
        kind, make = GENERAL[name]
        return Rival(kind, ours[kind], make(problem.constraint_matrix(), problem.variances, y), distance, proved)

    return {name: partial(rival, name) for name in GENERAL}


def _not_negative(name: str, schema: Schema, tables: Iterable[str]) -> Contest:
    """Detailed cells that may not be negative, nine in ten of them empty, and sums, all of one variance."""
    problem, rng = (
        Problem(schema, dict.fromkeys([*tables, "detailed"], 128.0), noise="laplace"),
        np.random.default_rng(SEED),
    )
    M, A, variances = problem.marginal_matrix(), problem.constraint_matrix(), problem.variances
    cells = np.where(rng.random(M.shape[1]) < 0.1, rng.integers(1, 50, M.shape[1]), 0)
    y, lower = M @ cells + draw_noise(problem, 1, rng)[:, 0], np.full(M.shape[0], -np.inf)
    lower[problem.observed.slice("detailed")] = 0
    ours = lambda: nnls(problem, y).observed  # noqa: E731
    least = np.sum((ours() - y) ** 2)
    judged = lambda x: {"squares": float(np.sum((x - y) ** 2) / least)}  # noqa: E731
    makers: dict[str, Callable[[], Work]] = {
        "scipy nnls": partial(general_peers.by_nnls, M, variances, y),
        "clarabel": partial(general_peers.by_clarabel, A, variances, y, lower),
    }
    rivals = {
        called: lambda make=make: Rival("not negative", ours, make(), judged=judged) for called, make in makers.items()
    }
    return Contest(name, y.size, rivals)


def _grid() -> Contest:
    """The hour of the grid that ships, within its bounds: how far both are from the answer that was published."""
    data = pl.read_csv(POWER_HOUR)
    y, variances, published = data["value"].to_numpy(), 1 / data["weight"].to_numpy(), data["published"].to_numpy()
    A, lower = balances(data["series"].to_list())
    ours = lambda: ols(Problem.from_matrix(A, variances), y, bounds=(lower, np.inf)).observed  # noqa: E731
    distance = distance_from(published, variances)
    rival = lambda: Rival("not negative", ours, general_peers.by_clarabel(A, variances, y, lower), distance)  # noqa: E731
    return Contest(f"an hour of the grid, ours {distance(ours()):.0e} off", y.size, {"clarabel": rival})


def _proved(problem: Problem, y: NDArray, x: NDArray) -> dict[str, float | None]:
    proof = certify(problem, y, x)
    return {"proved": proof.bound, "disagreement": proof.violation}


def _of_hierarchy(name: str, S: sparse.csr_array, horizon: int) -> Iterator[Contest]:
    """One column by any means, a horizon in data frames, and forecasts that are not negative."""
    rng, leaves = np.random.default_rng(SEED), np.asarray(S.sum(axis=1)).ravel().astype(float)
    kinds = {name: leaves, f"{name}, spread 1 to 10,000": leaves * 10 ** rng.uniform(-2, 2, leaves.size)}
    for called, variances in kinds.items():
        truth = S @ rng.gamma(0.3, 4, (S.shape[1], horizon))
        Y = truth + rng.normal(size=truth.shape) * np.sqrt(variances)[:, None]
        yield from _of_forecasts(called, S, variances, truth[:, 0].copy(), Y)


def _of_forecasts(name: str, S: sparse.csr_array, variances: NDArray, truth: NDArray, Y: NDArray) -> Iterator[Contest]:
    problem, y = Problem.from_summing_matrix(S, variances), Y[:, 0].copy()
    P = blue(problem)
    distance = distance_from(P @ y, P.variances())
    best = partial(_ours, S, variances, y, nonnegative=True)

    def judged(x: NDArray) -> dict[str, float | None]:
        off = (x - truth)[-S.shape[1] :]
        return {**_proved(problem, y, x), "leaf error": float(np.sqrt(np.mean(off**2)))}

    def squares(x: NDArray) -> float:
        return float(np.sum((x - y) ** 2 / variances))

    def of_arrays(called: str) -> Rival:
        _refuse_dense(called, S.shape)
        whole = lambda: blue(Problem.from_summing_matrix(S, variances)) @ y  # noqa: E731
        return Rival("from the problem", whole, partial(answers[called], S, variances, y), distance, judged)

    def in_frames(called: str) -> Rival:
        _refuse_dense(called, S.shape)
        frames = forecast_peers.Frames(S, variances, Y)
        return Rival("frames", frames.ours, partial(frames.theirs, called), distance_from(P @ Y, P.variances()))

    def columns() -> Rival:
        ours, theirs = (partial(answers[called], S, variances, Y) for called in ("ExactMinTrace", "MinTraceSparse"))
        return Rival("arrays", ours, theirs, distance_from(P @ Y, P.variances()))

    def not_negative(qp: bool) -> Rival:
        theirs = partial(forecast_peers.of_arrays("MinTraceSparse", nonnegative=True, qp=qp), S, variances, y)
        least = squares(best())
        return Rival("not negative", best, theirs, judged=lambda x: {**judged(x), "squares": squares(x) / least})

    answers = {
        "ExactMinTrace": _ours,
        "scipy lsqr, default": general_peers.by_lsqr,
        "MinTraceSparse": forecast_peers.of_arrays("MinTraceSparse"),
        "MinTraceSparse, wls_struct": forecast_peers.of_arrays("MinTraceSparse", "wls_struct"),
        "MinTrace": forecast_peers.of_arrays("MinTrace"),
    }
    rivals: Rivals = _general(problem, y) | {called: partial(of_arrays, called) for called in answers}
    rivals |= {f"MinTraceSparse, qp={qp}": partial(not_negative, qp) for qp in (True, False)}
    yield Contest(name, y.size, rivals)
    horizon: Rivals = {called: partial(in_frames, called) for called in ("MinTraceSparse", "MinTrace")}
    horizon["MinTraceSparse of arrays"] = columns
    yield Contest(f"{name}, horizon {Y.shape[1]}", Y.size, horizon)


def _ours(S: sparse.csr_array, variances: NDArray, y: NDArray, **options: bool) -> NDArray:
    Y = y.reshape(len(y), -1)
    return ExactMinTrace(covariance=variances, **options).fit_predict(S, Y)["mean"].reshape(y.shape)


def _refuse_dense(called: str, shape: tuple[int, int]) -> None:
    if called == "MinTrace" and shape[0] > MOST_DENSE:
        raise MemoryError(f"its dense matrices, {8 * shape[0] * shape[1] / 1e9:.1f} GB each, are not made here")


def _of_system(repository: str, folder: Path | None, absent: dict[str, str]) -> Iterator[Contest]:
    """A system that brings its problems."""
    try:
        cases = list(SYSTEMS[repository](source_of(repository, folder)))
    except Exception as error:  # of others' code, or of what it needs
        absent[repository] = f"{type(error).__name__}: {error}".splitlines()[0]
        return
    for case in cases:
        yield Contest(case.task, case.y.size, {case.system: partial(_rival_of, case)})


def _rival_of(case: Case) -> Rival:
    P = blue(case.problem)
    off, judged = distance_from(P @ case.y, P.variances())(case.x), _proved(case.problem, case.y, case.x)
    ours = lambda: blue(case.problem.replace()) @ case.y  # noqa: E731
    return Rival("from the problem", ours, partial(silent, case.work), lambda _: off, lambda _: judged)

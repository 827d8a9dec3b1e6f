"""Ours and others interleaved, in one run: how many times as long they take, and how far their answers are from ours.

    python -m bench peers                    some minutes
    python -m bench peers --quick            small problems, a minute
    python -m bench peers --peers FOLDER     also systems whose repositories lie in FOLDER, as for `judged`
    python -m bench peers --keep [PLACE]     keeps the ratios as JSON, in bench/history/ or at PLACE

A row is a problem and a peer. "apply": both were prepared, and answer again; "from the problem": both start with what
was measured, loaded and described; "frames": both are given the same data frames. Times are medians, in milliseconds of
processor on one BLAS thread; the ratio, peer over ours, is the median over rounds that time one after the other.
Distance is the largest difference from our answer in any cell, in our standard errors. Peers for any equalities are
given these, while ours finds them from the problem. Who is not there is named below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bench import forecast_peers, general_peers
from bench.compare import FOLDER, write
from bench.contests import Contest, Result, Rival, distance_from, held
from bench.judged import MOST_DENSE
from bench.measuring import parser_of, print_table
from bench.other_systems import SYSTEMS, Case, cases_of
from bench.problems import m5, margins, tree
from blue_solvers import BlueOperator, blue
from constraint_builders import Problem, gallery

SEED = 2024
HEADER = ["problem", "cells", "peer", "timed", "ours ms", "peer ms", "peer / ours", "distance"]
GENERAL = {
    "scipy lsmr": ("apply", general_peers.by_lsmr),
    "scipy splu": ("apply", general_peers.by_splu),
    "clarabel": ("from the problem", general_peers.by_clarabel),
}


def main(argv: list[str]) -> None:
    """Print the table, then who was absent."""
    parser = parser_of("peers", __doc__, "small problems, few rounds")
    parser.add_argument("--peers", metavar="FOLDER", type=Path, help="where clones of the other systems lie")
    parser.add_argument("--keep", metavar="PLACE", type=Path, nargs="?", const=FOLDER, help="file or folder of JSON")
    parser.add_argument("--note", default="", help="what to keep about the machine, such as who shares it")
    options = parser.parse_args(argv)
    results: list[Result] = []
    absent: dict[str, str] = {}
    systems = (_of_system(repository, options.peers, absent) for repository in SYSTEMS)
    contests = chain(_contests(options.quick), *systems)
    print_table(HEADER, map(_row, _held(contests, 0.2 if options.quick else 5.0, results, absent)))
    for name, why in absent.items():
        print(f"not run: {name}: {why}")
    if options.keep is not None:
        write(options.keep, results, absent, options.note)


def _held(
    contests: Iterable[Contest], budget: float, results: list[Result], absent: dict[str, str]
) -> Iterator[Result]:
    """Results as they are found, kept along with who could not take part."""
    for contest in contests:
        found, lacking = held(contest, budget)
        results += found
        absent |= lacking
        yield from found


def _contests(quick: bool) -> Iterator[Contest]:
    named: dict[str, Callable[[], Problem]] = {"PL94, one recode": gallery.pl94, "4^4": partial(gallery.cube, 4, 4)}
    if not quick:
        named |= {
            "5^5": partial(gallery.cube, 5, 5),
            "Adult up to two-way": partial(gallery.adult, 2),
            "2 to 9 levels, three-way": partial(margins, [*range(2, 10)], 3),
        }
    for name, make in named.items():
        yield _of_tables(name, make())
    yield from _of_hierarchy("tree of 1,000 leaves", tree(1_000), 1)
    yield from _of_hierarchy("M5's shape, a fortieth of its items", m5(40), 4)
    if not quick:
        yield from _of_hierarchy("M5's shape, 42,840 series", m5(), 28)


def _of_tables(name: str, problem: Problem) -> Contest:
    if problem.desired.size != problem.observed.size:  # others give what was measured
        problem = Problem(problem.schema, problem.observed.tables(problem.variances))
    P = blue(problem)
    y = np.random.default_rng(SEED).standard_normal(problem.observed.size) * np.sqrt(problem.variances)
    return Contest(name, y.size, _general(problem, P, y))


def _general(problem: Problem, P: BlueOperator, y: NDArray) -> dict[str, Callable[[], Rival]]:
    """Peers for any equalities."""
    distance = distance_from(P @ y, P.variances())
    ours = {"apply": lambda: P @ y, "from the problem": lambda: blue(problem.replace()) @ y}

    def rival(name: str) -> Rival:
        timed, make = GENERAL[name]
        theirs = make(problem.constraint_matrix(), problem.variances, y)
        return Rival(name, timed, ours[timed], theirs, distance)

    return {name: partial(rival, name) for name in GENERAL}


def _of_hierarchy(name: str, S: sparse.csr_array, horizon: int) -> Iterator[Contest]:
    """One column by any means, and a horizon in data frames."""
    rng = np.random.default_rng(SEED)
    leaves = np.asarray(S.sum(axis=1)).ravel().astype(float)
    variances = leaves * rng.uniform(0.5, 2, leaves.size)
    Y = rng.gamma(0.3, 4, (S.shape[1], horizon))
    Y = S @ Y + rng.normal(size=(S.shape[0], horizon)) * np.sqrt(variances)[:, None]
    problem = Problem.from_summing_matrix(S, variances)
    P = blue(problem)
    y = Y[:, 0].copy()
    distance = distance_from(P @ y, P.variances())

    def of_arrays(called: str) -> Rival:
        _refuse_dense(called, S.shape)
        theirs = forecast_peers.of_arrays(called)
        ours = partial(_whole, S, variances, y)
        return Rival(called, "from the problem", ours, lambda: theirs(S, variances, y), distance)

    sparse_peers = {called: partial(of_arrays, called) for called in ("MinTraceSparse", "MinTrace")}
    yield Contest(name, y.size, _general(problem, P, y) | sparse_peers)
    made: list[forecast_peers.Frames] = []

    def in_frames(called: str) -> Rival:
        _refuse_dense(called, S.shape)
        frames = made[0] if made else forecast_peers.Frames(S, variances, Y)
        made[:] = [frames]
        off = distance_from(P @ Y, P.variances())
        return Rival(called, "frames", frames.ours, partial(frames.theirs, called), off)

    rivals = {called: partial(in_frames, called) for called in ("MinTraceSparse", "MinTrace")}
    yield Contest(f"{name}, horizon {horizon}", Y.size, rivals)


def _whole(S: sparse.csr_array, variances: NDArray, y: NDArray) -> NDArray:
    return blue(Problem.from_summing_matrix(S, variances)) @ y


def _refuse_dense(called: str, shape: tuple[int, int]) -> None:
    if called == "MinTrace" and shape[0] > MOST_DENSE:
        raise MemoryError(f"its dense matrices, {8 * shape[0] * shape[1] / 1e9:.1f} GB each, are not made here")


def _of_system(repository: str, folder: Path | None, absent: dict[str, str]) -> Iterator[Contest]:
    """A system that brings its problems."""
    try:
        cases = [case for case in cases_of(repository, folder) if case.system != "ours"]
    except Exception as error:  # of others' code, or of what it needs
        absent[repository] = f"{type(error).__name__}: {error}".splitlines()[0]
        return
    for case in cases:
        yield Contest(case.task, case.y.size, {case.system: partial(_rival_of, case)})


def _rival_of(case: Case) -> Rival:
    P = blue(case.problem)
    off, ours = distance_from(P @ case.y, P.variances())(case.x), lambda: blue(case.problem.replace()) @ case.y
    return Rival(case.system, "from the problem", ours, case.again, lambda _: off)


def _row(own: Result) -> list[object]:
    return [own.problem, own.cells, own.peer, own.timed, own.ours_ms, own.peer_ms, own.ratio, own.distance]

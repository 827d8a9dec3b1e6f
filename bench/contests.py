"""One problem, our answer and those of others, timed interleaved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.measuring import timed

LEAST_TURN = 0.003  # CPU seconds that a turn takes at least
LEAST_ROUNDS, MOST_ROUNDS = 3, 25
Work = Callable[[], Any]


@dataclass(frozen=True)
class Rival:
    """What is timed beside ours.

    Attributes
    ----------
    name : str
    timed : str
        What a turn is, such as ``"apply"``: ours is timed doing the same.
    ours, theirs : callable
    distance : callable, or None
        Of what `theirs` returns, how far it is from our answer, in our standard errors; None where there is no answer.
    """

    name: str
    timed: str
    ours: Work
    theirs: Work
    distance: Callable[[Any], float] | None = None


@dataclass(frozen=True)
class Contest:
    """One problem and who answers it; `make` prepares a rival or says by an error why it cannot be."""

    problem: str
    cells: int
    rivals: dict[str, Callable[[], Rival]]


@dataclass(frozen=True)
class Result:
    """Medians over rounds, in CPU milliseconds; `ratio` is the median of theirs over ours in each round."""

    problem: str
    cells: int
    peer: str
    timed: str
    ours_ms: float
    peer_ms: float
    ratio: float
    distance: float | None


def distance_from(x: NDArray, variances: NDArray) -> Callable[[NDArray], float]:
    """How far an answer is from `x` at most, in standard errors, where these are not 0."""

    def distance(answer: NDArray) -> float:
        errors = np.sqrt(variances).reshape(-1, *[1] * (x.ndim - 1))
        off = np.divide(abs(answer - x), errors, out=np.zeros_like(x), where=errors > 0)
        return float(off.max(initial=0.0))

    return distance


def held(contest: Contest, budget: float) -> tuple[list[Result], dict[str, str]]:
    """The results of a contest, and for those who could not take part why; `budget` is in seconds for each rival."""
    results, absent = [], {}
    for name, make in contest.rivals.items():
        try:
            results.append(_duel(contest, make(), budget))
        except Exception as error:  # of others' code, or of what it needs
            absent[f"{name} on {contest.problem}"] = f"{type(error).__name__}: {error}".splitlines()[0]
    return results, absent


def _duel(contest: Contest, rival: Rival, budget: float) -> Result:
    rival.ours()
    answer = rival.theirs()  # the first call compiles and loads
    distance = None if rival.distance is None else rival.distance(answer)
    repeats = [_repeats(rival.ours), _repeats(rival.theirs)]
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < LEAST_ROUNDS or (len(times) < MOST_ROUNDS and time.perf_counter() - start < budget):
        ours, theirs = (_turn(work, count) for work, count in zip((rival.ours, rival.theirs), repeats, strict=True))
        times.append((ours, theirs))
    ours_ms, peer_ms = (1e3 * median(column) for column in zip(*times, strict=True))
    ratio = median(theirs / ours for ours, theirs in times)
    return Result(contest.problem, contest.cells, rival.name, rival.timed, ours_ms, peer_ms, ratio, distance)


def _repeats(work: Work) -> int:
    """Calls that take a turn's time."""
    count = 1
    while (taken := _turn(work, count) * count) < LEAST_TURN:
        count = max(2 * count, int(count * LEAST_TURN / max(taken, 1e-6)))
    return count


def _turn(work: Work, count: int) -> float:
    """CPU seconds for one call."""
    return timed(lambda: [work() for _ in range(count)])[1] / count

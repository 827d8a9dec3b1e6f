"""One problem, our answer and those of others, timed interleaved."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
    judged: Mapping[str, float | None] = field(default_factory=dict)


def distance_from(x: NDArray, variances: NDArray) -> Callable[[NDArray], float]:
    """How far an answer is from `x` at most, in standard errors, where these are not 0."""

    def distance(answer: NDArray) -> float:
        errors = np.sqrt(variances).reshape(-1, *[1] * (x.ndim - 1))
        off = np.divide(abs(answer - x), errors, out=np.zeros_like(x), where=errors > 0)
        return float(off.max(initial=0.0))

    return distance


def held(contest: Contest, budget: float, absent: dict[str, str]) -> Iterator[Result]:
    """The results of a contest; those who cannot take part are told why. `budget` is in seconds for each rival."""
    for name, make in contest.rivals.items():
        try:
            found = Result(contest.problem, contest.cells, name, *_duel(make(), budget))
        except Exception as error:  # of others' code, or of what it needs
            absent[f"{name} on {contest.problem}"] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            yield found


def _duel(rival: Rival, budget: float) -> tuple[Any, ...]:
    """The figures of a result."""
    rival.ours()
    answer = rival.theirs()  # the first call compiles and loads
    judged = rival.distance(answer), rival.judged(answer)
    pair = [(work, _repeats(work)) for work in (rival.ours, rival.theirs)]
    times: list[list[float]] = []
    start = time.perf_counter()
    while len(times) < LEAST_ROUNDS or (len(times) < MOST_ROUNDS and time.perf_counter() - start < budget):
        times.append([_turn(*own) for own in pair])
    ours, theirs = (1e3 * median(column) for column in zip(*times, strict=True))
    return rival.timed, ours, theirs, median(own[1] / own[0] for own in times), *judged


def _repeats(work: Work) -> int:
    """Calls that take a turn's time."""
    count = 1
    while (taken := _turn(work, count) * count) < LEAST_TURN:
        count = max(2 * count, int(count * LEAST_TURN / max(taken, 1e-6)))
    return count


def _turn(work: Work, count: int) -> float:
    """CPU seconds for one call."""
    return timed(lambda: [work() for _ in range(count)])[1] / count

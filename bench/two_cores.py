"""What two threads give: an estimate on one and on two, beside a copy and two estimates at once, interleaved.

    python -m bench two_cores               seven large problems, about three minutes
    python -m bench two_cores --quick       two of them, few rounds
    python -m bench two_cores --rounds 100  more rounds, for a machine that others use

Every case is one process. In each round everything is timed once, one after another, by the clock on the wall, into
memory at hand; the figures are of the shortest times, since others who use the machine only ever make them longer.
"copy" is what two threads give where half of a copy each is all that they do, and "apart" what two whole estimates on a
thread each give, which is all that sharing one among two could reach.

Where others take up the processors no clock shows what two would give. "by parts" is worked out from CPU time:
that of the parts that threads share, each going to the thread that is free first, and of all else. It leaves out that
two threads wait for the same memory, and "alone ms" is what nothing shares.
"""

import heapq
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bench.measuring import keep_freed_memory, parser_of, print_apart, timed
from bench.problems import PROBLEMS
from blue_solvers import blue, thread_limit
from blue_solvers.threads import Workers

CASES = ("adult", "50 x 10", "dhc", "7^7", "16 cells", "16 cells x 8", "2,016 cells")
QUICK = ("7^7", "16 cells")
ROUNDS, QUICK_ROUNDS = 30, 5


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = parser_of("two_cores", __doc__, "two problems, few rounds")
    parser.add_argument("--rounds", type=int, help="how often everything is timed")
    options = parser.parse_args(argv)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, shortest of {rounds}")
    print_apart("two_cores", {name: (name, rounds) for name in (QUICK if options.quick else CASES)})


def measure(name: str, rounds: int) -> dict[str, float]:
    """Figures of one case, in this process."""
    keep_freed_memory()
    problem = PROBLEMS[name]()
    P = blue(problem)
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    source = np.concatenate([y, P @ y])
    place, half = np.empty_like(source), source.size // 2
    halves = (slice(0, half), slice(half, None))

    def on(threads: int) -> None:
        with thread_limit(threads):
            P @ y

    with ThreadPoolExecutor(2) as pool, thread_limit(1):
        runs: list[Callable[[], object]] = [
            lambda: on(1),
            lambda: on(2),
            lambda: np.copyto(place, source),
            lambda: list(pool.map(lambda own: np.copyto(place[own], source[own]), halves)),
            lambda: list(pool.map(lambda _: P @ y, range(2))),
        ]
        times = np.array([[timed(run, time.perf_counter)[1] for run in runs] for _ in range(rounds + 1)])[1:]
    one, two, copy, copy_of_two, apart = times.min(axis=0).tolist()
    parts = _by_parts(lambda: P @ y, rounds)
    return {
        "MB in and out": source.nbytes / 1e6,
        "one thread ms": 1e3 * one,
        "two ms": 1e3 * two,
        "times as fast": one / two,
        "apart": 2 * one / apart,
        "copy": copy / copy_of_two,
        "by parts": parts["processor"] / parts["by parts"],
        "alone ms": 1e3 * parts["alone"],
    }


def _by_parts(run: Callable[[], object], rounds: int) -> dict[str, float]:
    """Shortest CPU time on one thread, of parts shared among two with all else, and of what is not in parts."""
    pieces: list[list[float]] = []

    def for_each(workers: Workers, work: Callable[[Any], Any], items: Iterable[Any]) -> None:
        seconds = [timed(partial(work, item), time.thread_time)[1] for item in items]
        if len(seconds) > 1:
            pieces.append(seconds)

    as_it_is, found = Workers.for_each, []
    for _ in range(rounds):
        with thread_limit(1):
            processor = timed(run, time.thread_time)[1]
        pieces.clear()
        Workers.for_each = for_each  # type: ignore[method-assign]
        try:
            with thread_limit(2):
                whole = timed(run, time.thread_time)[1]
        finally:
            Workers.for_each = as_it_is  # type: ignore[method-assign]
        alone = whole - sum(map(sum, pieces))
        found.append((processor, alone + sum(map(_shared, pieces)), alone))
    return dict(zip(("processor", "by parts", "alone"), np.min(found, axis=0).tolist(), strict=True))


def _shared(seconds: list[float]) -> float:
    """How long two threads take for parts, each going to the one that is free first."""
    threads = [0.0, 0.0]
    for own in seconds:
        heapq.heapreplace(threads, threads[0] + own)
    return max(threads)

"""What two threads give: an estimate on one and on two, beside a copy and two estimates at once, in turns.

    python -m bench two_cores               seven problems of 10 MB or more, about three minutes
    python -m bench two_cores --quick       two of them, few rounds
    python -m bench two_cores --rounds 100  more rounds, for a machine that others use

Every case is one process. In each round everything is timed once, one after another, by the clock on the wall, into
memory at hand; the figures are of the shortest times, since others who use the machine only ever make them longer.
"copy" is what two threads give where half of a copy each is all that they do, and "apart" what two whole estimates on a
thread each give, which is all that sharing one among two could reach. "median" is of the rounds' own ratios.

Where others take up the processors no clock shows what two would give. "by parts" is worked out from processor time:
that of the parts that threads share, each going to the thread that is free first, and of all else. It leaves out that
two threads wait for the same memory, and "alone ms" is what nothing shares.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.measuring import in_own_process, print_table
from bench.spine import keep_freed_memory, problem_of_a_state
from blue_solvers import blue, thread_limit
from blue_solvers.threads import Workers
from constraint_builders import Problem, gallery

CASES: dict[str, Callable[[], Problem]] = {
    "Adult up to three-way": gallery.adult,
    "50 x 10 up to three-way": gallery.wide,
    "DHC": gallery.dhc,
    "7^7": lambda: gallery.cube(7, 7),
    "16 cells": lambda: problem_of_a_state("16", 1),
    "16 cells x 8": lambda: problem_of_a_state("16", 8),
    "2,016 cells": lambda: problem_of_a_state("2016", 1),
}
QUICK = ("7^7", "16 cells")
ROUNDS, QUICK_ROUNDS = 30, 5
TIMEOUT = 900.0
HEADER = ["case", "MB in and out", "one thread ms", "two ms", "times as fast", "median", "apart", "copy", "x copy",
          "by parts", "alone ms"]  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench two_cores", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two problems, few rounds")
    parser.add_argument("--rounds", type=int, help="how often everything is timed")
    parser.add_argument("--only", help="cases whose name has this in it")
    options = parser.parse_args(argv)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, shortest of {rounds}")
    rows = []
    for name in QUICK if options.quick else CASES:
        if options.only and options.only not in name:
            continue
        output = in_own_process("bench.two_cores", name, str(rounds), timeout=TIMEOUT)
        try:
            rows.append([name, *_row(json.loads(output))])
        except json.JSONDecodeError:
            rows.append([name, output.strip()[-100:], *[""] * (len(HEADER) - 2)])
    print_table(HEADER, rows)


def _row(figures: dict[str, float]) -> list[str]:
    one, copy = figures["one"], figures["copy"]
    return [
        f"{figures['bytes'] / 1e6:,.0f}",
        f"{1e3 * one:.2f}",
        f"{1e3 * figures['two']:.2f}",
        f"{one / figures['two']:.2f}",
        f"{figures['median']:.2f}",
        f"{2 * one / figures['apart']:.2f}",
        f"{copy / figures['copy of two']:.2f}",
        f"{one / copy:.1f}",
        f"{figures['processor'] / figures['by parts']:.2f}",
        f"{1e3 * figures['alone']:.2f}",
    ]


def measure(name: str, rounds: int) -> dict[str, float]:
    """Seconds of one case, in this process."""
    keep_freed_memory()
    problem = CASES[name]()
    P = blue(problem)
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    result = P @ y
    source = np.concatenate([y, result])
    place, half = np.empty_like(source), source.size // 2
    halves = (slice(0, half), slice(half, None))

    def on(threads: int) -> None:
        with thread_limit(threads):
            P @ y

    with ThreadPoolExecutor(2) as pool, thread_limit(1):
        runs: dict[str, Callable[[], object]] = {
            "one": lambda: on(1),
            "two": lambda: on(2),
            "copy": lambda: np.copyto(place, source),
            "copy of two": lambda: list(pool.map(lambda own: np.copyto(place[own], source[own]), halves)),
            "apart": lambda: list(pool.map(lambda _: P @ y, range(2))),
        }
        times = np.array([[_seconds(run) for run in runs.values()] for _ in range(rounds + 1)])[1:]
    shortest = dict(zip(runs, times.min(axis=0).tolist(), strict=True))
    median = float(np.median(times[:, 0] / times[:, 1]))
    return shortest | {"median": median, "bytes": float(source.nbytes)} | _by_parts(lambda: P @ y, rounds)


def _by_parts(run: Callable[[], object], rounds: int) -> dict[str, float]:
    """Shortest processor time on one thread, of parts shared among two with all else, and of what is not in parts."""
    pieces: list[list[float]] = []

    def in_order(workers: Workers, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        if len(items) < 2:
            yield from map(work, items)
            return
        pieces.append([])
        for item in items:
            start = time.thread_time()
            result = work(item)
            pieces[-1].append(time.thread_time() - start)
            yield result

    as_it_is, found = Workers.in_order, []
    for _ in range(rounds):
        with thread_limit(1):
            start = time.thread_time()
            run()
            processor = time.thread_time() - start
        pieces.clear()
        Workers.in_order = in_order  # type: ignore[method-assign]
        try:
            with thread_limit(2):
                start = time.thread_time()
                run()
                whole = time.thread_time() - start
        finally:
            Workers.in_order = as_it_is  # type: ignore[method-assign]
        alone = whole - sum(map(sum, pieces))
        found.append((processor, alone + sum(map(_shared, pieces)), alone))
    return dict(zip(("processor", "by parts", "alone"), np.min(found, axis=0).tolist(), strict=True))


def _shared(seconds: list[float]) -> float:
    """How long two threads take for parts, each going to the one that is free first."""
    threads = [0.0, 0.0]
    for own in seconds:
        heapq.heapreplace(threads, threads[0] + own)
    return max(threads)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))

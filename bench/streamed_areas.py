"""Areas that cross inside parts, streamed beside the same in memory: seconds, and the peak memory of each process.

    python -m bench streamed_areas            Rhode Island with a second partition of every tract's blocks, at 16 cells
                                              cut at counties, at tracts and by memory, at 2,016 cells the same without
                                              tracts
    python -m bench streamed_areas --quick    at 16 cells cut at counties

Each figure is of a process of its own, with its imports in its memory: describing, estimating and all variances in
memory; cutting into parts, which holds the measurements; and streaming, which reads and writes files, without proof.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.areas import with_second_partition
from bench.measuring import figures_apart, is_quick, peak_bytes, print_table, timed
from bench.problems import block_geoids, state
from blue_solvers import blue
from blue_solvers.streaming import Partitions, partition, stream

TIMEOUT = 1200.0
QUICK = [("16", "County")]
FULL = [("16", "County"), ("16", "Tract"), ("16", "24e6"), ("2016", "County"), ("2016", "1e9")]  # layers, or bytes
HEADER = ["cells", "cut at", "parts", "in memory s", "peak GB", "cut s", "peak GB", "stream s", "peak GB"]


def main(argv: list[str]) -> None:
    """Print the table, three processes a row."""
    quick = is_quick(argv, "streamed_areas", __doc__, "the smallest case")
    print(block_geoids()[0])
    print_table(HEADER, (list(_row(*case)) for case in (QUICK if quick else FULL)))


def _row(size: str, at: str) -> Iterator[object]:
    with tempfile.TemporaryDirectory() as folder:
        steps = ("memory", "cut", "stream")
        found = [figures_apart("streamed_areas", step, size, at, folder, timeout=TIMEOUT) for step in steps]
        yield from (size, at, len(Partitions.open(Path(folder) / "in").parts))
        for own in found:
            yield from (own, "") if isinstance(own, str) else own


def measure(step: str, size: str, at: str, folder: str) -> tuple[float, float]:
    """Processor seconds of one step, and the peak of this process in GB."""
    place = Path(folder)
    if step == "stream":
        seconds = timed(lambda: stream(place / "in", place / "out", certify=False))[1]
        return seconds, peak_bytes() / 1e9
    alone = state(size)
    problem, described = timed(lambda: with_second_partition(alone))
    y = np.round(np.random.default_rng(0).normal(0, 10, problem.observed.size))
    where = {"memory": float(at)} if at[0].isdigit() else {"at": at}

    def estimates() -> None:
        P = blue(problem)
        assert (P @ y).size == P.variances().size

    seconds = timed((lambda: partition(place / "in", problem, y, **where)) if step == "cut" else estimates)[1]
    return described + seconds, peak_bytes() / 1e9

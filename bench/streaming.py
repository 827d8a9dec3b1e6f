"""Streaming by subtree beside the passes in memory, of a spine and of areas that cross; two workers beside one.

    python -m bench streaming            Rhode Island at 2,016 cells a geounit, cut at its counties and at its tracts;
                                         with areas that cross inside parts, cut at counties, at tracts and by memory
    python -m bench streaming --quick    at 16 cells, cut at counties

Each figure is of a process of its own, in processor seconds and peak memory with its imports: describing, estimating
and all variances in memory; cutting into parts, which holds the measurements; and streaming, which reads and writes
files, without proof. Areas that cross are a second partition of every tract's blocks. Then wall-clock seconds with
proof at 16 cells, in this process and by one and two Dask workers.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from bench.areas import with_second_partition
from bench.measuring import figures_apart, is_quick, peak_bytes, print_table, timed
from bench.problems import block_geoids, state
from blue_solvers import blue
from blue_solvers.streaming import Partitions, partition, stream
from constraint_builders import Problem
from constraint_builders.arrays import Float

TIMEOUT = 1200.0
QUICK = [("spine", "16", "County"), ("areas", "16", "County")]
CASES = [  # of areas too by layers, or by bytes
    *(("spine", "2016", at) for at in ("County", "Tract")),
    *(("areas", "16", at) for at in ("County", "Tract", "24e6")),
    *(("areas", "2016", at) for at in ("County", "1e9")),
]
HEADER = ["of", "cells", "cut at", "parts", "in memory s", "peak GB", "cut s", "peak GB", "stream s", "peak GB"]


def main(argv: list[str]) -> None:
    """Print both tables."""
    quick = is_quick(argv, "streaming", __doc__, "16 cells a geounit")
    print(block_geoids()[0])
    print_table(HEADER, (list(_apart(*case)) for case in (QUICK if quick else CASES)), ["spine"])
    head = ["cut at", "parts", "stream s", "one worker s", "two workers s"]
    print_table(head, (list(_workers(at)) for at in (("County",) if quick else ("Tract",))))


def _apart(kind: str, size: str, at: str) -> Iterator[object]:
    with tempfile.TemporaryDirectory() as folder:
        steps = ("memory", "cut", "stream")
        found = [figures_apart("streaming", step, kind, size, at, folder, timeout=TIMEOUT) for step in steps]
        yield from (kind, size, at, len(Partitions.open(Path(folder) / "in").parts))
        for own in found:
            yield from (own, "") if isinstance(own, str) else own


def measure(step: str, kind: str, size: str, at: str, folder: str) -> tuple[float, float]:
    """Processor seconds of one step, and the peak of this process in GB."""
    place = Path(folder)
    if step == "stream":
        seconds = timed(lambda: stream(place / "in", place / "out", certify=False))[1]
        return seconds, peak_bytes() / 1e9
    alone = state(size)
    problem, described = timed(lambda: with_second_partition(alone) if kind == "areas" else alone)
    y = _measured(problem)
    where = {"memory": float(at)} if at[0].isdigit() else {"at": at}
    cut = partial(partition, place / "in", problem, y, **where)
    seconds = timed(cut if step == "cut" else partial(_in_memory, problem, y))[1]
    return described + seconds, peak_bytes() / 1e9


def _measured(problem: Problem) -> Float:
    return np.round(np.random.default_rng(0).normal(0, 10, problem.observed.size))


def _in_memory(problem: Problem, y: Float) -> tuple[Float, Float]:
    P = blue(problem)
    return P @ y, P.variances()


def _workers(at: str) -> Iterator[object]:
    """A row of the second table."""
    problem = state("16")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        partition(place / "in", problem, _measured(problem), at=at)
        yield from (at, len(Partitions.open(place / "in").parts))
        yield timed(lambda: stream(place / "in", place / "out"), time.perf_counter)[1]
        yield from (_on_cluster(place, workers) for workers in (1, 2))


def _on_cluster(place: Path, workers: int) -> float:
    import dask
    from distributed import Client, LocalCluster

    from blue_solvers.streaming.cluster import estimate

    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    space = place / f"space{workers}"
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "local_directory": space}
    # A fork of a process with polars' threads would wait for them for ever; the cluster's scratch files go with ours.
    own = {"distributed.worker.multiprocessing-method": "spawn", "temporary-directory": str(place)}
    with dask.config.set(own), LocalCluster(**options) as local, Client(local) as client:
        client.submit(int).result()
        work = partial(estimate, client, place / "in", place / f"out{workers}")
        return timed(work, time.perf_counter)[1]

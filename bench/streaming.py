"""Streaming by subtree beside the passes in memory and one read and write of the files; two workers beside one.

    python -m bench streaming            Rhode Island at 2,016 cells a geounit, cut at its counties
    python -m bench streaming --quick    at 16 cells

Wall-clock seconds: cutting into parts; preparing, estimating and variances in memory; streaming; reading and writing
all files once; one and two Dask workers. "input" and "output" are bytes of files.
"""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.measuring import parser_of, print_table, timed
from bench.problems import state
from blue_solvers import TwoPass, blue
from blue_solvers.streaming import Partitions, partition, stream
from constraint_builders import Problem
from constraint_builders.arrays import Float

BOUND = "stream / (2 memory + read + write)"
wall = partial(timed, clock=time.perf_counter)


def main(argv: list[str]) -> None:
    """Print the figures."""
    parser = parser_of("streaming", __doc__, "16 cells a geounit")
    parser.add_argument("--at", default="County", help="geolevel of the cut (County)")
    parser.add_argument("--memory", type=float, help="limit of streaming, bytes (none)")
    options = parser.parse_args(argv)
    problem = state("16" if options.quick else "2016")
    y = np.round(np.random.default_rng(0).normal(0, 10, problem.observed.size))
    found = measure_streaming(problem, y, options.at, options.memory)
    found[BOUND] = found["stream"] / (2 * found["memory"] + found["read"] + found["write"])
    print_table(found, [list(found.values())])


def measure_streaming(problem: Problem, y: Float, at: str, memory: float | None = None) -> dict[str, float]:
    """Seconds of streaming a problem cut at a geolevel under a limit of bytes, and of what it is compared with."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found["partition"] = wall(lambda: partition(place / "in", problem, y, at=at))[1]
        found["memory"] = wall(lambda: _in_memory(problem, y))[1]
        found["stream"] = wall(lambda: stream(place / "in", place / "out", memory=memory))[1]
        inputs, outputs = list((place / "in").glob("*/*")), list((place / "out").glob("*.parquet/*"))
        parts = Partitions.open(place / "in")
        found["read"] = wall(lambda: [parts.read(name) for name in (*parts.parts, "top")])[1]
        frames = [pl.read_parquet(path) for path in outputs]
        found["write"] = wall(lambda: [_write(frame, place / f"copy{i}") for i, frame in enumerate(frames)])[1]
        found["input"], found["output"] = (float(sum(path.stat().st_size for path in own)) for own in (inputs, outputs))
        found["parts"] = float(len(parts.parts))
        found["one worker"], found["two workers"] = (_on_cluster(place, workers) for workers in (1, 2))
    return found


def _in_memory(problem: Problem, y: Float) -> tuple[Float, Float]:
    P = blue(problem, TwoPass())
    return P @ y, P.variances()


def _write(frame: pl.DataFrame, path: Path) -> None:
    frame.write_parquet(path, compression="lz4", statistics=False)


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
        return wall(lambda: estimate(client, place / "in", place / f"out{workers}"))[1]

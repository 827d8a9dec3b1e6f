"""Streaming by subtree beside the passes in memory and one read and write of the files; two workers beside one.

    python -m bench streaming            Rhode Island at 2,016 cells a geounit, cut at its counties; then with areas
                                         that cross inside parts, cut at counties, at tracts and by memory
    python -m bench streaming --quick    at 16 cells, cut at counties

Wall-clock seconds: cutting into parts; preparing, estimating and variances in memory; streaming; reading and writing
all files once; one and two Dask workers. "input" and "output" are bytes of files.

Areas that cross are a second partition of every tract's blocks. Each figure is of a process of its own, in processor
seconds and peak memory with its imports: describing, estimating and all variances in memory; cutting into parts, which
holds the measurements; and streaming, which reads and writes files, without proof.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from bench.areas import with_second_partition
from bench.measuring import figures_apart, parser_of, peak_bytes, print_table, timed
from bench.problems import block_geoids, state
from blue_solvers import blue
from blue_solvers.streaming import Partitions, partition, stream
from constraint_builders import Problem
from constraint_builders.arrays import Float

BOUND = "stream / (2 memory + read + write)"
TIMEOUT = 1200.0
QUICK = [("16", "County")]
CROSSING = [("16", "County"), ("16", "Tract"), ("16", "24e6"), ("2016", "County"), ("2016", "1e9")]  # layers, or bytes
HEADER = ["cells", "cut at", "parts", "in memory s", "peak GB", "cut s", "peak GB", "stream s", "peak GB"]
wall = partial(timed, clock=time.perf_counter)


def main(argv: list[str]) -> None:
    """Print both tables."""
    parser = parser_of("streaming", __doc__, "16 cells a geounit")
    parser.add_argument("--at", default="County", help="geolevel of the cut (County)")
    parser.add_argument("--memory", type=float, help="limit of streaming, bytes (none)")
    options = parser.parse_args(argv)
    print(block_geoids()[0])
    problem = state("16" if options.quick else "2016")
    found = measure_streaming(problem, _measured(problem), options.at, options.memory)
    found[BOUND] = found["stream"] / (2 * found["memory"] + found["read"] + found["write"])
    print_table(found, [list(found.values())])
    print_table(HEADER, (list(_crossing(*case)) for case in (QUICK if options.quick else CROSSING)))


def _crossing(size: str, at: str) -> Iterator[object]:
    with tempfile.TemporaryDirectory() as folder:
        steps = ("memory", "cut", "stream")
        found = [figures_apart("streaming", step, size, at, folder, timeout=TIMEOUT) for step in steps]
        yield from (size, at, len(Partitions.open(Path(folder) / "in").parts))
        for own in found:
            yield from (own, "") if isinstance(own, str) else own


def measure(step: str, size: str, at: str, folder: str) -> tuple[float, float]:
    """Processor seconds of one step where areas cross, and the peak of this process in GB."""
    place = Path(folder)
    if step == "stream":
        seconds = timed(lambda: stream(place / "in", place / "out", certify=False))[1]
        return seconds, peak_bytes() / 1e9
    alone = state(size)
    problem, described = timed(lambda: with_second_partition(alone))
    y = _measured(problem)
    where = {"memory": float(at)} if at[0].isdigit() else {"at": at}
    cut = partial(partition, place / "in", problem, y, **where)
    seconds = timed(cut if step == "cut" else partial(_in_memory, problem, y))[1]
    return described + seconds, peak_bytes() / 1e9


def _measured(problem: Problem) -> Float:
    return np.round(np.random.default_rng(0).normal(0, 10, problem.observed.size))


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
    P = blue(problem)
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

"""Streaming by subtree beside the passes in memory and one read and write of the files; two workers beside one.

python -m bench streaming            Rhode Island at 2,016 cells a geounit, cut at its counties
python -m bench streaming --quick    at 16 cells
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from bench.measuring import print_table
from bench.spine import problem_of_a_state
from blue_solvers import TwoPass, blue
from blue_solvers.streaming import Partitions, partition, stream
from constraint_builders import Problem


def measure_streaming(
    problem: Problem, y: NDArray[np.float64], at: str, memory: float | None = None, cluster: bool = True
) -> dict[str, float]:
    """Seconds of streaming a problem cut at a geolevel, and of what it is compared with.

    Parameters
    ----------
    problem : Problem
        On a spine.
    y : ndarray, (n,)
    at : str
        Geolevel of the cut.
    memory : float, optional
        Limit of `stream`, bytes; what parts leave of it saves reading them twice.
    cluster : bool
        Whether to time one and two Dask workers too.

    Returns
    -------
    dict of str to float
        Wall-clock seconds: ``memory`` (prepare, estimate and variances in memory), ``read`` and ``write`` (all files
        once), ``partition``, ``stream``, with `cluster` also ``one worker`` and ``two workers``; numbers ``parts``,
        ``input`` and ``output`` (bytes of files).
    """
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found["partition"] = _seconds(lambda: partition(place / "in", problem, y, at=at))
        found["memory"] = _seconds(lambda: _in_memory(problem, y))
        found["stream"] = _seconds(lambda: stream(place / "in", place / "out", memory=memory))
        inputs, outputs = list((place / "in").glob("*/*")), list((place / "out").glob("*.parquet/*"))
        found["read"] = _seconds(lambda: [pl.read_parquet(path) for path in inputs])
        frames = {path: pl.read_parquet(path) for path in outputs}
        (place / "copy").mkdir()
        found["write"] = _seconds(lambda: _write(frames, place / "copy"))
        found["input"], found["output"] = (float(sum(path.stat().st_size for path in own)) for own in (inputs, outputs))
        found["parts"] = float(len(Partitions.open(place / "in").parts))
        if cluster:
            found["one worker"], found["two workers"] = (_on_cluster(place, workers) for workers in (1, 2))
    return found


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _in_memory(problem: Problem, y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    P = blue(problem, TwoPass())
    return P @ y, P.variances()


def _write(frames: dict[Path, pl.DataFrame], folder: Path) -> None:
    for number, frame in enumerate(frames.values()):
        frame.write_parquet(folder / str(number), compression="lz4", statistics=False)


def _on_cluster(place: Path, workers: int) -> float:
    import dask
    from distributed import Client, LocalCluster

    from blue_solvers.streaming.cluster import estimate

    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    space = place / f"space{workers}"
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, "local_directory": space}
    # A fork of a process with polars' threads would wait for them for ever.
    spawn = dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})
    with spawn, LocalCluster(**options) as local, Client(local) as client:
        client.submit(int).result()
        return _seconds(lambda: estimate(client, place / "in", place / f"out{workers}"))


def main(argv: list[str]) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench streaming", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="16 cells a geounit")
    parser.add_argument("--at", default="County", help="geolevel of the cut (County)")
    parser.add_argument("--memory", type=float, help="limit of streaming, bytes (none)")
    parser.add_argument("--no-cluster", action="store_true", help="without Dask")
    options = parser.parse_args(argv)
    problem = problem_of_a_state("16" if options.quick else "2016", 1)
    y = np.round(np.random.default_rng(0).normal(0, 10, problem.observed.size))
    found = measure_streaming(problem, y, options.at, options.memory, not options.no_cluster)
    bound = 2 * found["memory"] + found["read"] + found["write"]
    print_table([*found, "stream / (2 memory + read + write)"],
                [[f"{value:,.4g}" for value in found.values()] + [f"{found['stream'] / bound:.2f}"]])  # fmt: skip

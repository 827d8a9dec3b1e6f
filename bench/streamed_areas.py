"""Areas that cross inside parts, streamed beside the same in memory: seconds, and the peak memory of each process.

    python -m bench streamed_areas            Rhode Island with a second partition of every tract's blocks, at 16 cells
                                              cut at counties, at tracts and by memory, at 2,016 cells the same without
                                              tracts
    python -m bench streamed_areas --quick    at 16 cells cut at counties

Each figure is of a process of its own, with its imports in its memory: describing, estimating and all variances in
memory; cutting into parts, which holds the measurements; and streaming, which reads and writes files, without proof.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.areas import with_second_partition
from bench.invented_state import block_geoids
from bench.measuring import in_own_process, peak_bytes, print_table
from bench.spine import problem_of_a_state
from blue_solvers import blue
from blue_solvers.streaming import Partitions, partition, stream

TIMEOUT = 1200.0
QUICK = [("16", "County")]
FULL = [("16", "County"), ("16", "Tract"), ("16", "24e6"), ("2016", "County"), ("2016", "1e9")]  # layers, or bytes
HEADER = ["cells", "cut at", "parts", "in memory s", "peak GB", "cut s", "peak GB", "stream s", "peak GB"]


def main(argv: list[str]) -> None:
    """Print the table, three processes a row."""
    parser = argparse.ArgumentParser(prog="python -m bench streamed_areas", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest case")
    options = parser.parse_args(argv)
    print(block_geoids()[0])
    rows = []
    for size, at in QUICK if options.quick else FULL:
        with tempfile.TemporaryDirectory() as folder:
            row = [size, at]
            for step in ("memory", "cut", "stream"):
                output = in_own_process("bench.streamed_areas", step, size, at, folder, timeout=TIMEOUT)
                try:
                    row += [f"{figure:,.2f}" for figure in json.loads(output)]
                except json.JSONDecodeError:
                    row += [output.strip()[-100:], ""]
            row.insert(2, str(len(Partitions.open(Path(folder) / "in").parts)))
        rows.append(row)
    print_table(HEADER, rows)


def measure(step: str, size: str, at: str, folder: Path) -> tuple[float, float]:
    """Processor seconds of one step, and the peak of this process in GB."""
    if step == "stream":
        start = time.process_time()
        stream(folder / "in", folder / "out", certify=False)
        return time.process_time() - start, peak_bytes() / 1e9
    alone = problem_of_a_state(size, 1)
    start = time.process_time()
    problem = with_second_partition(alone)
    described = time.process_time() - start
    y = np.round(np.random.default_rng(0).normal(0, 10, problem.observed.size))
    start = time.process_time()
    if step == "cut":
        if at[0].isdigit():
            partition(folder / "in", problem, y, memory=float(at))
        else:
            partition(folder / "in", problem, y, at=at)
    else:
        P = blue(problem)
        x, variances = P @ y, P.variances()
        assert x.size == variances.size
    return described + time.process_time() - start, peak_bytes() / 1e9


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:4], Path(sys.argv[4]))))

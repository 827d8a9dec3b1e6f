"""The two passes over the blocks of a state: seconds and memory beside the time to copy input and output once.

    python -m bench spine             16 and 2,016 cells a geounit, replicated states, projection to the country
    python -m bench spine --quick     16 cells only

The state is Rhode Island of 2010 where the shared data folder is at hand, otherwise an invented one of its shape. Noise
has the variances of the 2020 redistricting release, as far as a state alone has them. At 2,016 cells the detailed
tables of all levels are desired; the counts are noise, since only speed is measured here.

A copy costs what its memory costs, so both it and the apply are timed twice, in turns: into new memory, which the
system has to clear and map page by page, and into memory that the process has used before and kept. The target, 5 times
the copy, refers to new memory: every apply and every copy returns a new array, and the copy of 1.2 s that the target
was set beside is that of new memory. The ratio in memory at hand is the stricter one: nothing there hides the passes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from bench.invented_state import block_geoids
from bench.measuring import in_own_process, peak_bytes, print_table
from blue_solvers import TwoPass, blue
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.files.settings import production_settings

NATION_BLOCKS = 8_100_000
TIMEOUT = 900.0
REPEATS = 5
CASES = {"16 cells": ("16", 1), "2,016 cells": ("2016", 1), "16 cells x 2": ("16", 2), "16 cells x 4": ("16", 4),
         "16 cells x 8": ("16", 8)}  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench spine", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="16 cells only")
    options = parser.parse_args(argv)
    print(block_geoids()[0])
    rows = []
    for name, (cells, copies) in CASES.items():
        if options.quick and name != "16 cells":
            continue
        output = in_own_process("bench.spine", cells, str(copies), timeout=TIMEOUT)
        try:
            rows.append([name, *_row(json.loads(output))])
        except json.JSONDecodeError:
            rows.append([name, output.strip()[-100:], *[""] * 11])
    header = ["case", "geounits", "cells in", "out", "describe s", "plan s", "apply s", "x copy",
              "at hand s", "x copy", "variances s", "peak, x in+out", "country: hours, disk"]  # fmt: skip
    print_table(header, rows)


def _row(figures: dict[str, float]) -> list[str]:
    share = figures["apply"] / figures["geounits"] * NATION_BLOCKS
    disk = (figures["in"] + figures["out"]) * 8 / figures["geounits"] * NATION_BLOCKS
    return [
        f"{figures['geounits']:,.0f}",
        f"{figures['in']:,.0f}",
        f"{figures['out']:,.0f}",
        f"{figures['describe']:.2f}",
        f"{figures['plan']:.2f}",
        f"{figures['apply']:.3f}",
        f"{figures['apply'] / figures['copy']:.1f}",
        f"{figures['apply at hand']:.3f}",
        f"{figures['apply at hand'] / figures['copy at hand']:.1f}",
        f"{figures['variances']:.3f}",
        f"{figures['memory'] / 8 / (figures['in'] + figures['out']):.1f}",
        f"{share / 3600:.2f} h, {disk / 1e9:,.0f} GB",
    ]


def measure(cells: str, copies: int) -> dict[str, float]:
    """Figures of one case, in this process; processor time, since the machine is shared."""
    start = time.process_time()
    problem = problem_of_a_state(cells, copies)
    describe = time.process_time() - start
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    start = time.process_time()
    P = blue(problem, TwoPass())
    plan = time.process_time() - start
    before = peak_bytes() - y.nbytes
    x = P @ y
    memory = peak_bytes() - before
    apply, copy, variances = processor_seconds(lambda: P @ y, lambda: (y.copy(), x.copy()), P.variances)
    keep_freed_memory()
    apply_at_hand, copy_at_hand = processor_seconds(lambda: P @ y, lambda: (y.copy(), x.copy()))
    return {
        "geounits": float(problem.spine.size if problem.spine else 1),
        "in": float(y.size),
        "out": float(x.size),
        "describe": describe,
        "plan": plan,
        "apply": apply,
        "copy": copy,
        "apply at hand": apply_at_hand,
        "copy at hand": copy_at_hand,
        "variances": variances,
        "memory": float(memory),
    }


def processor_seconds(*runs: Callable[[], object]) -> list[float]:
    """Shortest of several times of each, taken in turns."""
    best = [np.inf] * len(runs)
    for _ in range(REPEATS):
        for i, run in enumerate(runs):
            start = time.process_time()
            result = run()
            best[i] = min(best[i], time.process_time() - start)
            del result
    return best


def keep_freed_memory() -> None:
    """Have the C library keep memory that is freed, instead of giving it back to the system (glibc's mallopt)."""
    trim_threshold, most_mapped = -1, -4
    library = ctypes.CDLL(None)
    if not (library.mallopt(trim_threshold, 2**31 - 1) and library.mallopt(most_mapped, 0)):
        raise OSError("this C library gives freed memory back to the system: no time in memory at hand")


def problem_of_a_state(cells: str, copies: int) -> Problem:
    """Redistricting tables of a state's blocks, at 16 or 2,016 cells, as one state or several."""
    _, geoids = block_geoids()
    widths = {"State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 15}
    if copies > 1:  # states that differ in their first digits, under one root
        geoids = [f"{copy:02}{geoid[2:]}" for copy in range(copies) for geoid in geoids]
    spine = Spine.from_geoids(geoids, widths, root="US" if copies > 1 else None)
    variances = production_settings("pl94_us_persons").variances()
    levels = [level for level in spine.levels if level != "US"]
    if cells == "16":
        schema = Schema({"votingage": 2, "race": 8})
        names = {"total": "total", "votingage": "votingage", "cenrace": "race", "detailed": "detailed"}
        return Problem(
            schema, {level: {n: variances[level][q] for q, n in names.items()} for level in levels}, spine=spine
        )
    schema = gallery.pl94().schema
    assert schema is not None
    observed = {level: dict(variances[level]) for level in levels}
    return Problem(schema, observed, spine=spine, desired={level: ["detailed"] for level in levels})


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))

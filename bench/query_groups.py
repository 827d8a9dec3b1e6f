"""Query groups of the persons' demographic and housing characteristics: two passes over 1 and over 9 geounits.

    python -m bench query_groups             without the detailed table, and with it at one geounit
    python -m bench query_groups --quick     one geounit

All age groups and relationship groups cross: 1,160 groups, one matrix of that size for every combination of the other
variables. Each case runs in a process of its own; seconds are of one processor, memory is the largest that the process
had beyond what it had once the problem was described. Targets: 5 s and 1 GB for one geounit, 0.2 s for each further.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from bench.measuring import in_own_process, peak_bytes, print_table
from blue_solvers import TwoPass, blue, projected_work
from constraint_builders import Problem, Spine
from constraint_builders.files.settings import production_settings

SPINES = {
    "1 geounit": ([-1], ["State"]),
    "1 + 8 geounits": ([-1] + [0] * 8, ["State"] + ["County"] * 8),
    "1 + 2 + 6 alike": ([-1, 0, 0, 1, 1, 1, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6),
    "1 + 2 + 6 not alike": ([-1, 0, 0, 1, 1, 2, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6),
}
DETAILED = "1 geounit, detailed"
TIMEOUT = 900.0


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench query_groups", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one geounit only")
    options = parser.parse_args(argv)
    rows = []
    for case in list(SPINES)[:1] if options.quick else [*SPINES, DETAILED]:
        output = in_own_process("bench.query_groups", case, timeout=TIMEOUT)
        try:
            figures = json.loads(output)
        except json.JSONDecodeError:
            rows.append([case, output.strip()[-100:]])
            continue
        names = "projected", "plan", "apply", "variances"
        seconds = [f"{figures[name]:.2f}" for name in names]
        rows.append([case, f"{figures['in']:,.0f}", *seconds, f"{figures['memory'] / 1e6:,.0f}"])
    header = ["case", "cells in", "projected s", "plan s", "apply s", "variances s", "peak MB"]
    print_table(header, [row + [""] * (len(header) - len(row)) for row in rows])


def problem_of(case: str) -> Problem:
    """The production run's tables at each geolevel."""
    settings = production_settings("dhc_us_persons")
    variances = settings.variances()
    if case == DETAILED:
        return Problem(settings.schema, variances["State"])
    parent, levels = SPINES[case]
    observed = {
        level: {name: own for name, own in variances[level].items() if name != "detailed"}
        for level in dict.fromkeys(levels)
    }
    return Problem(settings.schema, observed, spine=Spine(parent, levels))


def measure(case: str) -> dict[str, float]:
    """Figures of one case, in this process."""
    problem = problem_of(case)
    y = np.random.default_rng(0).standard_normal(problem.observed.size)
    projected = projected_work(problem).seconds
    before = peak_bytes()
    start = time.process_time()
    P = blue(problem, TwoPass())
    planned = time.process_time()
    P @ y
    applied = time.process_time()
    P.variances()
    return {
        "in": float(y.size),
        "projected": projected,
        "plan": planned - start,
        "apply": applied - planned,
        "variances": time.process_time() - applied,
        "memory": float(peak_bytes() - before),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))

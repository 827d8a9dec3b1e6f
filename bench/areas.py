"""Areas that cross, beside the spine alone: seconds of describing, preparing, an apply and all exact variances.

    python -m bench areas             Rhode Island at 16 and 2,016 cells with a second partition of every tract, a grid
                                      of 1,000 x 1,000 crossed levels, a tree of 8 million nodes, M5's 42,840 nodes by
                                      28 days and by day, week and month, PL94 and DHC persons of 5,000 blocks together
    python -m bench areas --quick     an invented state at 16 cells, a smaller grid, a smaller tree, fewer blocks

The second partition cuts every tract's blocks into groups of about 40 that cross its block groups, measured as these
are. An apply is timed in memory that the process keeps, in turns with that of the two passes over the spine alone. The
bars: an apply at most 2.5 times the spine's, all variances at most 2 applies.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable

import numpy as np

from bench.invented_state import block_geoids
from bench.measuring import in_own_process, print_table
from bench.spine import keep_freed_memory, problem_of_a_state, processor_seconds
from blue_solvers import TwoPass, blue
from constraint_builders import Areas, Problem, Schema, joint
from constraint_builders.files.settings import production_settings

TIMEOUT = 900.0
GROUP = 40  # blocks
SHIFT = 20
QUICK = {
    "16 cells": ("state", "16"),
    "grid 200 x 200": ("grid", "200"),
    "tree of 300,000": ("tree", "300000"),
    "joint, 500 blocks": ("joint", "500"),
}
FULL = {
    "16 cells": ("state", "16"),
    "2,016 cells": ("state", "2016"),
    "grid 1,000 x 1,000": ("grid", "1000"),
    "tree of 8,000,000": ("tree", "8000000"),
    "M5 x 28 days": ("series", "28"),
    "M5 x day, week, month": ("times", "28"),
    "joint, 5,000 blocks": ("joint", "5000"),
}
HEADER = ["case", "areas", "cells in", "out", "solver", "describe s", "prepare s", "apply s", "x spine",
          "variances s", "x apply"]  # fmt: skip


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    parser = argparse.ArgumentParser(prog="python -m bench areas", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller cases, in seconds")
    options = parser.parse_args(argv)
    print(block_geoids()[0])
    rows = []
    for name, case in (QUICK if options.quick else FULL).items():
        output = in_own_process("bench.areas", *case, timeout=TIMEOUT)
        try:
            rows.append([name, *_row(json.loads(output))])
        except json.JSONDecodeError:
            rows.append([name, output.strip()[-100:], *[""] * 9])
    print_table(HEADER, rows)


def _row(figures: dict[str, float | str]) -> list[str]:
    apply, spine, variances = (float(figures[name]) for name in ("apply", "spine", "variances"))
    return [
        f"{figures['areas']:,}",
        f"{figures['in']:,}",
        f"{figures['out']:,}",
        str(figures["solver"]),
        f"{figures['describe']:.2f}",
        f"{figures['prepare']:.2f}",
        f"{apply:.3f}",
        f"{apply / spine:.2f}" if spine else "",
        f"{variances:.3f}",
        f"{variances / apply:.1f}",
    ]


def measure(kind: str, size: str) -> dict[str, float | str]:
    """Figures of one case, in this process; processor time, since the machine is shared."""
    start = time.process_time()
    if kind == "state":
        alone: Problem | None = problem_of_a_state(size, 1)
        start = time.process_time()
        problem = with_second_partition(alone)
    else:
        alone, problem = None, OTHERS[kind](int(size))
    describe = time.process_time() - start
    start = time.process_time()
    P = blue(problem)
    prepare = time.process_time() - start
    keep_freed_memory()
    rng = np.random.default_rng(0)
    y = rng.standard_normal(problem.observed.size)
    variances = min(_first_variances(problem) for _ in range(2))
    runs: list[Callable[[], object]] = [lambda: P @ y]
    if alone is not None:
        Q, own = blue(alone, TwoPass()), rng.standard_normal(alone.observed.size)
        runs.append(lambda: Q @ own)
    apply, *spine = processor_seconds(*runs)
    assert problem.areas is not None
    return {
        "areas": problem.areas.size,
        "in": problem.observed.size,
        "out": problem.desired.size,
        "solver": P.info.solver,
        "describe": describe,
        "prepare": prepare,
        "apply": apply,
        "variances": variances,
        "spine": spine[0] if spine else 0.0,
    }


def _first_variances(problem: Problem) -> float:
    """Seconds of all variances, of an operator that has not worked them out before."""
    P = blue(problem)
    start = time.process_time()
    P.variances()
    return time.process_time() - start


def with_second_partition(alone: Problem) -> Problem:
    """A state's geounits as areas, and groups of every tract's blocks that cross its block groups."""
    spine, variances = alone.spine, alone.geounit_variances
    assert spine is not None
    assert variances is not None
    blocks = np.flatnonzero(spine.child_counts == 0)
    tract = spine.ancestors_at(blocks, spine.level_index("Tract"))
    order = np.argsort(tract, kind="stable")
    number = np.empty(blocks.size, dtype=np.int64)  # of every block within its tract
    number[order] = np.arange(blocks.size) - np.searchsorted(tract[order], tract[order])
    groups = tract * blocks.size + (number + SHIFT) // GROUP
    areas = Areas.from_spine(spine).with_layer("Group", groups)
    observed: dict[str, dict[str, float]] = {}
    for (level, table), own in zip(alone.observed.names, variances, strict=True):
        observed.setdefault(level, {})[table] = float(own[0])
    desired: dict[str, list[str]] = {}
    for level, table in alone.desired.names:
        desired.setdefault(level, []).append(table)
    observed["Group"], desired["Group"] = observed["Block_Group"], desired["Block_Group"]
    assert alone.schema is not None
    return Problem(alone.schema, observed, desired, areas=areas)


def grid(size: int) -> Problem:
    """Sales of every product in every region, with the totals of both measured, of one kind."""
    region, sold = np.divmod(np.arange(size**2), size)
    areas = Areas(size**2, {"All": np.zeros(size**2, dtype=int), "Region": region, "Product": sold})
    layers = {level: {"total": 1.0} for level in areas.levels}
    return Problem(Schema({"kind": 1}), layers, areas=areas)


def tree(nodes: int) -> Problem:
    """Areas that nest, five in each."""
    leaves = nodes * 4 // 5
    layers = {}
    for depth in range(int(np.log(leaves) / np.log(5)), 0, -1):
        layers[f"Layer {depth}"] = np.arange(leaves) // 5**depth
    areas = Areas(leaves, layers)
    rng = np.random.default_rng(0)
    observed = {
        level: {"total": rng.uniform(1, 2, own.size)} for level, own in zip(areas.levels, areas.members, strict=True)
    }
    return Problem(Schema({"kind": 1}), observed, areas=areas)


def series(days: int) -> Problem:
    """As many nodes as M5 has, in its twelve layers, forecast for every day."""
    areas = sold_in_stores()
    return Problem(
        Schema({"day": days}), {layer: {"day": 1.0 + i} for i, layer in enumerate(areas.levels)}, areas=areas
    )


def times(days: int) -> Problem:
    """The same, forecast for every day, week and month."""
    areas, day = sold_in_stores(), np.arange(days)
    schema = Schema({"day": days}, recodes={"day": {"week": day // 7, "month": (day >= 17).astype(int)}})
    forecasts = {layer: {"day": 1.0 + i, "week": 3.0 + i, "month": 9.0} for i, layer in enumerate(areas.levels)}
    return Problem(schema, forecasts, areas=areas)


def sold_in_stores() -> Areas:
    """3,049 products of 7 departments of 3 categories in 10 stores of 3 states, as M5 crosses them."""
    product, store = np.divmod(np.arange(30490), 10)
    department = np.searchsorted([416, 565, 1097, 1613, 2010, 2226], product, side="right")
    category = np.array([0, 0, 1, 1, 2, 2, 2])[department]
    state = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])[store]
    layers = {"State": state, "Store": store, "Category": category, "Department": department, "Product": product}
    areas = Areas(product.size, {"All": np.zeros(product.size, dtype=int), **layers})
    for first, second in itertools.product(("State", "Store"), ("Category", "Department")):
        areas = areas.cross(first, second)
    return areas.cross("State", "Product")


def joint_state(blocks: int) -> Problem:
    """PL94 persons, and the DHC's small tables, over block groups that cross, as shipped schemas have them."""
    number, problems = np.arange(blocks), []
    small = ["age_18_64_116 * relgq_4_groups", "age_18_64_116 * sex", "hispanic * sex", "popSehsdTargetsRelship"]
    pl94 = production_settings("pl94_us_persons")
    products = [
        (pl94.schema, list(pl94.variances()["Block"]), 0),
        (production_settings("dhc_us_persons").schema, small, 2),
    ]
    for schema, tables, by in products:
        layers = {"State": number * 0, "Tract": number // 25, "Group": (number + by) // 5}
        observed = {layer: {table: 2.0 + i for i, table in enumerate(tables)} for layer in (*layers, "Leaf")}
        areas = Areas([f"block {i}" for i in number], layers)
        problems.append(Problem(schema, observed, {"State": ["total"]}, areas=areas))
    desired = {"Tract (1)": ["votingage * hispanic", "sex"], "Leaf": ["total", "hhgq8lev"]}
    return joint(*problems, recodes={"hhgq": "hhgq8lev", "votingage": "votingage"}, desired=desired)


OTHERS = {"grid": grid, "tree": tree, "series": series, "times": times, "joint": joint_state}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2])))

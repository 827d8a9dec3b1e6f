"""Areas that cross, beside the spine alone: seconds of describing, preparing, an apply and all exact variances.

    python -m bench areas             Rhode Island at 16 and 2,016 cells with a second partition of every tract, a grid
                                      of 1,000 x 1,000 crossed levels, a tree of 8 million nodes, M5's 42,840 nodes by
                                      28 days and by day, week and month, PL94 and DHC persons of 5,000 blocks together
    python -m bench areas --quick     an invented state at 16 cells, a smaller grid, a smaller tree, fewer blocks

The second partition cuts every tract's blocks into groups of about 40 that cross its block groups, measured as these
are. An apply is timed in memory that the process keeps, interleaved with that of the two passes over the spine alone.
The bars: an apply at most 2.5 times the spine's, all variances at most 2 applies.
"""

from __future__ import annotations

import itertools

import numpy as np

from bench.measuring import is_quick, keep_freed_memory, print_apart, shortest, timed
from bench.problems import CATEGORY_OF_DEPARTMENT, ITEMS_OF_DEPARTMENT, STATE_OF_STORE, block_geoids, state
from blue_solvers import TwoPass, blue
from constraint_builders import Areas, Problem, Schema, joint
from constraint_builders.files.settings import production_settings

GROUP = 40  # blocks
SHIFT = 20
QUICK = {
    "16 cells": ("state", 16),
    "grid 200 x 200": ("grid", 200),
    "tree of 300,000": ("tree", 300_000),
    "joint, 500 blocks": ("joint", 500),
}
FULL = {
    "16 cells": ("state", 16),
    "2,016 cells": ("state", 2016),
    "grid 1,000 x 1,000": ("grid", 1000),
    "tree of 8,000,000": ("tree", 8_000_000),
    "M5 x 28 days": ("series", 28),
    "M5 x day, week, month": ("times", 28),
    "joint, 5,000 blocks": ("joint", 5000),
}


def main(argv: list[str]) -> None:
    """Print the table, one process a row."""
    quick = is_quick(argv, "areas", __doc__, "smaller cases, in seconds")
    print(block_geoids()[0])
    print_apart("areas", QUICK if quick else FULL)


def measure(kind: str, size: int) -> dict[str, float | str | None]:
    """Figures of one case, in this process."""
    alone = state(str(size)) if kind == "state" else None
    problem, describe = timed(lambda: with_second_partition(alone) if alone else OTHERS[kind](size))
    P, prepare = timed(lambda: blue(problem))
    keep_freed_memory()
    rng = np.random.default_rng(0)
    y = rng.standard_normal(problem.observed.size)
    variances = min(timed(blue(problem).variances)[1] for _ in range(2))  # not worked out before
    runs = [lambda: P @ y]
    if alone is not None:
        Q, own = blue(alone, TwoPass()), rng.standard_normal(alone.observed.size)
        runs.append(lambda: Q @ own)
    apply, *spine = shortest(*runs)
    return {
        "areas": problem.areas.size,
        "cells in": problem.observed.size,
        "out": problem.desired.size,
        "solver": P.info.solver,
        "describe s": describe,
        "prepare s": prepare,
        "apply s": apply,
        "x spine": apply / spine[0] if spine else None,
        "variances s": variances,
        "x apply": variances / apply,
    }


def with_second_partition(alone: Problem) -> Problem:
    """A state's geounits as areas, and groups of every tract's blocks that cross its block groups."""
    spine = alone.spine
    blocks = np.flatnonzero(spine.child_counts == 0)
    tract = spine.ancestors_at(blocks, spine.level_index("Tract"))
    order = np.argsort(tract, kind="stable")
    number = np.empty(blocks.size, dtype=np.int64)  # of every block within its tract
    number[order] = np.arange(blocks.size) - np.searchsorted(tract[order], tract[order])
    groups = tract * blocks.size + (number + SHIFT) // GROUP
    observed: dict[str, dict[str, float]] = {}
    for (level, table), own in zip(alone.observed.names, alone.geounit_variances, strict=True):
        observed.setdefault(level, {})[table] = float(own[0])
    desired: dict[str, list[str]] = {}
    for level, table in alone.desired.names:
        desired.setdefault(level, []).append(table)
    observed["Group"], desired["Group"] = observed["Block_Group"], desired["Block_Group"]
    return Problem(alone.schema, observed, desired, areas=Areas.from_spine(spine).with_layer("Group", groups))


def grid(size: int) -> Problem:
    """Sales of every product in every region, with the totals of both measured, of one kind."""
    region, sold = np.divmod(np.arange(size**2), size)
    areas = Areas(size**2, {"All": np.zeros(size**2, dtype=int), "Region": region, "Product": sold})
    return Problem(Schema({"kind": 1}), {level: {"total": 1.0} for level in areas.levels}, areas=areas)


def nested(nodes: int) -> Problem:
    """Areas that nest, five in each."""
    leaves = nodes * 4 // 5
    depths = range(int(np.log(leaves) / np.log(5)), 0, -1)
    areas = Areas(leaves, {f"Layer {depth}": np.arange(leaves) // 5**depth for depth in depths})
    rng = np.random.default_rng(0)
    sizes = zip(areas.levels, areas.members, strict=True)
    return Problem(Schema({"kind": 1}), {o: {"total": rng.uniform(1, 2, own.size)} for o, own in sizes}, areas=areas)


def series(days: int) -> Problem:
    """As many nodes as M5 has, in its twelve layers, forecast for every day."""
    areas = sold_in_stores()
    forecasts = {layer: {"day": 1.0 + i} for i, layer in enumerate(areas.levels)}
    return Problem(Schema({"day": days}), forecasts, areas=areas)


def times(days: int) -> Problem:
    """The same, forecast for every day, week and month."""
    areas, day = sold_in_stores(), np.arange(days)
    schema = Schema({"day": days}, recodes={"day": {"week": day // 7, "month": (day >= 17).astype(int)}})
    forecasts = {layer: {"day": 1.0 + i, "week": 3.0 + i, "month": 9.0} for i, layer in enumerate(areas.levels)}
    return Problem(schema, forecasts, areas=areas)


def sold_in_stores() -> Areas:
    """3,049 products of 7 departments of 3 categories in 10 stores of 3 states, as M5 crosses them."""
    product, store = np.divmod(np.arange(10 * sum(ITEMS_OF_DEPARTMENT)), 10)
    department = np.repeat(np.arange(7), ITEMS_OF_DEPARTMENT)[product]
    category, place = np.array(CATEGORY_OF_DEPARTMENT)[department], np.array(STATE_OF_STORE)[store]
    layers = {"State": place, "Store": store, "Category": category, "Department": department, "Product": product}
    areas = Areas(product.size, {"All": np.zeros(product.size, dtype=int), **layers})
    for first, second in itertools.product(("State", "Store"), ("Category", "Department")):
        areas = areas.cross(first, second)
    return areas.cross("State", "Product")


def joint_state(blocks: int) -> Problem:
    """PL94 persons, and the DHC's small tables, over block groups that cross, as shipped schemas have them."""
    number, problems = np.arange(blocks), []
    small = ["age_18_64_116 * relgq_4_groups", "age_18_64_116 * sex", "hispanic * sex", "popSehsdTargetsRelship"]
    pl94, dhc = production_settings("pl94_us_persons"), production_settings("dhc_us_persons")
    for schema, tables, by in ((pl94.schema, list(pl94.variances()["Block"]), 0), (dhc.schema, small, 2)):
        layers = {"State": number * 0, "Tract": number // 25, "Group": (number + by) // 5}
        observed = {layer: {table: 2.0 + i for i, table in enumerate(tables)} for layer in (*layers, "Leaf")}
        areas = Areas([f"block {i}" for i in number], layers)
        problems.append(Problem(schema, observed, {"State": ["total"]}, areas=areas))
    desired = {"Tract (1)": ["votingage * hispanic", "sex"], "Leaf": ["total", "hhgq8lev"]}
    return joint(*problems, recodes={"hhgq": "hhgq8lev", "votingage": "votingage"}, desired=desired)


OTHERS = {"grid": grid, "tree": nested, "series": series, "times": times, "joint": joint_state}

"""Groups and areas beside a copy and the spine alone: seconds to describe, prepare, apply and of variances; memory.

    python -m bench areas                   everything
    python -m bench areas --of query_groups 1,160 groups of ages and relationships that cross, at 1 and 9 geounits
    python -m bench areas --of crossing     the state with a second partition of every tract, a grid of crossed levels,
                                            M5's 42,840 nodes by 28 days and by day, week and month, PL94 and DHC
                                            persons of 5,000 blocks together
    python -m bench areas --quick           small ones

The state is Rhode Island of 2010 where the shared data folder is at hand, otherwise an invented one of its shape; noise
has the variances of the 2020 redistricting release. The second partition cuts every tract's blocks into groups of about
40 that cross its block groups, measured as these are. Each case runs in a process of its own; seconds are of one
processor. "peak" is the largest memory of the process while it applied, beyond what it had prepared; "with variances"
that of everything beyond the description.

Input and output are copied, and applies write, into memory that the process has used before and kept: nothing there
hides the passes. Targets: where areas cross at most 2.5 times the spine's apply; all variances in at most 2 applies;
for query groups 5 s and 1 GB for one geounit, 0.2 s for each further. Spines alone are cases of `bench solvers`.
"""

import itertools
from collections.abc import Callable

import numpy as np

from bench.measuring import keep_freed_memory, parser_of, peak_bytes, print_apart, shortest, timed
from bench.problems import block_geoids, dhc_persons, keys_of_m5, state
from blue_solvers import TwoPass, blue
from constraint_builders import Areas, Problem, Schema, Spine, joint
from constraint_builders.files.settings import production_settings

GROUP = 40  # blocks
SHIFT = 20
SPINES = {
    "1 geounit": ([-1], ["State"]),
    "1 + 8 geounits": ([-1] + [0] * 8, ["State"] + ["County"] * 8),
    "1 + 2 + 6 alike": ([-1, 0, 0, 1, 1, 1, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6),
    "1 + 2 + 6 not alike": ([-1, 0, 0, 1, 1, 2, 2, 2, 2], ["State"] + ["County"] * 2 + ["Prim"] * 6),
}
DETAILED = "1 geounit, detailed"
QUICK = ("16 cells", "1 geounit", "grid 200 x 200", "joint, 500 blocks")
CASES: dict[str, dict[str, tuple[str | int, ...]]] = {  # by their group: whose problem, and what it is made of
    "query_groups": {case: ("query groups", case) for case in (*SPINES, DETAILED)},
    "crossing": {
        "16 cells": ("partition", "16"),
        "2,016 cells": ("partition", "2016"),
        **{f"grid {size:,} x {size:,}": ("grid", size) for size in (200, 1000)},
        "M5 x 28 days": ("sales", 28, False),
        "M5 x day, week, month": ("sales", 28, True),
        **{f"joint, {blocks:,} blocks": ("joint", blocks) for blocks in (500, 5000)},
    },
}


def main(argv: list[str]) -> None:
    """Print a table a group, one process a row."""
    parser = parser_of("areas", __doc__, "smaller cases, in seconds")
    parser.add_argument("--of", action="append", choices=CASES, help="one group, may be repeated")
    options = parser.parse_args(argv)
    print(block_geoids()[0])
    for group in options.of or CASES:
        print_apart("areas", {name: own for name, own in CASES[group].items() if name in QUICK or not options.quick})


def measure(kind: str, *made_of: str | int) -> dict[str, float | str | None]:
    """Figures of one case, in this process."""
    alone = state(*made_of) if kind == "partition" else None  # type: ignore[arg-type]
    problem, describe = timed(lambda: with_second_partition(alone) if alone else KINDS[kind](*made_of))
    rng = np.random.default_rng(0)
    y, described = rng.standard_normal(problem.observed.size), peak_bytes()
    P, prepare = timed(lambda: blue(problem))
    prepared = peak_bytes() - y.nbytes
    x = P @ y
    memory = peak_bytes() - prepared
    variances = min(timed(blue(problem).variances)[1] for _ in range(2))  # not worked out before
    with_variances = peak_bytes() - described
    runs = [lambda: P @ y, lambda: (y.copy(), x.copy())]
    keep_freed_memory()
    if alone is not None:
        Q, own = blue(alone, TwoPass()), rng.standard_normal(alone.observed.size)
        runs.append(lambda: Q @ own)
    apply, copy, *spine = shortest(*runs)
    places = problem.spine or problem.areas
    return {
        "places": places.size if places else 1,
        "cells in": y.size,
        "out": x.size,
        "solver": P.info.solver,
        "describe s": describe,
        "prepare s": prepare,
        "apply s": apply,
        "x copy": apply / copy,
        "x spine": apply / spine[0] if spine else None,
        "variances s": variances,
        "x apply": variances / apply,
        "peak, x in+out": memory / 8 / (y.size + x.size),
        "with variances MB": with_variances / 1e6,
    }


def query_groups(case: str) -> Problem:
    """The production run's tables of the persons' demographic and housing characteristics at each geolevel."""
    if case == DETAILED:
        return dhc_persons()
    settings = production_settings("dhc_us_persons")
    variances = settings.variances()
    parent, levels = SPINES[case]
    observed = {
        level: {name: own for name, own in variances[level].items() if name != "detailed"}
        for level in dict.fromkeys(levels)
    }
    return Problem(settings.schema, observed, spine=Spine(parent, levels))


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


def sales(days: int, by_weeks: bool) -> Problem:
    """As many nodes as M5 has, in its twelve layers, forecast for every day, or for every day, week and month."""
    keys, day = keys_of_m5(), np.arange(days)
    layers = {name.capitalize(): keys[name] for name in ("state", "store", "category", "department", "product")}
    areas = Areas(keys["product"].size, {"All": np.zeros_like(keys["product"]), **layers})
    for first, second in itertools.product(("State", "Store"), ("Category", "Department")):
        areas = areas.cross(first, second)
    areas = areas.cross("State", "Product")
    recodes = {"day": {"week": day // 7, "month": (day >= 17).astype(int)}} if by_weeks else {}
    weeks = ({}, {"week": 3.0, "month": 9.0})[by_weeks]
    forecasts = {layer: {"day": 1.0 + i, **weeks} for i, layer in enumerate(areas.levels)}
    return Problem(Schema({"day": days}, recodes=recodes), forecasts, areas=areas)


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


KINDS: dict[str, Callable[..., Problem]] = {
    "query groups": query_groups, "grid": grid, "sales": sales, "joint": joint_state,
}  # fmt: skip

"""Geographies of `bench areas`: a state with a second partition, query groups, grids, trees, sales, joint products."""

from __future__ import annotations

import itertools

import numpy as np

from bench.problems import dhc_persons, keys_of_m5
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
    keys = keys_of_m5()
    layers = {name.capitalize(): keys[name] for name in ("state", "store", "category", "department", "product")}
    areas = Areas(keys["product"].size, {"All": np.zeros_like(keys["product"]), **layers})
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

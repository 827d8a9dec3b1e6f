"""Problems of several benchmarks: a state's blocks, tables of all ways, recodes, summing matrices, unequal variances.

`bench versions` runs this file with the packages of another version, so that it calls public API that both have, and
imports nothing of `bench`. Blocks are those of Rhode Island where the shared data folder is at hand, of an invented
state of its shape elsewhere.
"""

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.files.settings import production_settings

BLOCKS = Path(__file__).resolve().parents[2] / "shared" / "data" / "ri_2010_blocks.csv.gz"
WIDTHS = {"State": 2, "County": 5, "Tract": 11, "Block_Group": 12, "Block": 15}
COUNTIES, TRACTS, GROUPS = 5, 244, 815
MEAN_BLOCKS = 25_181 / GROUPS
TABLES_OF_16 = {"total": "total", "votingage": "votingage", "cenrace": "race", "detailed": "detailed"}
ITEMS_OF_DEPARTMENT = (416, 149, 532, 515, 216, 398, 823)
CATEGORY_OF_DEPARTMENT = (0, 0, 1, 1, 2, 2, 2)
STATE_OF_STORE = (0, 0, 0, 0, 1, 1, 1, 2, 2, 2)
CHILDREN = (51, 62, 27, 3, 33)  # on average: states, counties, tracts, block groups, blocks
SEED, SEED_OF_BLOCKS = 2024, 44


def block_geoids() -> tuple[str, list[str]]:
    """What the place is called, and the sorted GEOIDs of its blocks."""
    if not BLOCKS.exists():
        return "an invented state", invented_geoids()
    return "Rhode Island", [geoid for geoid, _ in block_counts()]


def block_counts() -> Iterator[tuple[str, dict[str, int]]]:
    """GEOIDs of Rhode Island's blocks, with the people of each by age and race, such as ``adult_hisp``."""
    with gzip.open(BLOCKS, "rt", newline="") as file:
        for row in csv.DictReader(file):
            yield row.pop("geoid"), {name: int(count) for name, count in row.items()}


def invented_geoids() -> list[str]:
    """GEOIDs of about as many blocks, tracts, block groups and counties as Rhode Island has, by chance."""
    rng = np.random.default_rng(SEED_OF_BLOCKS)
    county = np.sort(rng.integers(COUNTIES, size=TRACTS))
    geoids = []
    for number in range(TRACTS):
        code = number - int(np.searchsorted(county, county[number]))
        tract = f"44{2 * county[number] + 1:03}{10 * (code // 4) + code % 4 + 101:04}00"
        for group in range(1, 2 + int(rng.integers(2 * GROUPS // TRACTS + 1))):
            geoids += [f"{tract}{group}{block:03}" for block in range(1 + rng.geometric(1 / MEAN_BLOCKS))]
    return sorted(geoids)


def redistricting(cells: str, levels: Sequence[str]) -> tuple[Schema, dict[str, dict[str, float]]]:
    """Schema of 16 or 2,016 cells, and the variances of the 2020 redistricting release by geolevel and table."""
    variances = production_settings("pl94_us_persons").variances()
    if cells == "16":
        schema = Schema({"votingage": 2, "race": 8})
        return schema, {o: {TABLES_OF_16[q]: v for q, v in variances[o].items() if q in TABLES_OF_16} for o in levels}
    return gallery.pl94().schema, {level: dict(variances[level]) for level in levels}


def state(cells: str, copies: int = 1) -> Problem:
    """Redistricting tables of a state's blocks, at 16 or 2,016 cells, as one state or several under one root."""
    _, geoids = block_geoids()
    if copies > 1:  # states that differ in their first digits
        geoids = [f"{copy:02}{geoid[2:]}" for copy in range(copies) for geoid in geoids]
    spine = Spine.from_geoids(geoids, WIDTHS, root="US" if copies > 1 else None)
    schema, observed = redistricting(cells, [level for level in spine.levels if level != "US"])
    desired = None if cells == "16" else {level: ["detailed"] for level in observed}
    return Problem(schema, observed, spine=spine, desired=desired)


def dhc_persons() -> Problem:
    """Every query group of the persons' demographic and housing characteristics, at one state."""
    settings = production_settings("dhc_us_persons")
    return Problem(settings.schema, settings.variances()["State"])


def margins(levels: Sequence[int], ways: int, detailed: bool = False) -> Problem:
    """All tables of up to so many variables, in three precisions, and the one of them all where that is wanted."""
    names = [f"v{i}" for i in range(len(levels))]
    sizes = [*range(ways + 1), *([len(names)] if detailed else [])]
    tables = [" * ".join(chosen) or "total" for size in sizes for chosen in combinations(names, size)]
    precisions = {table: 1.0 + number % 3 for number, table in enumerate(tables)}
    return Problem(Schema(dict(zip(names, levels, strict=True))), precisions)


def recoded(number: int) -> Problem:
    """A schema of a hundred to a million cells, some tables of it, up to three recodes on some of its variables."""
    rng = np.random.default_rng([SEED, number])
    size = int(rng.integers(2, 7))
    share = (10 ** rng.uniform(2, 6)) ** (1 / size)
    levels = {f"v{i}": max(2, int(share * rng.uniform(0.6, 1.6))) for i in range(size)}
    factors = {name: [name] for name in levels}
    recodes: dict[str, dict[str, list[int]]] = {}
    for i in rng.permutation(size)[: int(rng.integers(1, min(size, 4) + 1))].tolist():
        name, n = f"v{i}", levels[f"v{i}"]
        for j in range(int(rng.integers(1, 4))):
            groups = int(rng.integers(2, max(3, min(n, 8))))
            own = np.sort(rng.integers(0, groups, n)) if j else np.arange(n) * groups // n
            own = np.unique(own, return_inverse=True)[1]
            if 1 < own.max() + 1 < n:
                recodes.setdefault(name, {})[f"r{i}{j}"] = own.tolist()
                factors[name].append(f"r{i}{j}")
    tables = {"detailed": 1.0, "total": 4.0} if number % 3 else {"total": 4.0, **dict.fromkeys(levels, 2.0)}
    for _ in range(int(rng.integers(3, 12))):
        chosen = [str(rng.choice(factors[name])) for name in levels if rng.random() < 0.5]
        if chosen:
            tables[" * ".join(chosen)] = float(rng.integers(1, 9))
    kept = {table: own for table, own in tables.items() if set(table.split(" * ")) != set(levels)}
    return Problem(Schema(levels, recodes=recodes), kept)


def cellwise(problem: Problem, ratio: float = 3.0, law: str = "uniform") -> Problem:
    """The same tables with a variance between 1 and the ratio for every noisy cell, or with a uniform logarithm."""
    share = np.random.default_rng(SEED).random(problem.observed.size)
    drawn = 1 + (ratio - 1) * share if law == "uniform" else ratio**share
    return problem.with_variances(np.where(problem.exact | problem.unmeasured, problem.variances, drawn))


def keys_of_m5(part: int = 1) -> dict[str, NDArray[np.int64]]:
    """Where each of the M5 competition's products in stores belongs; of one in so many of its products."""
    department = np.repeat(np.arange(len(ITEMS_OF_DEPARTMENT)), np.array(ITEMS_OF_DEPARTMENT) // part)
    product, store = (grid.ravel() for grid in np.indices((department.size, len(STATE_OF_STORE))))
    own, place = department[product], np.array(STATE_OF_STORE)[store]
    category = np.array(CATEGORY_OF_DEPARTMENT)[own]
    return {"state": place, "store": store, "category": category, "department": own, "product": product}


def m5(part: int = 1) -> sparse.csr_array:
    """The M5 competition's sums, from the total down to the products in stores."""
    state, store, cat, dept, item = keys_of_m5(part).values()
    return sums([np.zeros_like(item)], [state], [store], [cat], [dept], [state, cat], [state, dept], [store, cat],
                [store, dept], [item], [item, state], [item, store])  # fmt: skip


def tree(leaves: int, children: Sequence[int] = CHILDREN) -> sparse.csr_array:
    """A tree's sums; with the depth and the fan-outs of the census spine."""
    labels = [np.arange(leaves)]
    for count in reversed(children):
        labels.append(labels[-1] // count)
    return sums(*([own] for own in reversed(labels)))


def sums(*levels: Sequence[NDArray[np.int64]]) -> sparse.csr_array:
    """Nodes that sum leaves whose keys are equal, level by level."""
    rows = []
    for keys in levels:
        group = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].ravel()
        rows.append(sparse.csr_array((np.ones(group.size, dtype=np.int8), (group, np.arange(group.size)))))
    return sparse.csr_array(sparse.vstack(rows))


def forecasts(S: sparse.csr_array) -> Problem:
    """Each node forecast with a variance of its own, around the root of how many leaves it sums."""
    variances = np.random.default_rng(SEED).uniform(1, 3, S.shape[0]) * np.sqrt(np.diff(S.indptr))
    return Problem.from_summing_matrix(S, variances)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "toy": gallery.toy,
    **{f"{k}^{k}": partial(gallery.cube, k, k) for k in range(3, 8)},
    "2^12": partial(gallery.cube, 12, 2),
    "pl94": gallery.pl94,
    "pl94 x 55": partial(gallery.pl94_counties, 55),
    "dhc": gallery.dhc,
    "dhc persons": dhc_persons,
    "adult two-way": partial(gallery.adult, 2),
    "adult": gallery.adult,
    "50 x 10": gallery.wide,
    "2 to 15 levels, three-way": partial(margins, range(2, 16), 3),
    "2 to 11 levels, four-way": partial(margins, range(2, 12), 4),
    "16 cells": partial(state, "16"),
    "16 cells x 8": partial(state, "16", 8),
    "2,016 cells": partial(state, "2016"),
    **{f"recoded {number}": partial(recoded, number) for number in range(24)},
    "M5": lambda: forecasts(m5()),
    "M5, an item in 10": lambda: forecasts(m5(10)),
    "tree of 80,000": lambda: forecasts(tree(78_000)),
    "tree of 8,100,000": lambda: forecasts(tree(7_860_000)),
}

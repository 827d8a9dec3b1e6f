"""Spines of Rhode Island: the block groups of the census, the paper's, and ours, by distances and by exact variances.

    python -m bench geography            the state, 25,181 blocks: about a minute
    python -m bench geography --quick    its first 20 tracts

Boundaries of entities are not at hand, so that entities are made by rule from the blocks' GEOIDs: five random
partitions into pieces that are contiguous by code; runs of blocks from the middle of every tract to the middle of the
next; and, for the strong-MCD rule, stand-ins for minor civil divisions that the first three digits of the tract number
name. The budget is that of the redistricting persons run below the nation, all of it spent on totals. CPU seconds of
one thread.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from bench.measuring import is_quick, print_table, timed
from bench.problems import block_geoids
from blue_solvers.spine_design.objective import Objective
from blue_solvers.spine_design.report import compare_spines
from blue_solvers.spine_design.starts import BestSpine, best_spine
from constraint_builders import Schema, Spine
from constraint_builders.geography import Entities, Strategy, bypass, osed, regroup_blocks
from constraint_builders.geography.presets import minor_civil_divisions_and_places

SEED = 2010
HEADER = ["spine", "mean OSED", "worst", "mean variance", "worst", "rho", "CPU s", ""]
PARTITIONS, PIECES = 5, 200
QUICK_TRACTS, QUICK_PIECES = 20, 20
OBJECTIVES: tuple[Objective, ...] = ("mean", "worst")
TOTALS = Schema({"person": 1})
RHO = Fraction(293764, 114921)
PERSONS = {"State": 1440, "County": 447, "Tract": 687, "Block_Group": 1256, "Block": 165}


def main(argv: list[str]) -> None:
    """Print the tables."""
    quick = is_quick(argv, "geography", __doc__, f"the first {QUICK_TRACTS} tracts only")
    place, geoids = first_tracts(QUICK_TRACTS if quick else None)
    plain = Spine.from_geoids(geoids)
    print(f"{place}: {plain}, seed {SEED}")
    rng = np.random.default_rng(SEED)
    families = {
        "partitions": random_partitions(geoids, QUICK_PIECES if quick else PIECES, rng),
        "runs": tract_crossing_runs(geoids),
        "stand-in MCDs": stand_in_mcds(geoids),
    }
    entities = families["partitions"]
    _, seconds = timed(lambda: osed(plain, entities))
    print(f"OSED of {entities.size:,} entities: {seconds:.3f} CPU s (target: less than 1)\n")
    for name, entities in families.items():
        print(f"{name}: {entities.size:,} entities")
        print_table(HEADER, rows(plain, entities), [f"ours, {OBJECTIVES[-1]}"])
        print()


def first_tracts(count: int | None) -> tuple[str, list[str]]:
    """What the place is called, and the GEOIDs of the blocks of so many of its tracts, or of all."""
    place, geoids = block_geoids()
    kept = set(sorted({geoid[:11] for geoid in geoids})[:count])
    return place, [geoid for geoid in geoids if geoid[:11] in kept]


def random_partitions(geoids: Sequence[str], pieces: int, rng: np.random.Generator) -> Entities:
    """Several partitions of the blocks into pieces that are contiguous by code."""
    labels = {}
    for number in range(PARTITIONS):
        cuts = np.sort(rng.choice(len(geoids) - 1, pieces - 1, replace=False)) + 1
        labels[f"partition {number}"] = np.searchsorted(cuts, np.arange(len(geoids)), side="right").astype(str).tolist()
    return Entities.from_labels(labels, outside=False)


def tract_crossing_runs(geoids: Sequence[str]) -> Entities:
    """Runs of blocks from the middle of every tract to the middle of the next."""
    tracts = np.unique([geoid[:11] for geoid in geoids], return_inverse=True)[1]
    first = np.searchsorted(tracts, tracts)
    late = 2 * (np.arange(tracts.size) - first) >= np.bincount(tracts)[tracts]
    return Entities.from_labels({"run": (tracts + late).astype(str).tolist()}, outside=False)


def stand_in_mcds(geoids: Sequence[str]) -> Entities:
    """Entities by the strong-MCD rule from made-up codes."""
    nowhere = [""] * len(geoids)
    table = {"geoid": geoids, "mcd": [geoid[5:8] for geoid in geoids], "place": nowhere}
    return Entities.from_labels({"MCD": minor_civil_divisions_and_places(table, nowhere)["MCD"]}, outside=False)


def strategy_on(spine: Spine) -> Strategy:
    """The redistricting persons run's shares and loss below the nation, spent on totals."""
    whole = sum(PERSONS.values())
    shares = {level: Fraction(share, whole) for level, share in PERSONS.items()}
    return Strategy.from_levels(spine, RHO, shares, {level: {"total": 1} for level in PERSONS})


def rows(plain: Spine, entities: Entities) -> Iterator[list[object]]:
    """Spines for one family of entities, each as soon as it is there; of our own, what each start came to."""
    yield _row("census", strategy_on(plain), 0.0, entities)
    for variant in ("paper", "production"):
        made = partial(regroup_blocks, plain, entities, variant=variant)
        yield _row(variant, *timed(lambda made=made: bypass(strategy_on(made()))), entities)
    for objective in OBJECTIVES:
        best, seconds = timed(partial(optimised, plain, entities, objective))
        ended = ", ".join(f"{objective:.4g} from {start}'s" for start, objective in best.found.items())
        yield [*_row(f"ours, {objective}", best.strategy, seconds, entities), ended]


def _row(name: str, strategy: Strategy, seconds: float, entities: Entities) -> list[object]:
    ((_, near, far, mean, worst),) = compare_spines({name: strategy}, TOTALS, entities).summary()
    return [name, f"{near:.2f}", far, f"{mean:.4g}", f"{worst:.4g}", f"{float(strategy.loss):.4f}", seconds]


def optimised(plain: Spine, entities: Entities, objective: Objective) -> BestSpine:
    """Our own spine: groups of the census and of the paper improved, then bypasses chosen; the better of the two."""
    starts = {"census": strategy_on(plain), "paper": strategy_on(regroup_blocks(plain, entities))}
    return best_spine(starts, TOTALS, entities, objective)

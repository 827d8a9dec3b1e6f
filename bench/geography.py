"""Spines of Rhode Island: the block groups of the census, the paper's, and ours, by distances and by exact variances.

    python -m bench geography            the state, 25,181 blocks: about a minute
    python -m bench geography --quick    its first 20 tracts

Boundaries of entities are not at hand, so that entities are made by rule from the blocks' GEOIDs: five random
partitions into pieces that are contiguous by code; runs of blocks from the middle of every tract to the middle of the
next; and, for the strong-MCD rule, stand-ins for minor civil divisions that the first three digits of the tract number
name. The budget is that of the redistricting persons run below the nation, all of it spent on totals. CPU seconds of
one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.invented_state import BLOCKS, block_geoids
from bench.measuring import print_table
from blue_solvers.spine_design.allocation import allocate_budget
from blue_solvers.spine_design.objective import Objective
from blue_solvers.spine_design.report import compare_spines, entity_variances, entity_workload
from blue_solvers.spine_design.starts import BestSpine, best_spine
from constraint_builders import Schema, Spine
from constraint_builders.geography import Entities, Strategy, bypass, osed, regroup_blocks
from constraint_builders.geography.presets import minor_civil_divisions_and_places

SEED = 2010
PARTITIONS, PIECES = 5, 200
QUICK_TRACTS, QUICK_PIECES = 20, 20
OBJECTIVES: tuple[Objective, ...] = ("mean", "worst")
TOTALS = Schema({"person": 1})
RHO = Fraction(293764, 114921)
PERSONS = {"State": 1440, "County": 447, "Tract": 687, "Block_Group": 1256, "Block": 165}

T = TypeVar("T")


def main(argv: list[str]) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench geography", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_TRACTS} tracts only")
    parser.add_argument("--data", type=Path, default=BLOCKS, help="blocks of Rhode Island; default: %(default)s")
    options = parser.parse_args(argv)
    place, geoids = block_geoids(options.data)
    if options.quick:
        tracts = sorted({geoid[:11] for geoid in geoids})[:QUICK_TRACTS]
        geoids = [geoid for geoid in geoids if geoid[:11] in tracts]
    plain = Spine.from_geoids(geoids)
    print(f"{place}: {plain}, seed {SEED}")
    rng = np.random.default_rng(SEED)
    families = {
        "partitions": random_partitions(geoids, QUICK_PIECES if options.quick else PIECES, rng),
        "runs": tract_crossing_runs(geoids),
        "stand-in MCDs": stand_in_mcds(geoids),
    }
    print_distances(plain, families["partitions"])
    for name, entities in families.items():
        print_spines(name, plain, entities)
    print_allocation(plain, families["stand-in MCDs"])


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
    size = np.bincount(tracts)[tracts]
    late = 2 * (np.arange(tracts.size) - first) >= size
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


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """What a function returns, and the CPU seconds that it took."""
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


def print_distances(plain: Spine, entities: Entities) -> None:
    """Seconds of Algorithm 1."""
    _, seconds = timed(lambda: osed(plain, entities))
    print(f"OSED of {entities.size:,} entities: {seconds:.3f} CPU s (target: less than 1)\n")


def print_spines(name: str, plain: Spine, entities: Entities) -> None:
    """The table of spines for one family of entities."""
    paper, paper_seconds = timed(lambda: bypass(strategy_on(regroup_blocks(plain, entities))))
    production, production_seconds = timed(
        lambda: bypass(strategy_on(regroup_blocks(plain, entities, variant="production")))
    )
    strategies = {"census": strategy_on(plain), "paper": paper, "production": production}
    seconds = {"census": 0.0, "paper": paper_seconds, "production": production_seconds}
    notes = dict.fromkeys(strategies, "")
    for objective in OBJECTIVES:
        name_of_ours = f"ours, {objective}"
        best, seconds[name_of_ours] = timed(partial(optimised, plain, entities, objective))
        strategies[name_of_ours], groups = best.strategy, best.groups["paper"]
        ended = ", ".join(f"{objective:.4g} from {start}'s" for start, objective in best.found.items())
        notes[name_of_ours] = (
            f"{ended}; the paper's groups improved {groups.objective:.4g}, at most {groups.gap:.0%} above the best"
        )
    report = compare_spines(strategies, TOTALS, entities)
    rows = []
    for spine, near, far, mean, worst in report.summary():
        loss = f"{float(strategies[spine].loss):.4f}"
        figures = [f"{near:.2f}", str(far), f"{mean:.4f}", f"{worst:.3f}", loss, f"{seconds[spine]:.1f}"]
        rows.append([spine, *figures, notes[spine]])
    print(f"{name}: {entities.size:,} entities")
    header = ["spine", "mean OSED", "worst", "mean variance", "worst", "rho", "CPU s", ""]
    print_table(header, rows)
    print()


def optimised(plain: Spine, entities: Entities, objective: Objective) -> BestSpine:
    """Our own spine: groups of the census and of the paper improved, then bypasses chosen; the better of the two."""
    starts = {"census": strategy_on(plain), "paper": strategy_on(regroup_blocks(plain, entities))}
    return best_spine(starts, TOTALS, entities, objective)


def print_allocation(plain: Spine, entities: Entities) -> None:
    """The least loss for the accuracy that the production shares give these entities on the paper's spine."""
    spine = regroup_blocks(plain, entities)
    strategy = strategy_on(spine)
    targets = entity_variances(strategy, TOTALS, entities)
    tables = {level: ["total"] for level in spine.levels}
    desired = {spine.levels[-1]: ["total"]}
    workload = entity_workload(strategy.problem(TOTALS, desired), entities)
    found, seconds = timed(lambda: allocate_budget(TOTALS, spine, tables, desired, workload, targets, rtol=0.01))
    print(f"{entities.size} stand-in MCDs as accurate as on the paper's spine, for less:")
    print(
        f"rho {found.total:.4f} instead of {float(strategy.loss):.4f}, at most {found.gap:.1%} above the least "
        f"({found.iterations} iterations, {seconds:.1f} CPU s)"
    )
    spent = {level: f"{loss / found.total:.4f}" for (level, _), loss in found.losses.items()}
    print("shares: " + ", ".join(f"{level} {share}" for level, share in spent.items()))

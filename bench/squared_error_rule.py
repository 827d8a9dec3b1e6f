"""Section 3.1 of the paper on geographic spines: bypassing geounits by the sum of squared errors harms some queries.

    python -m bench squared_error_rule            the first 60 tracts of Rhode Island: a minute
    python -m bench squared_error_rule --quick    the first 20

The queries are the totals of all geounits at all geolevels of the census spine. By one rule those geounits are bypassed
whose bypassing lowers the sum of the expected squared errors of all queries (`optimise_bypasses` for the mean); by the
other those for which no query gets worse (Algorithm 3). Each query's variance afterwards is divided by that before.
Budgets: equal shares of the geolevels; shares in inverse proportion to the number of geounits, by which the paper
accounts for there being so many blocks; and those of the redistricting persons run of 2020 below the nation. All of it
is spent on totals, with zCDP and, where the measure is "pure", Laplace noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from bench.geography import PERSONS, RHO, TOTALS
from bench.invented_state import BLOCKS, block_geoids
from bench.measuring import print_table
from blue_solvers.spine_design import entity_variances, optimise_bypasses
from constraint_builders import Spine
from constraint_builders.arrays import Float
from constraint_builders.budget import Measure
from constraint_builders.geography import Entities, Strategy, bypass, partitions

TRACTS, QUICK_TRACTS = 60, 20
SAME = 1e-9  # relative: rounding
MEASURES: tuple[Measure, ...] = ("zcdp", "pure")
HEADER = ["measure", "shares", "rule", "measured geounits", "mean query", "made worse", "worst query", "of a"]


def main(argv: list[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench squared_error_rule", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_TRACTS} tracts only")
    parser.add_argument("--data", type=Path, default=BLOCKS, help="blocks of Rhode Island; default: %(default)s")
    options = parser.parse_args(argv)
    place, geoids = block_geoids(options.data)
    kept = sorted({geoid[:11] for geoid in geoids})[: QUICK_TRACTS if options.quick else TRACTS]
    spine = Spine.from_geoids([geoid for geoid in geoids if geoid[:11] in kept])
    print(f"{place}: {spine}; all figures relative to the spine as it is")
    print_table(HEADER, [row for measure in MEASURES for row in rows(spine, measure)])


def budgets(spine: Spine) -> dict[str, Mapping[str, Fraction]]:
    """Shares of the geolevels, by the name of the budget."""
    inverse = {level: Fraction(1, members.size) for level, members in zip(spine.levels, spine.members, strict=True)}
    weights = {"equal": dict.fromkeys(spine.levels, Fraction(1)), "inverse to number": inverse}
    weights["production"] = {level: Fraction(share) for level, share in PERSONS.items()}
    return {name: {level: share / sum(row.values()) for level, share in row.items()} for name, row in weights.items()}


def rows(spine: Spine, measure: Measure) -> Iterator[list[str]]:
    """The printed rows of one measure of privacy."""
    codes = partitions(spine)
    queries = Entities.from_labels({level: codes[level] for level in spine.levels}, outside=False)
    tables = {level: {"total": 1} for level in spine.levels}
    for name, shares in budgets(spine).items():
        strategy = Strategy.from_levels(spine, RHO, shares, tables, measure)
        before = entity_variances(strategy, TOTALS, queries)
        least = optimise_bypasses(strategy, TOTALS, queries, "mean")
        yield _row([measure, name, "squared error"], least.strategy, queries, least.variances / before)
        after = bypass(strategy)
        ratio = entity_variances(after, TOTALS, queries) / before
        yield _row([measure, name, "Algorithm 3"], after, queries, ratio)


def _row(start: list[str], strategy: Strategy, queries: Entities, ratio: Float) -> list[str]:
    measured = sum(share > 0 for share in strategy.shares)
    worst = queries.names[int(ratio.argmax())].partition(" ")[0] if ratio.max() > 1 + SAME else ""
    return [*start, f"{measured:,}", f"{ratio.mean():.2f}", f"{(ratio > 1 + SAME).mean():.1%}", f"{ratio.max():.2f}",
            worst]  # fmt: skip

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

from collections.abc import Iterator, Mapping
from fractions import Fraction

from bench.measuring import is_quick, print_table
from bench.papers.geography import PERSONS, RHO, TOTALS, first_tracts
from blue_solvers.spine_design import entity_variances, optimise_bypasses
from constraint_builders import Spine
from constraint_builders.budget import Measure
from constraint_builders.geography import Entities, Strategy, bypass, partitions

TRACTS, QUICK_TRACTS = 60, 20
SAME = 1e-9  # relative: rounding
MEASURES: tuple[Measure, ...] = ("zcdp", "pure")
HEADER = ["measure", "shares", "rule", "measured geounits", "mean query", "made worse", "worst query", "of a"]


def main(argv: list[str]) -> None:
    """Print the table."""
    quick = is_quick(argv, "squared_error_rule", __doc__, f"the first {QUICK_TRACTS} tracts only")
    place, geoids = first_tracts(QUICK_TRACTS if quick else TRACTS)
    spine = Spine.from_geoids(geoids)
    print(f"{place}: {spine}; all figures relative to the spine as it is")
    print_table(HEADER, (row for measure in MEASURES for row in rows(spine, measure)))


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
        rules = {
            "squared error": optimise_bypasses(strategy, TOTALS, queries, "mean").strategy,
            "Algorithm 3": bypass(strategy),
        }
        for rule, after in rules.items():
            ratio = entity_variances(after, TOTALS, queries) / before
            measured = sum(share > 0 for share in after.shares)
            worst = queries.names[int(ratio.argmax())].partition(" ")[0] if ratio.max() > 1 + SAME else ""
            figures = [f"{ratio.mean():.2f}", f"{(ratio > 1 + SAME).mean():.1%}", f"{ratio.max():.2f}"]
            yield [measure, name, rule, f"{measured:,}", *figures, worst]

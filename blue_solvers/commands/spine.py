"""``blue-solvers spine``: build a spine from a block table, judge it by exact variances, draw it."""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from blue_solvers.commands.common import SubParsers, new_parser, plural, print_columns
from blue_solvers.spine_bypasses import optimise_bypasses
from blue_solvers.spine_optimiser import optimise_spine
from blue_solvers.spine_report import SpineReport, compare_spines
from constraint_builders import Schema, Spine
from constraint_builders.geography import (
    Entities,
    Strategy,
    aian_spine,
    bypass,
    group_tracts,
    on_spine_areas,
    regroup_blocks,
)
from constraint_builders.geography.block_groups import FANOUT_CUTOFF, VARIANTS

TOTALS = Schema({"person": 1})
PLAIN, OPTIMISED, OURS = "plain", "optimised", "ours"
SHOWN = 5


def add_parser(subparsers: SubParsers) -> None:
    """Declare the subcommand."""
    parser = new_parser(
        subparsers,
        "spine",
        "build a geographic spine around off-spine entities, and judge it by exact variances before any noise is drawn",
        "blue-solvers spine blocks.csv --entity place --entity school_district --optimise mean --out spine.csv",
    )
    parser.add_argument("blocks", metavar="BLOCKS", help="block table, .csv or .csv.gz: a row for each block")
    parser.add_argument("--geoid", metavar="COLUMN", default="geoid", help="15-digit block identifiers; default: geoid")
    parser.add_argument(
        "--entity",
        metavar="COLUMN",
        action="append",
        required=True,
        help="codes of one category of entities, empty where a block lies in none; may be repeated",
    )
    parser.add_argument("--aian", metavar="COLUMN", help="AIANNHCE codes: split every geounit by these areas")
    parser.add_argument("--fanout-cutoff", type=int, default=FANOUT_CUTOFF, help=f"default: {FANOUT_CUTOFF}")
    parser.add_argument("--variant", choices=VARIANTS, default="paper", help="where paper and 2020 code differ")
    parser.add_argument("--tract-groups", action="store_true", help="add a level of tract groups")
    parser.add_argument("--loss", default="1", metavar="NUMBER", help="rho or epsilon of everything; default: 1")
    parser.add_argument("--measure", choices=("zcdp", "pure"), default="zcdp", help="default: zcdp")
    parser.add_argument(
        "--share",
        metavar="GEOLEVEL=SHARE",
        action="append",
        help="share of the loss of a geolevel, such as Tract=1/5; may be repeated, they sum to 1; default: equal",
    )
    parser.add_argument(
        "--optimise", choices=("mean", "worst"), help="also find a spine with a low mean, or worst, exact variance"
    )
    parser.add_argument("--out", metavar="FILE", help="write the last spine, .csv: geolevel, geocode, parent, share")
    parser.add_argument("--plot", metavar="FILE", help="draw the entity furthest from the plain spine")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Build the spines, print how they compare, and write what was asked for."""
    columns = _read_columns(args.blocks, [args.geoid, *args.entity, *([args.aian] if args.aian else [])])
    entities = Entities.from_labels({name: columns[name] for name in args.entity}, outside=False)
    strategies = _strategies(args, columns, entities)
    report = compare_spines(strategies, TOTALS, entities)
    last = list(strategies)[-1]
    print(f"{plural(entities.blocks, 'block')}, {entities.size:,} entities; variances are exact, of entities' totals\n")
    _print_summary(strategies, report)
    _print_changes(report, last)
    if args.out:
        _write_spine(args.out, strategies[last])
        print(f"\nwrote {args.out}")
    if args.plot:
        _draw(args.plot, strategies[PLAIN].spine, strategies[last].spine, last, report)
        print(f"\nwrote {args.plot}")


def _strategies(args: argparse.Namespace, columns: dict[str, list[str]], entities: Entities) -> dict[str, Strategy]:
    if args.aian:
        plain = aian_spine(columns[args.geoid], on_spine_areas(columns[args.aian]))
    else:
        states = {geoid[:2] for geoid in columns[args.geoid]}
        plain = Spine.from_geoids(columns[args.geoid], root="US" if len(states) > 1 else None)
    optimised = regroup_blocks(plain, entities, fanout_cutoff=args.fanout_cutoff, variant=args.variant)
    if args.tract_groups:
        optimised = group_tracts(optimised, entities, fanout_cutoff=args.fanout_cutoff, variant=args.variant)
    shares = _shares(args.share, plain.levels)
    before, after = _strategy(args, plain, shares), _strategy(args, optimised, shares)
    found = {PLAIN: before, OPTIMISED: bypass(after)}
    if args.optimise:
        grouped = optimise_spine(
            after, TOTALS, entities, args.optimise, fanout_cutoff=args.fanout_cutoff, variant=args.variant
        )
        found[OURS] = optimise_bypasses(grouped.strategy, TOTALS, entities, args.optimise).strategy
    return found


def _strategy(args: argparse.Namespace, spine: Spine, shares: dict[str, str]) -> Strategy:
    tables = {level: {"total": 1} for level in spine.levels}
    return Strategy.from_levels(spine, args.loss, shares, tables, args.measure)


def _shares(given: Sequence[str] | None, levels: Sequence[str]) -> dict[str, str]:
    if not given:
        return dict.fromkeys(levels, str(Fraction(1, len(levels))))
    pairs = [pair.partition("=") for pair in given]
    wrong = [level + equals + share for level, equals, share in pairs if not (level and share)]
    if wrong:
        raise ValueError(f"--share {wrong[0]!r} is not GEOLEVEL=SHARE, such as Tract=1/5")
    return {level: share for level, _, share in pairs}


def _read_columns(path: str, names: Sequence[str]) -> dict[str, list[str]]:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in names if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: no column {missing[0]!r}: there are {', '.join(reader.fieldnames or ['none'])}")
        columns: dict[str, list[str]] = {name: [] for name in names}
        for row in reader:
            for name in columns:
                columns[name].append((row[name] or "").strip())
    if not columns[names[0]]:
        raise ValueError(f"{path}: there are no rows: give one for every block")
    return columns


def _print_summary(strategies: dict[str, Strategy], report: SpineReport) -> None:
    rows = [
        (
            name,
            f"{sum(share > 0 for share in strategies[name].shares):,}",
            f"{mean_distance:.2f}",
            str(worst_distance),
            f"{mean:.4g}",
            f"{worst:.4g}",
            str(strategies[name].loss),
        )
        for name, mean_distance, worst_distance, mean, worst in report.summary()
    ]
    print_columns(("spine", "measured geounits", "mean OSED", "worst", "mean variance", "worst", "loss"), rows)


def _print_changes(report: SpineReport, last: str) -> None:
    found = report.rows(PLAIN, last)
    rows = [(name, str(far), str(near), f"{old:.4g}", f"{new:.4g}") for name, far, near, old, new in found]
    shown = rows if len(rows) <= 2 * SHOWN else [*rows[:SHOWN], ("...", "", "", "", ""), *rows[-SHOWN:]]
    print(f"\nEntities, from those that {last!r} serves least well against {PLAIN!r}:\n")
    print_columns(("entity", "OSED before", "after", "variance before", "after"), shown)


def _write_spine(path: str, strategy: Strategy) -> None:
    spine = strategy.spine
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("geolevel", "geocode", "parent", "share"))
        for i, parent in enumerate(spine.parent.tolist()):
            above = spine.geocodes[parent] if parent >= 0 else ""
            writer.writerow((spine.levels[spine.level_of[i]], spine.geocodes[i], above, strategy.shares[i]))


def _draw(path: str, before: Spine, after: Spine, last: str, report: SpineReport) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("--plot needs matplotlib: pip install 'blue-solvers[plots]'") from None
    from blue_solvers import spine_plots

    furthest = report.entities.names[int(report.distances[PLAIN].argmax())]
    figure = Figure(figsize=(10, 9), layout="constrained")
    above, below, curves = figure.subplots(3, 1)
    for axes, tree, name in ((above, before, PLAIN), (below, after, last)):
        spine_plots.spine(axes, tree, report.entities, furthest)
        axes.set_title(f"{name}: {axes.get_title()}")
    spine_plots.accuracy(curves, report)
    figure.savefig(path)

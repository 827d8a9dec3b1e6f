"""``blue-solvers design``: build a spine from a block table, judge it by exact variances, draw it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from blue_solvers.commands.arguments import require_file, require_outputs
from blue_solvers.commands.common import print_columns, write_asked
from blue_solvers.commands.screen import reading, say
from blue_solvers.spine_design.measured_entities import MeasuredEntities, measuring_entities
from blue_solvers.spine_design.report import SpineReport, compare_spines
from blue_solvers.spine_design.starts import best_spine
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
from constraint_builders.printable import counted

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

TOTALS = Schema({"person": 1})
PLAIN, OPTIMISED, OURS = "plain", "optimised", "ours"
SHOWN = 5


def run(args: argparse.Namespace) -> None:
    """Build the spines, print how they compare, and write what was asked for."""
    from constraint_builders.files.naming import naming

    require_file(args.blocks, "a block table")
    require_outputs(args)
    columns = _read_columns(args.blocks, [args.geoid_column, *args.entity, *([args.aian] if args.aian else [])])
    with naming(args.blocks):
        entities = Entities.from_labels({name: columns[name] for name in args.entity}, outside=False)
        plain = _plain_spine(args, columns)
    strategies = _strategies(args, plain, entities)
    last = list(strategies)[-1]
    both = [] if args.measure_entities is None else dict.fromkeys((PLAIN, last))
    measured = {name: measuring_entities(strategies[name], entities, args.measure_entities) for name in both}
    report = compare_spines(strategies, TOTALS, entities)
    blocks = counted(entities.blocks, "block")
    say(f"{blocks}, {entities.size:,} entities; variances are exact, of entities' totals", "")
    _print_summary(strategies, report)
    _print_changes(report, last)
    if measured:
        _print_measured(measured, report)
    write_asked(args, _spine_frame(strategies[last]), lambda: _figure(strategies, last, report))


def _plain_spine(args: argparse.Namespace, columns: dict[str, list[str]]) -> Spine:
    if args.aian:
        return aian_spine(columns[args.geoid_column], on_spine_areas(columns[args.aian]))
    states = {geoid[:2] for geoid in columns[args.geoid_column]}
    return Spine.from_geoids(columns[args.geoid_column], root="US" if len(states) > 1 else None)


def _strategies(args: argparse.Namespace, plain: Spine, entities: Entities) -> dict[str, Strategy]:
    optimised = regroup_blocks(plain, entities, fanout_cutoff=args.fanout_cutoff, variant=args.variant)
    if args.tract_groups:
        optimised = group_tracts(optimised, entities, fanout_cutoff=args.fanout_cutoff, variant=args.variant)
    shares = _shares(args.share, plain.levels)
    before, after = _strategy(args, plain, shares), _strategy(args, optimised, shares)
    found = {PLAIN: before, OPTIMISED: bypass(after)}
    if args.optimise:
        starts = {PLAIN: before, OPTIMISED: after}
        cutoff, variant = args.fanout_cutoff, args.variant
        found[OURS] = best_spine(
            starts, TOTALS, entities, args.optimise, fanout_cutoff=cutoff, variant=variant
        ).strategy
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
    from constraint_builders.files.naming import naming
    from constraint_builders.files.numbers import read_labels
    from constraint_builders.files.source import open_source

    with reading():
        source = open_source(path)
    with naming(path):
        found = source.frame.columns
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(f"no column {missing[0]!r}: there are {', '.join(found) or 'none'}")
        if source.frame.is_empty():
            raise ValueError("there are no rows: give one for every block")
        labels = {name: read_labels(source.frame[name]) for name in names}
        return {name: column.fill_null("").str.strip_chars().to_list() for name, column in labels.items()}


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
    say("", f"Entities, from those that {last!r} serves least well against {PLAIN!r}:", "")
    print_columns(("entity", "OSED before", "after", "variance before", "after"), shown)


def _print_measured(measured: dict[str, MeasuredEntities], report: SpineReport) -> None:
    """Print what measuring the entities would give on the first and on the last spine."""
    rows = []
    found = {name: own.variances(TOTALS) for name, own in measured.items()}
    for name, own in measured.items():
        before, after = report.variances[name], found[name]
        better = int((after < before).sum())
        figures = (f"{before.mean():.4g}", f"{after.mean():.4g}", f"{before.max():.4g}", f"{after.max():.4g}")
        rows.append((name, *figures, f"{better:,} of {after.size:,}", str(own.loss)))
    say("", f"Were every entity measured itself, for a share of {next(iter(measured.values())).share}:", "")
    print_columns(("spine", "mean variance", "measured", "worst", "measured", "more precise", "loss"), rows)


def _spine_frame(strategy: Strategy) -> pl.DataFrame:
    import polars as pl

    spine = strategy.spine
    codes = [*spine.geocodes, ""]  # the last for the parent of the root, which has number -1
    return pl.DataFrame(
        {
            "geolevel": [spine.levels[level] for level in spine.level_of.tolist()],
            "geocode": codes[:-1],
            "parent": [codes[parent] for parent in spine.parent.tolist()],
            "share": [str(share) for share in strategy.shares],
        }
    )


def _figure(strategies: dict[str, Strategy], last: str, report: SpineReport) -> Figure:
    from matplotlib.figure import Figure

    from blue_solvers.spine_design import spine_plots

    furthest = report.entities.names[int(report.distances[PLAIN].argmax())]
    figure = Figure(figsize=(10, 9), layout="constrained")
    above, below, curves = figure.subplots(3, 1)
    for axes, name in ((above, PLAIN), (below, last)):
        spine_plots.spine(axes, strategies[name].spine, report.entities, furthest)
        axes.set_title(f"{name}: {axes.get_title()}")
    spine_plots.same_scale(above, below)
    spine_plots.accuracy(curves, report)
    return figure

"""``blue-solvers simulate``: true counts by block in, a noisy release in the layout of measurement files out."""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from blue_solvers.commands.arguments import require_file, require_outputs
from blue_solvers.commands.screen import LevelBar, progress, reading, say
from constraint_builders.printable import counted

if TYPE_CHECKING:
    from constraint_builders import Problem, Spine

SEED_BITS = 64
LARGEST = 2.0**53  # beyond, not every whole number is a floating-point number


def run(args: argparse.Namespace) -> None:
    """Sum the counts up the spine, add noise, write."""
    from constraint_builders import Problem
    from constraint_builders.files import read_block_counts, write_noisy_measurements
    from constraint_builders.files.naming import naming
    from constraint_builders.files.new_files import require_new
    from constraint_builders.files.settings import find_settings
    from constraint_builders.true_tables import true_vector
    from noise_mechanisms import add_noise
    from noise_mechanisms.budgeted import noise_variances
    from noise_mechanisms.laws import kind_of

    require_file(args.input, "a table of true counts")
    require_outputs(args, require_new)
    settings = find_settings(args.settings)
    if not kind_of(settings.noise).discrete:
        whole = 'measurement files hold whole numbers: write noise = "discrete_gaussian"'
        raise ValueError(f"{args.settings}: noise {settings.noise!r} cannot be written, {whole}")
    widths = _level_widths(args.widths, settings.geolevels)
    seed = secrets.randbits(SEED_BITS) if args.seed is None else args.seed
    progress(f"reading {args.input}")
    with reading():
        geoids, counts = read_block_counts(args.input, settings.schema)
    if counts.sum() > LARGEST:
        raise ValueError(f"{args.input}: beyond {LARGEST:,.0f} in all sums are not exact: give smaller counts")
    with naming(args.input):
        spine, left_out = block_spine(geoids, widths)
    with naming(args.settings):
        variances = noise_variances(settings.budget, settings.noise)
    observed = {level: variances[level] for level in spine.levels if level in variances}
    problem = Problem(settings.schema, observed, spine=spine, noise=settings.noise)
    progress(f"drawing noise for {counted(problem.observed.size, 'cell')}")
    y = add_noise(problem, true_vector(problem, counts), seed)
    stated = {
        "grade": "simulation only: seeded noise in floating point is not differentially private, whatever the budget",
        "settings": settings.name,
        "noise": settings.noise,
        "simulated budget": {level: str(sum(settings.budget.losses[level].values())) for level in observed},
        "left out": left_out,
    }
    notes = {"settings.toml": settings.text, "simulation.json": json.dumps(stated, indent=2) + "\n"}
    with LevelBar("writing") as bar:
        write_noisy_measurements(args.out, problem, y, notes=notes, progress=bar)
    _report(problem, spine, stated, seed, args.out)


def block_spine(geoids: list[str], widths: Mapping[str, int]) -> tuple[Spine, str]:
    """The spine over blocks, and the name of a root that is left out because it would repeat its only child.

    Raises
    ------
    ValueError
        If geoids do not fit the widths.
    """
    from constraint_builders import Spine

    below = {level: width for level, width in widths.items() if width > 0}
    root = next((level for level, width in widths.items() if width == 0), None)
    if not below:
        raise ValueError("--widths must name a geolevel below the root")
    top = min(below.values())
    if root is not None and len({geoid[:top] for geoid in geoids}) == 1:
        return Spine.from_geoids(geoids, below), root
    return Spine.from_geoids(geoids, below, root), ""


def _level_widths(given: dict[str, int] | None, geolevels: tuple[str, ...]) -> dict[str, int]:
    """How many characters name the geounits of each level: as given, or as the Census Bureau's GEOIDs have it."""
    if given is not None:
        strange = [level for level in given if level not in geolevels]
        if strange:
            raise ValueError(f"--widths names {strange[0]!r}, the settings have the geolevels {', '.join(geolevels)}")
        return given
    from constraint_builders.description.spine import CENSUS_WIDTHS

    known = {"US": 0} | CENSUS_WIDTHS
    unknown = [level for level in geolevels if level not in known]
    if unknown:
        raise ValueError(f"geoids do not say which {unknown[0]!r} a block is in: give --widths")
    return {level: known[level] for level in geolevels}


def _report(problem: Problem, spine: Spine, stated: Mapping, seed: int, out: str) -> None:
    counts = ", ".join(f"{members.size:,} {level}" for level, members in zip(spine.levels, spine.members, strict=True))
    say(f"measured   {counted(problem.observed.size, 'cell')} of {counted(spine.size, 'geounit')}: {counts}")
    if stated["left out"]:
        say(f"left out   {stated['left out']}: all blocks lie in one geounit below it")
    say(f"settings   {stated['settings']}, noise {stated['noise']}")
    say(f"budget     {', '.join(f'{level} {loss}' for level, loss in stated['simulated budget'].items())}, simulated")
    say(f"seed       {seed}; it is not in the folder, since it takes the noise out again")
    say("grade      simulation only: not differentially private")
    say(f"written    {out}")

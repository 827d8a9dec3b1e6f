"""A release of measurement files of uneven branches, with exact counts, zeros and tables that some geounits lack."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from blue_solvers.streaming.measured_folder import READER
from blue_solvers.streaming.partition import BUFFERS
from constraint_builders import Problem, Spine
from constraint_builders.files import Settings, write_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise
from tests.helpers.simulated import settings_of

SETTINGS = settings_of(
    ["US", "State", "County", "Block"],
    {"sex": ["female", "male"], "age": 5},
    {
        "total": [0, "1/10", "1/40", "1/40"],
        "sex * adult": ["1/10", 0, "1/40", 0],
        "detailed": ["1/20", 0, "1/20", "3/40"],
    },
    'age.adult = "0-1 | 2-4"',
)
TIGHT = READER + BUFFERS + 300_000.0  # for all that is above the counties, and for one or two of these


def settings_of(text: str = SETTINGS) -> Settings:
    return parse_settings(text, "small")


def invented_release(folder: Path, seed: int, blocks: int = 60) -> None:
    """Uneven branches, exact counts, zeros, variances by geounit and tables that some geounits lack; rows shuffled."""
    rng = np.random.default_rng(seed)
    codes = {"State": ["04", "14"], "County": [], "Block": []}
    codes["County"] = sorted(
        {f"{rng.choice(codes['State'])}{rng.integers(9):03}" for _ in range(9)} | {"04999", "14999"}
    )
    chosen = [*codes["County"], *rng.choice(codes["County"], blocks)]
    codes["Block"] = [f"{county}{number:04}" for number, county in enumerate(chosen)]
    spine = Spine.from_geocodes({"US": [""], **{level: sorted(own) for level, own in codes.items()}})
    counts = {level: spine.members[spine.level_index(level)].size for level in spine.levels}
    settings = settings_of()
    observed: dict[str, dict[str, Any]] = {level: dict(settings.variances()[level]) for level in spine.levels}
    observed["Block"]["detailed"] = rng.choice([2.0, 5.0], counts["Block"])
    observed["County"]["detailed"] = np.where(rng.random(counts["County"]) < 0.3, np.inf, 7.0)
    observed["State"]["sex"] = 0.0
    truth = rng.poisson(6, (counts["Block"], 2, 5))
    empty = rng.random(truth.shape) < 0.1
    truth[empty] = 0
    problem = Problem(settings.schema, observed, spine=spine, noise=settings.noise)
    y = add_noise(problem, true_vector(problem, truth), rng)
    write_noisy_measurements(folder, problem, y, zeros={("Block", "detailed"): empty})
    (folder / "settings.toml").write_text(SETTINGS)
    for path in folder.rglob("*.parquet"):
        if path.is_file():
            pl.read_parquet(path, hive_partitioning=False).sample(fraction=1, shuffle=True, seed=seed).write_parquet(
                path
            )

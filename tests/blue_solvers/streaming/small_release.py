"""A release of measurement files of 72 blocks, with invented counts."""

from pathlib import Path

import numpy as np
import polars as pl

from blue_solvers.streaming.measured_folder import READER
from blue_solvers.streaming.partition import BUFFERS
from constraint_builders import Problem, Spine
from constraint_builders.files import write_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise
from tests.helpers.simulated import settings_of

SETTINGS = settings_of(
    ["State", "County", "Block"],
    {"sex": ["female", "male"], "age": 5},
    {"total": ["1/10", "1/40", "1/40"], "sex * adult": [0, "1/40", 0], "detailed": ["1/20", "1/20", "3/40"]},
    'age.adult = "0-1 | 2-4"',
)
TIGHT = READER + BUFFERS + 150_000.0  # for the spine, and for one county


def write_release(folder: Path, seed: int) -> None:
    """Measurements of invented counts, in files whose size does not depend on their values."""
    rng = np.random.default_rng(0)
    counties = [f"44{county:03}" for county in range(1, 12, 2)]
    blocks = [f"{county}{number:04}" for county in counties for number in range(12)]
    spine = Spine.from_geocodes({"State": ["44"], "County": counties, "Block": blocks})
    settings = parse_settings(SETTINGS, "small")
    problem = Problem(settings.schema, settings.variances(), spine=spine, noise=settings.noise)
    truth = rng.poisson(30, (len(blocks), 2, 5))
    y = add_noise(problem, true_vector(problem, truth), np.random.default_rng(seed))
    write_noisy_measurements(folder, problem, y, notes={"settings.toml": SETTINGS})
    for path in folder.rglob("*.parquet"):
        if path.is_file():
            frame = pl.read_parquet(path, hive_partitioning=False)
            frame.write_parquet(path, compression="uncompressed", statistics=False, use_pyarrow=False)

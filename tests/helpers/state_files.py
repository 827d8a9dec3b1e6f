"""Measurement files of a small state, written and read."""

from pathlib import Path
from typing import Any

import numpy as np

from constraint_builders import Problem, Spine
from constraint_builders.files import Release, Settings, read_noisy_measurements
from constraint_builders.files.settings import parse_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise

SETTINGS = parse_settings(
    """
geolevels = ["US", "State", "County", "Block"]
noise = "discrete_gaussian"
[variables]
sex = ["female", "male"]
age = 3
[recodes]
age.adult = "0 | 1-2"
[selections]
age.old = [2]
[constraints]
untrue = ["published"]
[budget]
[budget.losses]
total = [0, "1/10", "1/40", "1/40"]
"sex * adult" = ["1/10", 0, "1/40", 0]
detailed = ["1/20", 0, "1/20", "3/40"]
""",
    "small",
)
CODES = {
    "US": [""],
    "State": ["044", "144"],
    "County": ["044001", "044003", "144009"],
    "Block": ["04400101", "04400102", "0440031", "0440032", "0440033", "144009123"],
}
STATE = {level: [code for code in codes if code.startswith("044")] for level, codes in CODES.items() if level != "US"}


def small_problem(codes: dict[str, list[str]] = CODES, **changed: Any) -> Problem:
    spine = Spine.from_geocodes(codes)
    observed: dict[str, dict[str, Any]] = {level: SETTINGS.variances()[level] for level in spine.levels}
    return Problem(SETTINGS.schema, observed | changed, spine=spine, noise="discrete_gaussian")


def noisy(problem: Problem) -> np.ndarray:
    """Measurements of 30 in every cell of every block."""
    leaves = np.count_nonzero(problem.spine.child_counts == 0)
    return add_noise(problem, true_vector(problem, np.full((leaves, 2, 3), 30)), 5)


def read(folder: Path, settings: Settings = SETTINGS, **options: Any) -> Release:
    return read_noisy_measurements(folder, settings, **options)


def part(folder: Path, level: str = "Block", kind: str = "DPQuery") -> Path:
    return folder / f"{level}.parquet" / kind / "State=044" / "part-0.parquet"

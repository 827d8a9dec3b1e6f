"""Rhode Island's 25,181 blocks of 2010 as a spine of five levels: real counts, noise of the 2020 release."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine
from noise_mechanisms import add_noise

BLOCKS = Path(__file__).resolve().parents[2] / "shared" / "data" / "ri_2010_blocks.csv.gz"
pytestmark = pytest.mark.skipif(not BLOCKS.exists(), reason=f"real counts are not at {BLOCKS}")

SCHEMA = Schema({"votingage": ["under18", "adult"], "race": 8})
# 1 / (rho * geolevel share * query share) of the 2020 redistricting release for total, voting age, race and detail.
VARIANCES = {
    "State": (1.209, 760.4, 760.4, 19.84),
    "County": (4.702, 1469.7, 1469.7, 19.49),
    "Tract": (6.110, 1914.9, 1196.8, 19.86),
    "Block_Group": (3.069, 1744.4, 1744.4, 4.063),
    "Block": (7963.0, 7963.0, 4424.0, 10.09),
}
TABLES = ("total", "votingage", "race", "detailed")
OBSERVED = {level: dict(zip(TABLES, variances, strict=True)) for level, variances in VARIANCES.items()}


@pytest.fixture(scope="module")
def blocks() -> tuple[list[str], np.ndarray]:
    with gzip.open(BLOCKS, "rt") as file:
        rows = list(csv.reader(file))[1:]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], dtype=float)


@pytest.fixture(scope="module")
def state(blocks: tuple[list[str], np.ndarray]) -> tuple[Problem, np.ndarray]:
    geoids, counts = blocks
    problem = Problem(SCHEMA, OBSERVED, spine=Spine.from_geoids(geoids))
    return problem, problem.marginal_matrix() @ counts.ravel()


def test_estimates_are_consistent_and_better_than_what_was_measured(state: tuple[Problem, np.ndarray]) -> None:
    problem, truth = state
    y = add_noise(problem, truth, rng=2020)
    P = blue(problem)
    x = P @ y
    assert P.info.violation < 1e-9 * truth.max()
    errors, noise = (problem.observed.tables((v - truth) ** 2) for v in (x, y))
    for level in ("Tract", "Block_Group", "Block"):
        for table in TABLES:
            assert errors[level, table].mean() < noise[level, table].mean()


def test_intervals_cover_and_estimates_are_unbiased(state: tuple[Problem, np.ndarray]) -> None:
    """Standardised errors at every level: mean 0 and 95 % within 1.96, to four standard errors of independent cells.

    Cells of one geounit are correlated, so each table's own number of geounits counts as its sample size.
    """
    problem, truth = state
    P = blue(problem)
    z = problem.observed.tables((P @ add_noise(problem, truth, rng=7) - truth) / np.sqrt(P.variances()))
    for (level, table), values in z.items():
        geounits = len(values)
        if geounits >= 200:
            covered = (abs(values) < 1.959964).mean()
            assert abs(covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / geounits), (level, table)
            assert abs(values.mean()) < 4 / np.sqrt(geounits), (level, table)


def test_a_county_equals_cholesky(blocks: tuple[list[str], np.ndarray]) -> None:
    geoids, counts = blocks
    chosen = [i for i, geoid in enumerate(geoids) if geoid.startswith("44001")][:300]
    spine = Spine.from_geoids([geoids[i] for i in chosen])
    observed = {
        level: {t: v for t, v in tables.items() if t in ("total", "detailed")} for level, tables in OBSERVED.items()
    }
    problem = Problem(SCHEMA, observed, spine=spine)
    y = add_noise(problem, problem.marginal_matrix() @ counts[chosen].ravel(), rng=1)
    P, reference = blue(problem, "two_pass"), blue(problem, "cholesky")
    deviations = np.sqrt(P.variances())
    assert (abs(P @ y - reference @ y) < 1e-9 * deviations + 1e-12 * abs(y).max()).all()

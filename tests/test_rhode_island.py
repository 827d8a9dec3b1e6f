"""Rhode Island's 25,181 blocks of 2010 as a spine of five levels: real counts, noise of the 2020 release.

At 16 cells a geounit, the cells that were published, and under the full redistricting schema of 2,016 cells.
"""

import csv
import gzip
from typing import NamedTuple

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema, Spine, gallery
from constraint_builders.files.settings import production_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise
from tests.helpers.places import RHODE_ISLAND

pytestmark = [
    pytest.mark.skipif(not RHODE_ISLAND.exists(), reason=f"real counts are not at {RHODE_ISLAND}"),
    pytest.mark.few(0),
]

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
SETTINGS = production_settings("pl94_us_persons").variances()
OBSERVED = {level: dict(zip(TABLES, variances, strict=True)) for level, variances in VARIANCES.items()}


@pytest.fixture(scope="module")
def blocks() -> tuple[list[str], np.ndarray]:
    with gzip.open(RHODE_ISLAND, "rt") as file:
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
    assert P.estimate(y, certify=False).info.violation < 1e-9 * truth.max()
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


HISPANIC_WHITE, RACES = (1, 0), (0, 1, None, 2, 3, 4, 5, 6)  # of cenrace's 63 for the published columns
REDISTRICTING = ("total", "votingage", "hispanic * cenrace", "detailed")


class Errors(NamedTuple):
    """Of the estimates of one table at one geolevel; the last three of errors in units of their standard errors."""

    sample: int
    mean_square: float
    variance: float
    mean: float
    slope: float
    covered: float


@pytest.fixture(scope="module")
def errors(blocks: tuple[list[str], np.ndarray]) -> dict[tuple[str, str], Errors]:
    """One release of the whole state under the full schema, estimated in one go: 68 million cells, about 3 GB."""
    geoids, published = blocks
    spine, schema = Spine.from_geoids(geoids), gallery.pl94().schema
    desired = dict.fromkeys(spine.levels, REDISTRICTING)
    problem = Problem(schema, {level: SETTINGS[level] for level in spine.levels}, spine=spine, desired=desired)
    y = true_vector(problem, in_full_schema(schema, published))
    truth = {name: cells.copy() for name, cells in problem.observed.tables(y).items() if name[1] in REDISTRICTING}
    rng = np.random.default_rng(2010)
    for (level, table), cells in problem.observed.tables(y).items():
        cells += np.sqrt(SETTINGS[level][table]) * rng.standard_normal(cells.shape)
    P = blue(problem)
    estimates = problem.desired.tables(P @ y)
    del y
    variances = problem.desired.tables(P.variances())
    return {name: compare(estimates[name], truth[name], variances[name]) for name in problem.desired.names}


def in_full_schema(schema: Schema, published: np.ndarray) -> np.ndarray:
    """The published counts as those of households, two or more races in one cell, Hispanics under white."""
    counts = np.zeros((len(published), *schema.shape))
    by_age = published.reshape(-1, 2, len(RACES))
    for column, race in enumerate(RACES):
        counts[:, 0, :, *(HISPANIC_WHITE if race is None else (0, race))] = by_age[:, :, column]
    return counts


def compare(estimate: np.ndarray, truth: np.ndarray, variance: np.ndarray) -> Errors:
    """Cells of large tables are nearly independent, so each counts; a geounit's few cells count as one."""
    sample = estimate.size if estimate[0].size > 100 else len(estimate)
    error = np.subtract(estimate, truth, out=estimate)
    mean_square, mean_variance = float(np.vdot(error, error)) / error.size, float(variance.mean())
    error /= np.sqrt(variance, out=variance)
    slope = float(np.vdot(error, truth) / np.linalg.norm(truth))
    covered = float((abs(error) < 1.959964).mean())
    return Errors(sample, mean_square, mean_variance, float(error.mean()), slope, covered)


@pytest.mark.slow
def test_full_schema_estimates_are_unbiased(errors: dict[tuple[str, str], Errors]) -> None:
    """To four standard errors: at every level the mean error is zero, and large counts are not drawn to small ones."""
    for name, own in errors.items():
        assert abs(own.mean) < 4 / np.sqrt(own.sample), name
        assert abs(own.slope) < 4, name


@pytest.mark.slow
def test_full_schema_intervals_cover_at_every_level(errors: dict[tuple[str, str], Errors]) -> None:
    """95 % of cells lie within 1.96 standard errors, to four standard errors of independent cells."""
    checked = {name: own for name, own in errors.items() if own.sample > 100}
    assert {level for level, _ in checked} == set(SETTINGS) - {"US"}
    for name, own in checked.items():
        assert abs(own.covered - 0.95) < 4 * np.sqrt(0.95 * 0.05 / own.sample), name


@pytest.mark.slow
@pytest.mark.parametrize("level", ["Tract", "Block_Group"])
@pytest.mark.parametrize("table", REDISTRICTING)
def test_full_schema_errors_are_below_those_of_a_level_alone(
    errors: dict[tuple[str, str], Errors], level: str, table: str
) -> None:
    alone = blue(Problem(gallery.pl94().schema, SETTINGS[level], desired=[table])).variances().mean()
    assert errors[level, table].variance < alone
    assert errors[level, table].mean_square < alone

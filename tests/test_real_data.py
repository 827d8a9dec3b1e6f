"""Real counts, noise with a seed: estimates are consistent and closer to the truth than the noisy tables."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pytest

from blue_solvers import blue
from constraint_builders import Problem, Schema
from noise_mechanisms import add_noise
from tests.helpers.places import DATA, PUMA, RHODE_ISLAND

RACES = ["white", "black", "hisp", "aian", "asian", "nhpi", "other", "two"]
pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the real counts of {DATA} are not here"),
    pytest.mark.few(0),
]


def puma_tables() -> dict[str, np.ndarray]:
    found = {}
    for path in sorted(PUMA.glob("ST_*_PUMA_*.csv")):
        with path.open() as file:
            rows = list(csv.reader(file))
        found[path.stem] = np.array([row[1:] for row in rows[1:]], dtype=float)
    return found


def rhode_island() -> tuple[list[str], np.ndarray]:
    """Counties, and counts by county x age x race."""
    counts: dict[str, np.ndarray] = {}
    with gzip.open(RHODE_ISLAND, "rt") as file:
        for row in csv.DictReader(file):
            block = np.array([[row[f"{age}_{race}"] for race in RACES] for age in ("under18", "adult")], dtype=float)
            county = row["geoid"][2:5]
            counts[county] = counts.get(county, 0) + block
    return sorted(counts), np.stack([counts[county] for county in sorted(counts)])


def check(problem: Problem, detailed: np.ndarray, seed: int, solvers: list[str]) -> tuple[float, float]:
    """Total squared errors of the noisy tables and of the estimate, which all solvers agree on."""
    truth = problem.marginal_matrix() @ detailed.ravel()
    y = add_noise(problem, truth, seed)
    estimates = [blue(problem, solver) @ y for solver in solvers]
    for x in estimates:
        assert abs(problem.constraint_matrix("all") @ x).max() <= 1e-9 * detailed.sum()
        assert np.allclose(x, estimates[0], rtol=0, atol=1e-7 * np.sqrt(problem.variances.max()))
    return float(((y - truth) ** 2).sum()), float(((estimates[0] - truth) ** 2).sum())


def test_the_fifteen_puma_tables() -> None:
    schema = Schema({"race": 9, "origin": 24})
    problem = Problem(schema, {"total": 4.0, "race": 4.0, "origin": 4.0, "detailed": 4.0}, noise="discrete_gaussian")
    tables = puma_tables()
    assert len(tables) == 15
    assert all(table.shape == (9, 24) for table in tables.values())
    errors = [check(problem, table, seed, ["sea_blue", "cholesky", "cg"]) for seed, table in enumerate(tables.values())]
    noisy, estimated = np.array(errors).T
    assert estimated.sum() < noisy.sum()
    assert (estimated < noisy).all()  # a projection in the metric of equal variances never moves away from the truth


def test_all_pumas_in_one_problem_with_an_exact_total() -> None:
    tables = puma_tables()
    schema = Schema({"puma": list(tables), "race": 9, "origin": 24})
    names = ["total", "puma", "puma * race", "puma * origin", "race * origin", "detailed"]
    problem = Problem(schema, dict.fromkeys(names, 2.0) | {"total": 0.0, "detailed": 10.0}, noise="discrete_gaussian")
    noisy, estimated = check(problem, np.stack(list(tables.values())), 0, ["sea_blue", "cg"])
    assert estimated < noisy


@pytest.mark.parametrize("unequal", [False, True])
def test_rhode_island_by_county_age_and_race(unequal: bool) -> None:
    counties, counts = rhode_island()
    assert len(counties) == 5
    assert counts.sum() == 1_052_567
    schema = Schema({"county": counties, "age": ["under18", "adult"], "race": RACES})
    names = ["total", "county", "age", "race", "county * age", "county * race", "age * race", "detailed"]
    shapes = Problem(schema, dict.fromkeys(names, 1.0)).observed
    rng = np.random.default_rng(0)
    observed = {name: rng.uniform(5, 500, shapes.shape(name)) if unequal else 100.0 for name in names}
    problem = Problem(schema, observed)
    solvers = ["cholesky", "dense", "cg"] if unequal else ["sea_blue", "cholesky", "dense", "cg", "multigrid"]
    noisy, estimated = check(problem, counts, 1, solvers)
    assert estimated < noisy


def test_standard_errors_are_those_of_the_estimates() -> None:
    """Over many seeds the squared errors, in units of their variances, average one."""
    _, counts = rhode_island()
    schema = Schema({"county": 5, "age": 2, "race": 8})
    problem = Problem(schema, {"county * age": 25.0, "county * race": 9.0, "age * race": 4.0, "detailed": 100.0}, "all")
    truth = problem.marginal_matrix() @ counts.ravel()
    P = blue(problem)
    Y = np.column_stack([add_noise(problem, truth, seed) for seed in range(400)])
    standardised = (P @ Y - (P @ truth)[:, None]) ** 2 / P.variances()[:, None]
    assert np.allclose(standardised.mean(), 1, atol=0.05)
    assert np.allclose(standardised.mean(axis=1), 1, atol=6 * np.sqrt(2 / 400))

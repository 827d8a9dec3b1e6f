"""Real counts: what must not change does not."""

import csv
import gzip

import numpy as np
import pytest

from constraint_builders import Schema
from constraint_builders.description.spine import Spine
from noise_mechanisms.integer_subspace import GeneralizedGaussian, GeneralizedLaplace, Invariants, noise_covariance
from tests.helpers.places import DATA, PUMA, RHODE_ISLAND

pytestmark = [
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the real counts of {DATA} are not here"),
    pytest.mark.few(0),
]


def puma(name: str) -> np.ndarray:
    with (PUMA / name).open(newline="") as file:
        rows = list(csv.reader(file))
    return np.array([[int(float(value)) for value in row[1:]] for row in rows[1:]])


def rhode_island_tracts() -> tuple[Spine, np.ndarray]:
    """State, counties and tracts, and the tracts' populations in the spine's order."""
    people: dict[str, int] = {}
    with gzip.open(RHODE_ISLAND, "rt", newline="") as file:
        for row in csv.DictReader(file):
            tract = row.pop("geoid")[:11]
            people[tract] = people.get(tract, 0) + sum(map(int, row.values()))
    tracts = sorted(people)
    counties = sorted({tract[:5] for tract in tracts})
    parent = [-1, *[0] * len(counties), *[1 + counties.index(tract[:5]) for tract in tracts]]
    levels = ["State", *["County"] * len(counties), *["Tract"] * len(tracts)]
    return Spine(parent, levels, ["44", *counties, *tracts]), np.array([people[tract] for tract in tracts])


def test_race_by_origin_keeps_both_margins() -> None:
    counts = puma("ST_17_PUMA_03531.csv")
    schema = Schema({"race": counts.shape[0], "origin": counts.shape[1]})
    invariants = Invariants.from_margins(schema, ["race", "origin"])
    mechanism = GeneralizedGaussian(invariants, 4.0)
    noisy = mechanism.add_noise(counts.ravel(), rng=1).table.reshape(counts.shape)
    assert np.array_equal(noisy.sum(axis=0), counts.sum(axis=0))
    assert np.array_equal(noisy.sum(axis=1), counts.sum(axis=1))
    draws = mechanism.sample(4000, rng=2)
    scale = noise_covariance(mechanism).scale
    assert scale == 16.0
    expected = scale * (1 - 1 / counts.shape[0]) * (1 - 1 / counts.shape[1])
    # 216 cells of 4,000 draws: the mean variance has a relative standard error of about 0.2 %.
    assert draws.var(axis=0).mean() == pytest.approx(expected, rel=0.01)


def test_tracts_keep_state_and_county_totals() -> None:
    spine, people = rhode_island_tracts()
    invariants = Invariants.from_spine(spine, ["State", "County"])
    assert invariants.records == people.size
    assert invariants.apply(people)[0] == 1_052_567
    mechanism = GeneralizedLaplace(invariants, 0.19)
    assert mechanism.automatic.sampler.name == "blocks"
    released = mechanism.add_noise(people, rng=3).table
    assert invariants.equivalent(released, people)
    assert np.count_nonzero(released != people) > people.size / 2
    assert np.unique(invariants.blocks).size == 5

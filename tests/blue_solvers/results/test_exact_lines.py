"""Lines that are known exactly, of files as the facts describe them: sums of estimates leave no rounding in them."""

import itertools

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.results import Result, write_result
from constraint_builders.files import production_settings, read_noisy_measurements
from constraint_builders.files.noisy_measurements import Release
from tests.helpers.census_files import Written, geocodes, invented, write_census_files
from tests.helpers.census_products import PL94_PERSONS

PLACES = {"044": {"001": [3, 2], "003": [4]}, "009": {"001": [2, 2]}, "109": {"001": [1, 3]}}
CORRECTIONAL, ALL = "P5_003N", "P5_001N"
EACH = pytest.mark.parametrize(("kind", "geolevel"), [*itertools.product(range(7), ["county", "tract", "block"])])


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Written, Release]:
    folder, rng = tmp_path_factory.mktemp("exact"), np.random.default_rng(1)
    blocks = invented(PL94_PERSONS, geocodes(PL94_PERSONS, PLACES), np.arange(8), rng)
    written = write_census_files(folder / "us", PL94_PERSONS, blocks, rng, types="hhgq")
    settings = production_settings("pl94_us_persons")
    return written, read_noisy_measurements(folder / "us", settings, variables=["hhgq", "votingage"])


@pytest.fixture(scope="module", params=["two_pass", "cholesky"])
def state(
    request: pytest.FixtureRequest, measured: tuple[Written, Release], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Written, Result]:
    folder, (written, release) = tmp_path_factory.mktemp(request.param), measured
    P = blue(release.problem, request.param)
    write_result(folder / "result", P, P @ release.y + P.offset, np.sqrt(P.variances()), release.settings)
    return written, Result(folder / "result")


def facilities(written: Written, geoid: str, kind: int) -> int:
    """How many of a type there are in a place."""
    return sum(
        int(b.facilities[kind]) for b in written.blocks if (b.codes[-1][-16:-5] + b.codes[-1][-4:]).startswith(geoid)
    )


@pytest.mark.few(3)
@EACH
def test_where_there_is_no_facility_nobody_lives_in_one(
    state: tuple[Written, Result], geolevel: str, kind: int
) -> None:
    written, result = state
    line = f"P5_{kind + 3 + (kind > 3):03}N"
    for row in result.table(line, geolevel=geolevel).iter_rows(named=True):
        there = facilities(written, row["geoid"], kind) > 0
        assert (row["std_error"] > 0) == there
        assert there or row["estimate"] == row["lower"] == row["upper"] == 0


@pytest.mark.few(3)
@EACH
def test_nothing_is_divided_by_what_is_known_to_be_0(state: tuple[Written, Result], geolevel: str, kind: int) -> None:
    written, result = state
    line = f"P5_{kind + 3 + (kind > 3):03}N"
    for row in result.ratios(ALL, line, geolevel=geolevel).iter_rows(named=True):
        if not facilities(written, row["geoid"], kind):
            assert row["estimate"] is row["lower"] is row["upper"] is None


@pytest.mark.few(5)
@EACH
def test_places_that_are_known_to_be_alike_share_a_rank(
    state: tuple[Written, Result], geolevel: str, kind: int
) -> None:
    written, result = state
    ranks = result.ranks(f"P5_{kind + 3 + (kind > 3):03}N", geolevel=geolevel)
    none = [row for row in ranks.iter_rows(named=True) if not facilities(written, row["geoid"], kind)]
    assert len({(row["rank"], row["rank_from"], row["rank_to"]) for row in none}) <= 1
    for row in none:
        assert row["rank_to"] - row["rank_from"] >= len(none) - 1


def test_a_known_difference_is_a_whole_number(state: tuple[Written, Result]) -> None:
    written, result = state
    codes = [g for g in ("09001", "44003") if not facilities(written, g, 0)]
    for row in result.differences(CORRECTIONAL, geoids=codes, other_geoid=codes[0]).iter_rows(named=True):
        assert row["estimate"] == row["std_error"] == row["lower"] == row["upper"] == 0

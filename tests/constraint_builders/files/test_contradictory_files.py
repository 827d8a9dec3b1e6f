"""Released files that say a thing twice, or two things at once: refused by name, never added up or chosen among."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.streaming import estimate_measurements
from constraint_builders.files import production_settings, read_noisy_measurements
from constraint_builders.files.kept_variables import tied_settings, vacant_units
from tests.helpers.census_files import Block, Written, geocodes, invented, write_census_files
from tests.helpers.census_housing import UNITS, write_housing_files
from tests.helpers.census_products import PL94_PERSONS, dhc_households
from tests.helpers.effort import first_of
from tests.helpers.every import cases

PL94 = production_settings("pl94_us_persons")
HOUSING = tied_settings("dhc_us_housing")[0]
Change = Callable[[pl.DataFrame], pl.DataFrame]


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    places = {"044": {"001": [3, 2], "003": [4]}, "009": {"001": [2, 2]}}
    blocks = invented(PL94_PERSONS, geocodes(PL94_PERSONS, places), np.arange(8), rng, 10)
    folder = tmp_path_factory.mktemp("written") / "us"
    write_census_files(folder, PL94_PERSONS, blocks, rng, types="hhgq")
    return folder


@pytest.fixture
def persons(right: Path, tmp_path: Path) -> Path:
    return shutil.copytree(right, tmp_path / "us")


@pytest.fixture
def housing(tmp_path: Path) -> tuple[Path, Written]:
    """Blocks that have siblings, so that they were measured."""
    own = production_settings("dhc_us_units").schema
    recodes = {r.name: np.array(r.groups) for r in own.recodes if own.names[r.axis] == "hhtype_dhch"}
    product, rng = dhc_households(recodes), np.random.default_rng(3)
    allowed = np.flatnonzero(product.allowed())
    blocks = [
        Block(code, rng.choice(allowed, 25), 30, np.bincount([i], minlength=24))
        for i, code in enumerate(geocodes(product, {"009": {"001": [3, 3]}}))
    ]
    return tmp_path / "us", write_housing_files(tmp_path / "us", product, blocks, rng, "*")[0]


def change(folder: Path, level: str, kind: str, how: Change) -> None:
    """Write all files of one kind anew."""
    for path in (folder / f"{level}.parquet" / kind).rglob("*.parquet"):
        how(pl.read_parquet(path, hive_partitioning=False)).write_parquet(path)


def with_values(frame: pl.DataFrame, name: str, how: Callable[[list], list]) -> pl.DataFrame:
    """The values of one query changed."""
    values = [how(v) if q == name else v for q, v in frame.select("query_name", "value").iter_rows()]
    return frame.with_columns(pl.Series("value", values, dtype=frame.schema["value"]))


def again(name: str, how: Callable[[list], list]) -> Change:
    """The first row of one query once more, with other values."""

    def changed(frame: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([frame, with_values(frame.filter(query_name=name)[:1], name, how)])

    return changed


def refused(folder: Path, said: str) -> None:
    """In memory and streamed, of which nothing is left."""
    with pytest.raises(ValueError, match=said):
        read_noisy_measurements(folder, PL94, variables=["hhgq", "votingage"])
    out = folder.parent / "out"
    with pytest.raises(ValueError, match=said):
        estimate_measurements(folder, PL94, out, memory=1e9, variables=["hhgq", "votingage"])
    assert not out.exists()


ONCE = "is given twice: once is enough$"


@cases(
    ("State", again("hhgq_total_lb_con", lambda own: [2 * x for x in own]), rf"lb_con of State '\d+' {ONCE}"),
    ("Block", again("hhgq_total_ub_con", list), rf"parquet: hhgq_total_ub_con of Block '\d+' {ONCE}"),
    ("US", again("total_con", lambda own: [own[0] + 1]), "total_con of US '' is given twice"),
    (
        "Block",
        lambda frame: with_values(frame, "hhgq_total_ub_con", lambda own: [own[0], *[0] * 7]),
        r"Block '\d+': constraints say that it has [12] of '\w+' and nobody there",
    ),
    (
        "US",
        lambda frame: with_values(
            frame.with_columns(pl.col("value").cast(pl.List(pl.Float64))), "total_con", lambda own: [own[0] + 0.5]
        ),
        r"total_con of US '' is \d+\.5: no count is broken",
    ),
)
def test_what_constraints_say_twice_or_cannot_say_is_refused(
    level: str, how: Change, said: str, right: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(right, tmp_path / f"us{len(list(tmp_path.iterdir()))}")
    change(folder, level, "Constraint", how)
    refused(folder, said)


def test_a_partition_copied_under_both_spellings_of_its_state_is_refused(persons: Path) -> None:
    place = persons / "Block.parquet" / "Constraint"
    shutil.copytree(place / "State=44", place / "State=044")
    refused(persons, r"of Block '044\d+' is given twice")


@pytest.mark.few(0)
@pytest.mark.parametrize(("name", "sign"), first_of([("hhgq_total_lb_con", "="), ("hhgq_total_ub_con", ">=")], 1, True))
def test_bounds_with_the_sign_of_something_else_are_not_used(persons: Path, name: str, sign: str) -> None:
    right = read_noisy_measurements(persons, PL94)
    other = pl.when(query_name=name).then(pl.lit(sign)).otherwise("sign")
    change(persons, "Block", "Constraint", lambda frame: frame.with_columns(sign=other))
    release = read_noisy_measurements(persons, PL94)
    assert [own.reason for own in release.unused if own.name == name and own.geolevel == "Block"] == [
        f"its sign is '{sign}', that of such bounds '{'<=' if 'ub' in name else '>='}'"
    ]
    assert not (release.problem.variances == 0)[release.problem.observed.slice(("Block", "hhgq"))].any()
    kept = "housing_units" if "ub" in name else None  # what the other bound says of facilities
    types = set(release.facilities.filter(geolevel="Block")["type"])
    assert types == ({"housing_units"} if kept is None else set(right.facilities["type"]) - {kept})


def test_a_geolevel_of_constraints_alone_is_refused(persons: Path) -> None:
    shutil.rmtree(persons / "Tract.parquet" / "DPQuery")
    refused(persons, re.escape("there are no measurements at 'Tract', only constraints: copy Tract.parquet/DPQuery"))


@pytest.mark.few(0)
@pytest.mark.parametrize("apart", first_of([True, False], 1))
def test_units_given_twice_are_not_two_measurements(housing: tuple[Path, Written], apart: bool) -> None:
    folder, _ = housing
    path = folder / "Block.parquet" / "DPQuery" / "part-0.parquet"
    frame = pl.read_parquet(path)
    twice = frame.filter(query_name=f"{UNITS}_dpq")
    if apart:
        twice.write_parquet(path.with_name("part-1.parquet"))
    else:
        pl.concat([frame, twice]).write_parquet(path)
    with pytest.raises(ValueError, match=r"table 'detailed' of units of Block '009\d+' is given twice"):
        read_noisy_measurements(folder, HOUSING, variables=["hisp", "tenure"])


@pytest.mark.few(0)
def test_facilities_and_units_known_twice_are_refused(housing: tuple[Path, Written]) -> None:
    folder, _ = housing
    change(folder, "Block", "Constraint", again("gq_vect", lambda values: [values[0] + 5, *values[1:]]))
    with pytest.raises(ValueError, match=r"gq_vect of Block '009\d+' is given twice"):
        read_noisy_measurements(folder, HOUSING, variables=["hisp", "tenure"])


def test_broken_measurements_of_units_lose_nothing() -> None:
    """Noise of other laws is not whole; vacant units of it are added up as they are."""
    cells = np.arange(2 * 35).reshape(2, 35) + 0.25
    assert vacant_units(cells).tolist() == [sum(range(4, 11)) + 7 * 0.25, sum(range(39, 46)) + 7 * 0.25]
    assert vacant_units(np.full((1, 35), 100, dtype=np.int8)).tolist() == [700]

"""Persons of DHC and of Puerto Rico: their own layout, zeros, and the counts in their files that are not the truth."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.results.checksums import read_json_object
from constraint_builders.files import production_settings, read_noisy_measurements
from tests.helpers.census_files import Block, Written, geocodes, invented, write_census_files
from tests.helpers.census_housing import write_housing_files
from tests.helpers.census_products import DHC_PERSONS, PL94_PERSONS, Product, dhc_households, puerto_rico
from tests.helpers.effort import first_of

TYPES = np.maximum(np.arange(42) - 17, 0)
PUBLISHED = {"relgq": "hhgq8lev", "sex": "*", "age": "votingage", "hispanic": "hispanic", "cenrace": "cenrace"}
SETTINGS = production_settings("dhc_us_persons")


@pytest.fixture(scope="module")
def dhc(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Written]:
    folder, rng = tmp_path_factory.mktemp("dhc") / DHC_PERSONS.folder, np.random.default_rng(4)
    blocks = invented(DHC_PERSONS, geocodes(DHC_PERSONS, {"044": {"001": [3]}}), TYPES, rng, 5_000)
    return folder, write_census_files(
        folder, DHC_PERSONS, blocks, rng, types="gqlevels", total_at=None, untrue={"pl94_con": PUBLISHED}
    )


@pytest.mark.few(0)
def test_persons_of_dhc_are_read(dhc: tuple[Path, Written]) -> None:
    folder, written = dhc
    release = read_noisy_measurements(folder, SETTINGS, variables=["relgq", "age"], desired=["age_18_64_116"])
    assert DHC_PERSONS.allowed().sum() == 905_184
    allowed = DHC_PERSONS.allowed().reshape(42, 2, 116, 2, 63)[:, 0, :, 0, 0]
    zeros, spine = release.problem.zeros, release.problem.domain.spine
    for number, level in enumerate(DHC_PERSONS.geolevels):
        for code in {block.codes[number] for block in written.blocks}:
            blocks = written.within(number, code)
            present = np.concatenate([[sum(own.units for own in blocks)], sum(own.facilities for own in blocks)]) > 0
            expected = ~(allowed & present[TYPES][:, None])
            assert np.array_equal(zeros.empty[spine.position(level, code)], expected), (level, code)
    for own in release.read.rows:
        assert own.read == own.used + own.unused == written.rows[own.geolevel, own.kind]
    assert {own.reason for own in release.unused if own.name == "pl94_con"} == {
        "it holds of published estimates, not of the true counts"
    }
    assert not (release.problem.variances == 0).any()
    assert release.read.is_lossless
    values = release.problem.observed.tables(release.y)
    for (level, code, query), (drawn, _) in written.measured.items():
        if query in ("age_18_64_116 * sex", "relgq * age_40_groups * hispanic * cenrace * sex"):
            rank = spine.rank_in_level[spine.position(level, code)]
            name = "age_18_64_116" if "18" in query else "relgq * age_40_groups"
            drawn = drawn.reshape(2, 3).sum(axis=0) if "18" in query else drawn.reshape(42, 2, 40, 126).sum(axis=(1, 3))
            assert np.array_equal(values[level, name][rank], drawn)


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]])
def test_persons_of_dhc_by_sex_and_race_run_to_the_end(
    memory: list[str], dhc: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = [
        "--settings",
        "dhc_us_persons",
        "--variables",
        "sex,relgq",
        "--desired",
        "sex",
        "--desired",
        "relgq_4_groups",
    ]
    assert main(["estimate", str(dhc[0]), *words, "--out", str(tmp_path / "out"), *memory]) == 0
    said = capsys.readouterr().out
    assert "summed     over age, hispanic, cenrace when read: estimates are the best from sums" in said
    assert "fits: all tables agree with their noise" in said
    assert "proved: " in said
    found = pl.read_parquet(tmp_path / "out" / "estimates" / "County.parquet", hive_partitioning=False)
    people = sum(block.persons.size for block in dhc[1].blocks)
    row = found.filter(table="sex")
    assert abs(sum(row["estimate"][0]) - people) < 5 * np.sqrt(2) * max(row["std_error"][0])


def estimated(folder: Path, settings: str, out: Path, *words: str) -> pl.DataFrame:
    """Counties' estimates with their errors, by table."""
    desired = [word for table in ("sex", "relgq_4_groups", "sex * age_18_64_116") for word in ("--desired", table)]
    assert main(["estimate", str(folder), "--settings", settings, "--out", str(out), *desired, *words]) == 0
    return pl.read_parquet(out / "estimates" / "County.parquet", hive_partitioning=False)


@pytest.mark.few(0)
@pytest.mark.parametrize("memory", first_of([["--memory", "2GB"], []], 1))
def test_persons_of_dhc_with_all_variables(
    memory: list[str], dhc: tuple[Path, Written], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    found = estimated(dhc[0], "dhc_us_persons", tmp_path / "out", *memory)
    said = capsys.readouterr().out
    assert "two_pass, " in said
    assert "proved: " in said
    people = sum(block.persons.size for block in dhc[1].blocks)
    for table in ("sex", "relgq_4_groups", "sex * age_18_64_116"):
        row = found.filter(table=table)
        assert abs(sum(row["estimate"][0]) - people) < 5 * np.sqrt(6) * max(row["std_error"][0])


@pytest.mark.slow
@pytest.mark.parametrize("memory", first_of([["--memory", "2GB"], []], 1))
def test_persons_of_puerto_rico_with_all_variables(
    memory: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    product, rng = puerto_rico(DHC_PERSONS), np.random.default_rng(6)
    blocks = invented(product, geocodes(product, {"072": {"001": [3]}}, "State"), TYPES, rng, 5_000)
    folder = tmp_path / product.folder
    write_census_files(folder, product, blocks, rng, types="gqlevels", total_at=None, untrue={"pl94_con": PUBLISHED})
    found = estimated(folder, "dhc_pr_persons", tmp_path / "out", *memory)
    assert "proved: " in capsys.readouterr().out
    row = found.filter(table="sex")
    people = sum(block.persons.size for block in blocks)
    assert abs(sum(row["estimate"][0]) - people) < 5 * np.sqrt(2) * max(row["std_error"][0])


def of_pl94(folder: Path, product: Product, state: str, root: str) -> Written:
    rng = np.random.default_rng(5)
    codes = geocodes(product, {state: {"001": [2, 2], "003": [3]}}, root)
    blocks = invented(product, codes, np.arange(8), rng, 5_000)
    return write_census_files(folder, product, blocks, rng, types="hhgq", total_at=root)


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", [[], ["--memory", "1GB"]])
@pytest.mark.parametrize(
    ("settings", "product", "state", "root"),
    [("pl94_us_persons", PL94_PERSONS, "044", "US"), ("pl94_pr_persons", puerto_rico(PL94_PERSONS), "072", "State")],
)
def test_redistricting_persons_of_both_runs(
    settings: str,
    product: Product,
    state: str,
    root: str,
    memory: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    written = of_pl94(tmp_path / product.folder, product, state, root)
    words = ["--settings", settings, "--desired", "total", "--desired", "hhgq", "--out", str(tmp_path / "out")]
    assert main(["estimate", str(tmp_path / product.folder), *words, *memory, "--verbose"]) == 0
    said = capsys.readouterr().out
    assert "proved: " in said
    assert "fits: all tables" in said
    assert "of 1 whose total is known or was measured 1 agree" in said
    stored = read_json_object(tmp_path / "out" / "result.json")["read"]
    assert {(level, kind): read for level, kind, read, _, _ in stored["rows"] if read} == {
        key: rows for key, rows in written.rows.items() if rows
    }
    assert {name for _, name, _, _ in stored["unused"]} == {"hhgq_total_lb_con"}
    facilities = pl.read_parquet(tmp_path / "out" / "facilities.parquet")
    units = facilities.filter(geolevel="Block", type="housing_units")["facilities"].sum()
    assert units == sum(block.units for block in written.blocks)
    people = sum(block.persons.size for block in written.blocks)
    top = pl.read_parquet(tmp_path / "out" / "estimates" / f"{root}.parquet", hive_partitioning=False)
    assert top.filter(table="total")["estimate"][0][0] == pytest.approx(people, abs=1e-6)
    counties = pl.read_parquet(tmp_path / "out" / "estimates" / "County.parquet", hive_partitioning=False)
    assert counties["geocode"].str.slice(0, 3).unique().to_list() == [state]


@pytest.mark.few(0)
@pytest.mark.parametrize("memory", first_of([[], ["--memory", "1GB"]], 1))
def test_housing_runs_to_the_end(memory: list[str], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    schema = production_settings("dhc_pr_units").schema
    recodes = [recode for recode in schema.recodes if schema.names[recode.axis] == "hhtype_dhch"]
    product = puerto_rico(dhc_households({recode.name: np.array(recode.groups) for recode in recodes}))
    rng = np.random.default_rng(6)
    codes, allowed = geocodes(product, {"072": {"001": [3, 1]}}, "State"), np.flatnonzero(product.allowed())
    blocks = [
        Block(code, rng.choice(allowed, 2_500), 3_000, np.bincount([i], minlength=24)) for i, code in enumerate(codes)
    ]
    write_housing_files(tmp_path / "PR_DHCH_PROD", product, blocks, rng, None)
    words = ["--settings", "dhc_pr_housing", "--variables", "sex,race,hisp,tenure", "--out", str(tmp_path / "out")]
    words.append("--verbose")
    assert (
        main(["estimate", str(tmp_path / "PR_DHCH_PROD"), *words, "--desired", "tenure", "--desired", "race", *memory])
        == 0
    )
    said = capsys.readouterr().out
    assert ("proved: " in said) == (not memory)  # streamed proofs ask for a table that holds all others
    assert "fits: all tables" in said
    assert "facilities 12,000 housing_units, 1 gq101, 1 gq103, 1 gq102, 1 gq104" in said
    assert "not used   owned at State, 1 row: it ties two histograms" in said
    assert (
        main(["query", str(tmp_path / "out"), "--geolevel", "State", "--all", "--count", "tenure=mortgage|owned_free"])
        == 0
    )


@pytest.mark.few(0)
def test_state_totals_hold_in_memory_and_streamed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rng = np.random.default_rng(8)
    places = {"044": {"001": [3]}, "009": {"001": [3]}, "109": {"001": [3]}}
    blocks = invented(PL94_PERSONS, geocodes(PL94_PERSONS, places), np.arange(8), rng, 5_000)
    written = write_census_files(tmp_path / "us", PL94_PERSONS, blocks, rng, types="hhgq")
    people = {state: sum(b.persons.size for b in blocks if b.codes[1].endswith(state)) for state in ("44", "09")}
    (tmp_path / "states.csv").write_text("".join(["state,total\n", *(f"{s},{n}\n" for s, n in people.items())]))
    words = [
        "--settings",
        "pl94_us_persons",
        "--desired",
        "total",
        "--state-totals",
        str(tmp_path / "states.csv"),
        "--verbose",
    ]
    found = []
    for name, memory in {"memory": [], "streamed": ["--memory", "1GB"]}.items():
        assert main(["estimate", str(tmp_path / "us"), *words, "--out", str(tmp_path / name), *memory]) == 0
        said = capsys.readouterr().out
        assert "fits: all tables" in said
        assert "total_dpq at State, 1 row: " in said  # of the state that is one geounit
        levels = [pl.read_parquet(tmp_path / name / "estimates" / f"{own}.parquet") for own in ("Whole_State", "State")]
        found.append({code: cells[0] for own in levels for code, cells in own.select("geocode", "estimate").rows()})
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert found[0]["009+109"] == pytest.approx(people["09"], abs=1e-6)
    assert found[0]["044"] == pytest.approx(people["44"], abs=1e-6)
    assert len(written.blocks) == 9

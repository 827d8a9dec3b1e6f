"""From true counts by block to a noisy release, to estimates at every geolevel, to answers with intervals."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import Dense, blue
from blue_solvers.cli import main
from blue_solvers.commands.query import parse_count
from blue_solvers.commands.simulate import block_spine
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from blue_solvers.uncertainty import functionals
from constraint_builders import Problem, Schema, Spine
from constraint_builders.files import read_block_counts, read_noisy_measurements, read_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms.budgeted import noise_variances
from tests.helpers.every import cases
from tests.helpers.refused_commands import refusal

SETTINGS = """
geolevels = ["US", "State", "County", "Tract", "Block_Group", "Block"]
noise = "discrete_gaussian"
[variables]
votingage = ["under18", "adult"]
race = ["white", "black", "hisp", "aian", "asian", "nhpi", "other", "two"]
[recodes]
race.alone = "0-1,3-6 | 2 | 7"
[budget]
total = "2.56"
[budget.geolevels]
US = "104/4099"
State = "1440/4099"
County = "447/4099"
Tract = "687/4099"
Block_Group = "1256/4099"
Block = "165/4099"
[budget.tables]
total = ["1/4", "1/4", "1/4", "1/4", "1/4", 0]
votingage = [0, "1/4", "1/4", "1/4", "1/4", 0]
"votingage * alone" = ["1/4", "1/4", "1/4", 0, "1/4", "1/4"]
detailed = ["1/2", "1/4", "1/4", "1/2", "1/4", "3/4"]
"""
RACES = ("white", "black", "hisp", "aian", "asian", "nhpi", "other", "two")
BLOCKS = [f"44001{tract:06}{group}{block:03}" for tract in (1, 2) for group in (1, 2) for block in range(3)]
SPINE_BLOCKS = [("044100712", 1, "1002"), ("044100712", 1, "1003"), ("04410073", 2, "2001")]
WHOLE = "44003" + "000300" + "1000"


@pytest.fixture
def settings(tmp_path: Path) -> str:
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS)
    return str(path)


@pytest.fixture
def blocks(tmp_path: Path) -> str:
    """Made-up counts of 13 blocks in two counties."""
    counts = np.random.default_rng(3).poisson(20, (13, 16))
    cells = [f"{age}_{race}" for age in ("under18", "adult") for race in RACES]
    frame = pl.DataFrame({"geoid": [*BLOCKS, WHOLE]} | {cell: counts[:, i] for i, cell in enumerate(cells)})
    frame.write_csv(tmp_path / "blocks.csv")
    return str(tmp_path / "blocks.csv")


@pytest.fixture
def release(blocks: str, settings: str, tmp_path: Path) -> str:
    assert main(["simulate", blocks, "--settings", settings, "--seed", "7", "--out", str(tmp_path / "release")]) == 0
    return str(tmp_path / "release")


@pytest.fixture
def result(release: str, tmp_path: Path) -> str:
    assert main(["estimate", release, "--out", str(tmp_path / "result")]) == 0
    return str(tmp_path / "result")


def test_a_release_holds_truth_plus_noise_of_the_stated_law(release: str, blocks: str, settings: str) -> None:
    read = read_noisy_measurements(release, read_settings(settings))
    problem = read.problem
    _, counts = read_block_counts(blocks, read_settings(settings).schema)
    assert problem.spine.levels == ("State", "County", "Tract", "Block_Group", "Block")
    stated = noise_variances(read_settings(settings).budget, "discrete_gaussian")
    for (level, table), variances in problem.observed.tables(problem.variances).items():  # type: ignore[misc]
        assert (variances == stated[level][table]).all()
    errors = read.y - true_vector(problem, counts)
    assert (errors == np.round(errors)).all()
    assert abs((errors**2 / problem.variances).sum() - errors.size) < 4 * np.sqrt(2 * errors.size)
    said = json.loads((Path(release) / "simulation.json").read_text())
    assert said["left out"] == "US"
    assert said["grade"].startswith("simulation only")
    assert (Path(release) / "settings.toml").read_text() == SETTINGS


def test_a_seed_makes_the_same_release_again(release: str, blocks: str, settings: str, tmp_path: Path) -> None:
    drawn = []
    for name, arguments in {"again": ["--seed", "7"], "other": ["--seed", "8"], "fresh": []}.items():
        assert main(["simulate", blocks, "--settings", settings, "--out", str(tmp_path / name), *arguments]) == 0
        drawn.append(read_noisy_measurements(tmp_path / name, read_settings(settings)).y)
    original = read_noisy_measurements(release, read_settings(settings)).y
    assert np.array_equal(drawn[0], original)
    assert not np.array_equal(drawn[1], original)
    assert not np.array_equal(drawn[2], original)


def test_neither_the_seed_nor_the_truth_is_in_the_release(
    blocks: str, settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = 987_654_321_987
    before = set(tmp_path.iterdir())
    arguments = ["simulate", blocks, "--settings", settings, "--seed", str(seed), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert f"seed       {seed}" in said
    assert "simulation only" in said
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(seed).encode() not in content
            assert seed.to_bytes(8, "little") not in content
            assert Path(blocks).name.encode() not in content
    assert set(tmp_path.iterdir()) - before == {tmp_path / "out"}


@pytest.mark.parametrize("solver", ["two_pass", "cholesky"])
def test_levels_with_no_table_for_a_count_are_composed_of_others(settings: str, tmp_path: Path, solver: str) -> None:
    spine = Spine.from_geoids([*BLOCKS, WHOLE])
    read = read_settings(settings)
    variances = {level: noise_variances(read.budget, "gaussian")[level] for level in spine.levels}
    desired = {"County": ["votingage"], "Tract": ["total"], "Block": ["votingage"]}
    problem = Problem(read.schema, variances, desired, spine=spine)
    P = blue(problem, solver)
    y = np.random.default_rng(4).normal(50, 5, problem.observed.size)
    estimate = P @ y
    write_result(tmp_path / "some", P, estimate, np.ones(estimate.size), read)
    stored = Result(tmp_path / "some")
    first_tract = BLOCKS[0][:11]
    adults: dict[str, list[str]] = {"votingage": ["adult"]}
    answer = stored.ask("Tract", stored.geounits("Tract", [first_tract]), [{}, adults])
    inside = np.array([geocode.startswith(first_tract) for geocode in [*BLOCKS, WHOLE]])
    weights = {name: np.zeros((*problem.desired.shape(name), 2)) for name in problem.desired.names}
    weights["Block", "votingage"][inside, :, 0] = weights["Block", "votingage"][inside, 1, 1] = 1
    expected = functionals(blue(problem, Dense()), y, problem.desired.vector(weights))
    assert np.allclose(answer.estimate, expected.estimate, rtol=1e-9)
    assert np.allclose(answer.covariance, expected.covariance, rtol=1e-8)
    asked = stored.geounits("Block", BLOCKS[:2])
    with pytest.raises(ValueError, match="no table stored at 'Block' counts race=white: there are 'votingage'"):
        stored.ask("Block", asked, [adults, {"race": ["white"]}])


def test_the_answer_is_printed_with_its_interval(result: str, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    codes = tmp_path / "codes.txt"
    codes.write_text(f"{BLOCKS[0]}\n\n{BLOCKS[1]}\n")
    capsys.readouterr()
    asked = ["--count", "total", "--count", "votingage=adult", "--level", "0.9"]
    assert main(["query", result, *asked, "--geounits-file", str(codes)]) == 0
    from_file = capsys.readouterr().out
    assert main(["query", result, *asked, "--geounits", *BLOCKS[:2]]) == 0
    assert capsys.readouterr().out == from_file
    lines = from_file.splitlines()
    assert lines[0] == "2 geounits of level Block together"
    assert lines[2].split("  ")[0] == "count"
    assert "90% from" in lines[2]
    stored = Result(result)
    answer = stored.ask("Block", stored.geounits("Block", BLOCKS[:2]), [{}, {"votingage": ["adult"]}])
    for line, name, estimate, error in zip(lines[4:], asked[1::2], answer.estimate, answer.std_errors, strict=False):
        bounds = estimate - 1.6448536269514722 * error, estimate + 1.6448536269514722 * error
        assert line.split() == [name, *(f"{number:,.2f}" for number in (estimate, error, *bounds))]


def test_blocks_of_a_spine_of_its_own_are_found_by_geoid(settings: str, tmp_path: Path) -> None:
    """Spine codes of the Census Bureau: branch and state, optimised codes, and the tabulation block's 16 digits."""
    blocks = [f"{prefix}44007000100{group}{block}" for prefix, group, block in SPINE_BLOCKS]
    spine = Spine.from_geocodes({"State": ["044"], "Block": blocks})
    variances = {level: noise_variances(read_settings(settings).budget, "gaussian")[level] for level in spine.levels}
    problem = Problem(read_settings(settings).schema, variances, {"Block": ["total"]}, spine=spine)
    P = blue(problem)
    write_result(tmp_path / "own", P, np.array([10.0, 20, 30]), np.ones(3), read_settings(settings))
    stored = Result(tmp_path / "own")
    found = stored.geounits("Block", ["440070001002001", blocks[0], "440070001001003"])
    assert found.tolist() == [2, 0, 1]
    assert stored.ask("Block", found[:2], [{}]).estimate == 40
    with pytest.raises(ValueError, match="is given twice"):
        stored.geounits("Block", ["440070001001002", blocks[0]])


def test_questions_without_an_answer_are_refused_by_name(
    result: str, release: str, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def complaint(*arguments: str) -> str:
        return refusal(capsys, "query", result, *arguments)

    assert "no geounit '44' at geolevel 'Block'" in complaint("--geounits", "44")
    assert f"geounit '{WHOLE}' is given twice" in complaint("--geounits", WHOLE, WHOLE)
    assert "no geolevel 'Village'" in complaint("--geolevel", "Village", "--geounits", WHOLE)
    assert "'age' is not a variable or recode" in complaint("--count", "age=3", "--geounits", WHOLE)
    assert "'race' has no level 'green': there are white" in complaint("--count", "race=green", "--geounits", WHOLE)
    assert "is not understood: write total, or" in complaint("--count", "adults", "--geounits", WHOLE)
    assert "nowhere" in refusal(capsys, "query", str(tmp_path / "nowhere"), "--geounits", WHOLE)
    few = str(tmp_path / "few")
    assert main(["estimate", release, "--out", few, "--desired", "votingage"]) == 0
    asked = refusal(capsys, "query", few, "--count", "race=white", "--geounits", WHOLE)
    assert "no table stored at 'Block' counts race=white: there are 'votingage'; estimate again with --desired" in asked
    (Path(few) / "result.json").write_text('{"format": 99}')
    assert "format 99 is another than 1" in refusal(capsys, "query", few, "--geounits", WHOLE)


def test_simulate_and_estimate_refuse_bad_input_by_name(
    blocks: str, settings: str, release: str, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def simulate(*arguments: str, counts: str = blocks, out: str = "out") -> str:
        return refusal(capsys, "simulate", counts, "--out", str(tmp_path / out), *arguments)

    assert "it is there already" in simulate("--settings", settings, out="release")
    assert "no settings 'acs'" in simulate("--settings", "acs")
    assert "must be as in State=2,County=5" in simulate("--settings", settings, "--widths", "State")
    assert "--widths names 'Village'" in simulate("--settings", settings, "--widths", "Village=3")
    assert "which 'Prim' a block is in: give --widths" in simulate("--settings", "dhc_us_persons")
    assert "blocks.csv: column 'vacant' is missing" in simulate("--settings", "pl94_us_units")
    assert not (tmp_path / "out").exists()
    out = ("--out", str(tmp_path / "out"))
    (Path(release) / "settings.toml").unlink()
    assert "has no settings.toml: give --settings" in refusal(capsys, "estimate", release, *out)
    assert main(["estimate", release, "--settings", settings, "--within", "44003", *out]) == 0
    assert Result(tmp_path / "out").spine.levels == ("County", "Tract", "Block_Group", "Block")


@pytest.mark.parametrize("count", ["1e308", "1" + "0" * 40, "9e15"])
def test_counts_whose_sums_are_not_exact_are_refused(
    count: str, blocks: str, settings: str, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    frame = pl.read_csv(blocks, infer_schema=False)
    changed = [count if row < 2 else own for row, own in enumerate(frame["adult_two"])]
    frame.with_columns(adult_two=pl.Series(changed)).write_csv(blocks)
    said = refusal(capsys, "simulate", blocks, "--settings", settings, "--out", str(tmp_path / "out"))
    assert "blocks.csv: " in said
    assert "9,007,199,254,740,992" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.few(3)
@pytest.mark.parametrize("value", [1e308, -1.7e308, 1e17])
@pytest.mark.parametrize("memory", [[], ["--memory", "1e8"]])
def test_measurements_whose_sums_are_not_exact_are_refused(
    value: float, memory: list[str], release: str, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    for path in Path(release).rglob("*.parquet"):
        if path.is_file():
            frame = pl.read_parquet(path, hive_partitioning=False)
            frame.with_columns(pl.col("value").list.eval(pl.element() * 0.0 + value)).write_parquet(path)
    said = refusal(capsys, "estimate", release, "--out", str(tmp_path / "out"), *memory)
    assert "a value is beyond 9,007,199,254,740,992: no such number is a count" in said
    assert not (tmp_path / "out").exists()


def test_what_is_not_finite_is_not_stored(settings: str, tmp_path: Path) -> None:
    read = read_settings(settings)
    variances = {level: noise_variances(read.budget, "gaussian")[level] for level in ("County", "Block")}
    spine = Spine.from_geocodes({"County": ["44001"], "Block": BLOCKS[:2]})
    P = blue(Problem(read.schema, variances, {"Block": ["total"]}, spine=spine))
    for estimate, error, what in (([1, np.nan], [1.0, 1.0], "estimate"), ([1, 2], [1.0, np.inf], "standard error")):
        with pytest.raises(ValueError, match=f"the {what} of table 'total' at '{BLOCKS[1]}' is not finite"):
            write_result(tmp_path / "out", P, np.array(estimate), np.array(error), read)
    assert not list(tmp_path.glob("*out*"))


def test_constraints_are_reported(release: str, capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    folder = Path(release) / "County.parquet" / "Constraint"
    folder.mkdir()
    row = {"geocode": "44001", "value": [0, 1], "race": "*", "votingage": "detailed"}
    names = {"voting_lb_con": ">=", "voting_con": "<=", "loose_con": "<="}
    rows = [row | {"query_name": name, "sign": sign} for name, sign in names.items()]
    rows[2]["value"] = [2, 1]
    pl.DataFrame(rows).write_parquet(folder / "part.parquet")
    assert main(["estimate", release, "--out", str(tmp_path / "out"), "--desired", "total"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "empty      1 structural zero of table 'votingage' at County",
        "not used   voting_lb_con at County, 1 row: a linear estimate cannot use a lower bound",
        "not used   loose_con at County, 1 row: a linear estimate cannot use an upper bound above 0",
    ]


def test_long_and_wide_counts_are_the_same(blocks: str, tmp_path: Path) -> None:
    schema = Schema({"sex": ["f", "m"], "age": ["young", "old"]})
    wide = pl.DataFrame({"geocode": ["a", "b"], "f_young": [1, 0], "f_old": [2, 0], "m_young": [3, 0], "m_old": [4, 5]})
    wide.write_parquet(tmp_path / "wide.parquet")
    (tmp_path / "long.csv").write_text(
        "geoid,age,sex,count\na,old,f,2\na,young,f,1\nb,,,0\na,young,m,3\na,old,m,4\nb,old,m,3\nb,old,m,2\n"
    )
    expected = [[[1, 2], [3, 4]], [[0, 0], [0, 5]]]
    for name in ("wide.parquet", "long.csv"):
        geoids, counts = read_block_counts(tmp_path / name, schema)
        assert geoids == ["a", "b"]
        assert counts.tolist() == expected
    (tmp_path / "grouped.csv").write_text("geoid;sex;age;count\na;f;old;1.234.567\na;m;old;2,5\n")
    assert read_block_counts(tmp_path / "grouped.csv", schema)[1].tolist() == [[[0, 1234567], [0, 2.5]]]


@cases(
    ("block,f,m\n1,2,3\n", "no column 'geoid' or 'geocode'"),
    ("geoid,f\n1,2\n", "column 'm' is missing"),
    ("geoid,f,m,x\n1,2,3,4\n", "column 'x' is no cell of the schema"),
    ("geoid,f,m\n1,2,3\n1,2,3\n", "block '1' is given twice, first in row 2"),
    ("geoid,f,m\n1,2,3\n 1 ,2,3\n", "block '1' is given twice, first in row 2"),
    (
        "geoid,f,m\n1,2,3\n2,-2,3\n",
        "column 'f' holds '-2' in row 3: a count is a number from 0 to 9,007,199,254,740,992",
    ),
    ("geoid,f,m\n1,2,3\n2,3,x\n", "column 'm': 'x' is not a number .row 3"),
    ("geoid,f,m\n,2,3\n", "column 'geoid' is empty in row 2"),
    ("geoid;f;m\n1;1.000;3\n", "'1.000' may mean 1000 or 1.000: write 1000"),  # it was one
    ("geoid;sex;count\n1;f;1.234\n", "'1.234' may mean 1234 or 1.234"),
    ("geoid,sex,count\n1,f,2\n2,w,3\n", "row 3: column 'sex' has no level 'w': there are 'f', 'm'"),
    ("geoid,count\n1,2\n", "column 'sex' is missing"),
)
def test_wrong_counts_are_refused_by_file_and_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_block_counts(path, Schema({"sex": ["f", "m"]}))
    assert str(error.value).startswith(f"{path}: ")


def test_a_root_above_one_state_is_left_out_and_above_two_is_not() -> None:
    widths = {"US": 0, "State": 2, "Block": 4}
    assert block_spine(["4401", "4402"], widths)[1] == "US"
    spine, left_out = block_spine(["4401", "0902"], widths)
    assert (spine.levels, left_out) == (("US", "State", "Block"), "")


def test_counts_are_read_from_text() -> None:
    assert parse_count(" total ") == {}
    assert parse_count("age=1 | 2, sex=f") == {"age": ["1", "2"], "sex": ["f"]}
    for wrong in ("", "age", "age=", "=3", "age=1,age=2"):
        with pytest.raises(ValueError, match="is not understood"):
            parse_count(wrong)

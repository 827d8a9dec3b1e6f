"""Answers about many places and whole tables, tidy in a file: those of one dense least squares."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from constraint_builders.files import read_noisy_measurements, read_settings
from constraint_builders.files.block_tables import read_places
from tests.helpers.dense_algebra import best
from tests.helpers.every import cases, every
from tests.helpers.refused_commands import commands, refusal
from tests.helpers.simulated import settings_of, simulate

SETTINGS = settings_of(
    ["State", "County", "Block"],
    {"sex": ["f", "m"], "age": ["child", "adult", "old"]},
    {"total": "1/12", "grown": "1/12", "detailed": "1/6"},
    'age.grown = ["no", "yes", "yes"]',
)
BLOCKS = [f"44{county}00010010{block:02}" for county in ("001", "003") for block in range(5)]
PLACES = {"Alder": BLOCKS[:2], "Birch": BLOCKS[1:8], "Cedar": [BLOCKS[9]]}
RESULTS = ["estimate", "std_error", "lower", "upper"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tidy")
    counts = np.random.default_rng(3).poisson(20, (len(BLOCKS), 6))
    cells = [f"{sex}_{age}" for sex in ("f", "m") for age in ("child", "adult", "old")]
    places = [(place, block) for place, blocks in PLACES.items() for block in blocks]
    pl.DataFrame(places, schema=["Place", "GEOID"], orient="row").write_csv(folder / "places.csv")
    release = str(simulate(folder, SETTINGS, BLOCKS, cells, counts, seed=7))
    assert main(["estimate", release, "--out", str(folder / "result")]) == 0
    assert main(["estimate", release, "--solver", "cholesky", "--out", str(folder / "by_cholesky")]) == 0
    return folder


@pytest.fixture(scope="module")
def leaves(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Estimates of the detailed cells of the blocks, (10 * 6,), and their covariance, from one dense solve."""
    read = read_noisy_measurements(folder / "release", read_settings(folder / "settings.toml"))
    M = read.problem.marginal_matrix().toarray()
    return best(M, read.problem.variances, read.y)


def answered(folder: Path, *arguments: str, result: str = "result", suffix: str = "parquet") -> pl.DataFrame:
    out = folder / f"answers.{suffix}"
    out.unlink(missing_ok=True)
    assert main(["query", str(folder / result), *arguments, "--out", str(out)]) == 0
    return pl.read_parquet(out) if suffix == "parquet" else pl.read_csv(out, infer_schema=False)


def agrees(frame: pl.DataFrame, weights: np.ndarray, leaves: tuple[np.ndarray, np.ndarray]) -> None:
    """Rows of a frame are these functionals, (rows, 10 * 6), of the blocks' cells."""
    estimate, covariance = leaves
    assert np.allclose(frame["estimate"], weights @ estimate, atol=1e-8)
    errors = np.sqrt(np.einsum("ri,ij,rj->r", weights, covariance, weights))
    assert np.allclose(frame["std_error"], errors)
    assert np.allclose(frame["upper"] - frame["lower"], 2 * 1.959963984540054 * errors)


def inside(blocks: list[str]) -> np.ndarray:
    return np.isin(BLOCKS, blocks).astype(float)


@pytest.mark.parametrize("result", ["result", "by_cholesky"])
def test_counts_over_many_places(result: str, folder: Path, leaves: tuple[np.ndarray, np.ndarray]) -> None:
    counts = ["--count", "total", "--count", "sex=f,grown=yes"]
    frame = answered(folder, *counts, "--places", str(folder / "places.csv"), result=result)
    assert frame.columns == ["place", "count", *RESULTS]
    assert frame.rows()[1][:2] == ("Alder", "sex=f,grown=yes")
    cells = np.array([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0.0]])
    agrees(frame, np.array([np.kron(inside(own), cell) for own in PLACES.values() for cell in cells]), leaves)


@pytest.mark.parametrize("result", ["result", "by_cholesky"])
def test_whole_tables_over_many_places(
    result: str, folder: Path, leaves: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blue_solvers.results.tidy.CELLS_AT_ONCE", 3)
    frame = answered(folder, "--table", "grown * sex", "--places", str(folder / "places.csv"), result=result)
    assert frame.columns == ["place", "table", "sex", "age", *RESULTS]
    labels = [(sex, age) for age in ("no", "yes") for sex in ("f", "m")]  # in the order of the name
    assert frame.select("sex", "age").rows() == labels * 3
    cells = {"no": [1, 0, 0], "yes": [0, 1, 1]}
    cell = [np.kron([sex == "f", sex == "m"], cells[age]) for sex, age in labels]
    agrees(frame, np.array([np.kron(inside(own), c) for own in PLACES.values() for c in cell]), leaves)


def test_every_geounit_of_a_level(folder: Path, leaves: tuple[np.ndarray, np.ndarray]) -> None:
    counties = [inside(BLOCKS[:5]), inside(BLOCKS[5:])]
    stored = answered(folder, "--table", "grown", "--all", "--geolevel", "County")
    assert stored.columns == ["table", "sex", "age", "geolevel", "geocode", *RESULTS]
    assert stored.select("table", "sex", "age", "geolevel", "geocode").rows() == [
        ("grown", "*", age, "County", county) for county in ("44001", "44003") for age in ("no", "yes")
    ]
    ages = [np.kron([1, 1], own) for own in ([1, 0, 0], [0, 1, 1])]
    agrees(stored, np.array([np.kron(county, age) for county in counties for age in ages]), leaves)
    summed = answered(folder, "--table", "sex", "--all", "--geolevel", "County")
    sexes = [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    agrees(summed, np.array([np.kron(county, sex) for county in counties for sex in sexes]), leaves)
    counted = answered(folder, "--all", "--geolevel", "County")
    assert counted.columns == ["count", "geolevel", "geocode", *RESULTS]
    agrees(counted, np.array([np.kron(county, np.ones(6)) for county in counties]), leaves)


def test_all_tables_of_a_level_are_a_long_table(folder: Path) -> None:
    frame = answered(folder, "--table", "all", "--all")
    assert frame.group_by("table", maintain_order=True).len().rows() == [("total", 10), ("grown", 20), ("detailed", 60)]
    parts = [answered(folder, "--table", name, "--all") for name in ("total", "grown", "detailed")]
    assert frame.equals(pl.concat(parts))


def test_geounits_together_may_be_written_too(folder: Path, capsys: pytest.CaptureFixture) -> None:
    frame = answered(folder, "--geounits", *BLOCKS[:3], "--digits", "2", suffix="csv")
    assert frame.columns == ["count", *RESULTS]
    assert len(frame["std_error"][0].replace(".", "").strip("0")) <= 2
    capsys.readouterr()
    assert main(["query", str(folder / "result"), "--places", str(folder / "places.csv")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "3 places of geounits of level Block"
    assert shown[2].split()[:2] == ["place", "count"]
    assert [line.split()[0] for line in shown[4:]] == list(PLACES)


REFUSED = commands("""
--all --table age=3 => table 'age=3': 'age=3' is not a variable or recode
--all --table sex --count total => argument --count: not allowed with argument --table
--all --digits 3 => --digits is of what is written: give --out
--all --geounits 44 => argument --geounits: not allowed with argument --all
--places missing.csv => missing.csv: No such file or directory
--all --out answers.xlsx => answers.xlsx: the name must end in .csv, .parquet, .arrow or .feather
--all --out nowhere/a.csv => nowhere/a.csv: cannot be written: there is no folder 'nowhere'
--places places.csv --out places.csv => --out places.csv would overwrite what is read
--places bad.csv => bad.csv: no geounit '99' at geolevel 'Block'
--places county.csv => county.csv: no geounit '44001' at geolevel 'Block': '44001' is a County
""")


@every(("words", "message"), REFUSED)
def test_questions_about_many_places_that_have_no_answer(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "bad.csv").write_text("place,block\nA,99\n")
    (folder / "county.csv").write_text("place,geocode\nA,44001\n")
    before = sorted(folder.iterdir())
    assert message in refusal(capsys, "query", "result", *words)
    assert sorted(folder.iterdir()) == before


def test_too_many_answers_are_not_shown(
    folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blue_solvers.commands.query.MOST_SHOWN", 9)
    assert "10 answers are too many to show: give --out FILE" in refusal(
        capsys, "query", str(folder / "result"), "--all"
    )


@cases(
    ("place,county\nA,1\n", "column 'geocode' or 'geoid' or .* is missing: there are 'place', 'county'"),
    ("town,block\nA,1\n", "column 'place' is missing: there are 'town', 'block'"),
    ("place,block\nA,\n", "column 'block' is empty in row 2"),
    ("place,block\nA,1\nB,1\nA,1\n", "place 'A' has '1' twice, in rows 2 and 4"),
    ("place,block\n,1\n", "no row has a place"),
    ("place,block\nA,1\n,2\nB,3\n,4\n", "row 3 has no place, and each is named once, as in merged cells"),
    ("place,block\nKent,1\nkent,2\n", "column 'place' has both 'Kent' and 'kent'"),
    ("place,block,part\nA,1,1\nA,2,0.4\n", "column 'part' says what share of a block lies in a place"),
    ("place,block,AFACT\nA,1,100%\nA,2,40%\n", "column 'AFACT' says what share"),
)
def test_files_of_places_that_say_nothing_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "places.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_places(path)
    path.write_text("Place , Block\nA,1\n,2\nB,1\nA,3\n")
    assert read_places(path) == {"A": ["1", "3"], "B": ["1"]}


def test_what_is_doubtful_about_places_is_said(folder: Path, capsys: pytest.CaptureFixture) -> None:
    path, rows = folder / "doubtful.csv", [*zip("AABB", "KKKN", BLOCKS, strict=False), ("", "K", BLOCKS[4])]
    path.write_text("place,county,weight,geocode\n" + "".join(f"{a},{b},1,{c}\n" for a, b, c in rows))
    assert main(["query", str(folder / "result"), "--places", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "left out   1 row without a place, row 6 first",
        "doubt      place 'B' has 'K' and 'N' in column 'county': are they two places of one name?",
    ]

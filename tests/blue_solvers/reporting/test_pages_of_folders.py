"""The page of a stored result, made in memory or streamed: by its manifest, every file compared with its checksum."""

import base64
import io
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from blue_solvers.reporting import stored_folder
from blue_solvers.reporting.stored_folder import StoredEstimates, stored_page
from constraint_builders.files.arrow_files import write_parquet
from tests.helpers.html_outline import Element, outline
from tests.helpers.refused_commands import refusal
from tests.helpers.simulated import settings_of, simulate

LOSSES = ["1/4", "1/4", "1/2"]
SETTINGS = settings_of(
    ["State", "County", "Tract"],
    {"age": ["minor", "adult"], "race": ["x", "y", "z"]},
    {"total": LOSSES, "detailed": LOSSES},
)
TRACTS = [f"44{county:03}{tract:06}" for county in (1, 3) for tract in range(4)]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measurements of eight tracts in two counties, beside what they were simulated from."""
    counts = np.random.default_rng(3).poisson(20, (len(TRACTS), 6))
    cells = [f"{age}_{race}" for age in ("minor", "adult") for race in "xyz"]
    return simulate(tmp_path_factory.mktemp("simulated"), SETTINGS, TRACTS, cells, counts, seed=1).parent


@pytest.fixture
def release(simulated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(simulated, tmp_path, dirs_exist_ok=True) / "release"


@pytest.fixture(scope="module")
def estimated(simulated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("estimated") / "result"
    assert main(["estimate", str(simulated / "release"), "--out", str(made)]) == 0
    return made


@pytest.fixture
def result(estimated: Path, tmp_path: Path) -> Path:
    return shutil.copytree(estimated, tmp_path / "result")


def downloaded(root: Element, file: str) -> pl.DataFrame:
    link = next(own.attributes["href"] for own in root.all("a") if own.attributes.get("download") == file)
    return pl.read_csv(io.BytesIO(base64.b64decode(link.partition(",")[2])), schema_overrides={"geocode": pl.String})


@pytest.mark.parametrize("options", [[], ["--memory", "1e9"]], ids=["in memory", "streamed"])
def test_a_stored_result_is_shown(release: Path, tmp_path: Path, options: list[str]) -> None:
    result, out = tmp_path / "result", tmp_path / "report.html"
    assert main(["estimate", str(release), "--out", str(result), *options]) == 0
    assert main(["report", str(result), "--out", str(out)]) == 0
    root = outline(out.read_text(encoding="utf-8"))
    precision, estimates = downloaded(root, "precision.csv"), downloaded(root, "estimates.csv")
    for shown in (precision, estimates):  # from the highest geolevel down
        assert list(dict.fromkeys(shown["geolevel"])) == ["State", "County", "Tract"]
    stored = pl.read_parquet(result / "estimates" / "Tract.parquet", glob=False)
    for table in ("total", "detailed"):
        rows = stored.filter(pl.col("table") == table)
        row = precision.filter((pl.col("geolevel") == "Tract") & (pl.col("table") == table))
        errors = rows["std_error"].explode().to_numpy()
        assert row["cells"].item() == errors.size == 8 * (1 if table == "total" else 6)
        assert row["std error"].item() == pytest.approx(np.median(errors))
        own = estimates.filter((pl.col("geolevel") == "Tract") & (pl.col("table") == table))
        assert own["geocode"].to_list() == np.repeat(rows["geocode"].to_numpy(), errors.size // 8).tolist()
        np.testing.assert_allclose(own["estimate"], rows["estimate"].explode())
    variances = pl.read_parquet(result / "variances.parquet").filter(pl.col("geolevel") == "County")
    county = precision.filter(pl.col("geolevel") == "County")
    assert county["measured std error"].max() == pytest.approx(np.sqrt(variances["variance"].max()))
    assert (precision["variance saved, %"] > 0).all()
    assert estimates.height == precision["cells"].sum() == 7 * 11
    assert "not what was measured" in root.text
    said = json.loads((result / "result.json").read_text())["proof"]
    assert said["fit"]
    assert said["certificate"]["bound"] < 1e-6
    assert "That was proved when it was made" in root.text
    by_table = downloaded(root, "fit_by_table.csv")
    assert len(set(by_table.select("geolevel", "table").iter_rows())) == by_table.height == 6
    assert "chi-square" in root.text.lower()
    worst = downloaded(root, "worst_residuals.csv")
    named = {"", *(f"age={age}, race={race}" for age in ("minor", "adult") for race in "xyz")}
    assert set(worst["cell"].fill_null("")) <= named
    assert any(worst["cell"].fill_null("") != "")
    assert "Tied by" in root.text
    assert "1 State > 2 County > 8 Tract" in root.text


@pytest.mark.parametrize("height", [1, 3, 5, 16])
@pytest.mark.parametrize("together", [1, 13, 40, 1000])
def test_rows_are_read_however_they_are_grouped(
    result: Path, monkeypatch: pytest.MonkeyPatch, height: int, together: int
) -> None:
    path = result / "estimates" / "Tract.parquet"
    rows = pl.read_parquet(path, glob=False)
    write_parquet(rows, path, row_group_size=height)
    monkeypatch.setattr(StoredEstimates, "require_intact", lambda _: None)
    monkeypatch.setattr(stored_folder, "TOGETHER", together)
    stored, names = StoredEstimates(result), ["geocode", "std_error"]
    for geolevel, table in stored.tables():
        if geolevel == "Tract":
            pieces = list(stored.rows(geolevel, table, names))
            assert len(pieces) <= 1 + 8 // max(1, together // table.size)
            assert pl.concat(pieces).equals(rows.filter(pl.col("table") == table.name).select(names))


@pytest.mark.parametrize("options", [[], ["--memory", "1e9"], ["--desired", "age"]])
def test_measurement_files_are_estimated_for_their_page(release: Path, tmp_path: Path, options: list[str]) -> None:
    """The page is that of the result, which is not kept."""
    out, result = tmp_path / "report.html", tmp_path / "apart" / release.name
    result.parent.mkdir()
    there = [own.name for own in tmp_path.iterdir()]
    assert main(["report", str(release), "--out", str(out), *options]) == 0
    assert sorted(own.name for own in tmp_path.iterdir()) == sorted({*there, "report.html"})
    assert main(["estimate", str(release), "--out", str(result), *options]) == 0
    assert main(["report", str(result), "--out", str(result.parent / "report.html")]) == 0
    assert (result.parent / "report.html").read_text(encoding="utf-8") == out.read_text(encoding="utf-8")


def test_options_of_other_inputs_are_refused(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "report.html")
    for options, why in (
        (["--measured", str(release)], "--measured is for a file of estimates: the inputs are folders"),
        (["--columns", "a=note"], "--columns is for one file of tables"),
        (["--names", "a,b"], "--names is for several inputs"),
    ):
        assert why in refusal(capsys, "report", str(release), *options, "--out", out)


def test_damage_is_refused(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result, out = tmp_path / "result", tmp_path / "report.html"
    assert main(["estimate", str(release), "--out", str(result)]) == 0
    path = result / "estimates" / "County.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    capsys.readouterr()
    assert "County.parquet is not what was written" in refusal(capsys, "report", str(result), "--out", str(out))
    assert not out.exists()
    assert "is a folder of nothing that this command made" in refusal(
        capsys, "report", str(result / "estimates"), "--out", str(out)
    )
    assert "--schema is for a file of estimates" in refusal(
        capsys, "report", str(result), "--schema", "x.toml", "--out", str(out)
    )


@pytest.mark.parametrize("options", [[], ["--memory", "1e9"]], ids=["in memory", "streamed"])
def test_the_first_number_of_every_place_can_be_drawn(release: Path, tmp_path: Path, options: list[str]) -> None:
    result = tmp_path / "result"
    assert main(["estimate", str(release), "--out", str(result), *options]) == 0
    page = stored_page(result, 0.95)
    drawn = page.places("Tract")
    stored = pl.read_parquet(result / "estimates" / "Tract.parquet", glob=False).filter(pl.col("table") == "total")
    assert drawn["geocode"].to_list() == stored["geocode"].to_list()
    np.testing.assert_array_equal(drawn["estimate"], stored["estimate"].explode())
    listed = next(own for section in page.sections if section.name == "estimates" for own in section.tables)
    assert drawn.columns == listed.frame.columns

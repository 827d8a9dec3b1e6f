"""Totals of geounits that are known exactly, from a file: they hold in the estimate, and wrong files are refused."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import blue
from blue_solvers.cli import main
from constraint_builders import Problem, Spine
from constraint_builders.files import (
    ExactTotal,
    read_noisy_measurements,
    read_state_totals,
    read_totals,
    write_noisy_measurements,
)
from constraint_builders.files.settings import parse_settings
from constraint_builders.true_tables import true_vector
from noise_mechanisms import add_noise
from tests.helpers.every import cases

TEXT = """
geolevels = ["US", "State", "County"]
noise = "discrete_gaussian"
[variables]
sex = ["female", "male"]
[budget]
[budget.losses]
total = ["1/10", "1/10", "1/10"]
sex = ["1/10", 0, "1/10"]
"""
SETTINGS = parse_settings(TEXT, "small")
CODES = {"US": [""], "State": ["044", "144", "045"], "County": ["044001", "044003", "144001", "045001", "045003"]}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spine = Spine.from_geocodes(CODES)
    problem = Problem(SETTINGS.schema, SETTINGS.variances(), spine=spine, noise="discrete_gaussian")
    y = add_noise(problem, true_vector(problem, np.full((5, 2), 50)), 5)
    folder = tmp_path_factory.mktemp("written") / "release"
    write_noisy_measurements(folder, problem, y, notes={"settings.toml": TEXT})
    return folder


@pytest.fixture
def folder(release: Path, tmp_path: Path) -> Path:
    return shutil.copytree(release, tmp_path / "release")


def totals(folder: Path, text: str) -> str:
    path = folder.parent / "totals.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "within", "level", "code", "expected"),
    [
        ("geocode,total\n045,203\n", None, "State", "045", 203),
        ("geocode,total\n045003,105\n", None, "County", "045003", 105),
        ("geocode;total\n044 + 144 + 045;507\n", None, "US", "", 507),
        ("geocode,total\n044+144,302\n", ["044", "144"], "US", "044+144", 302),
    ],
)
def test_totals_hold_exactly(
    text: str, within: list[str] | None, level: str, code: str, expected: float, folder: Path
) -> None:
    release = read_noisy_measurements(
        folder, SETTINGS, within=within, totals=read_totals(totals(folder, text)), desired=["total", "sex"]
    )
    problem = release.problem
    P = blue(problem)
    x, std_errors = (problem.desired.tables(v) for v in (P @ release.y + P.offset, np.sqrt(P.variances())))
    rank = problem.spine.rank_in_level[problem.spine.position(level, code)]
    assert x[level, "total"][rank] == pytest.approx(expected, rel=1e-12)
    assert x[level, "sex"][rank].sum() == pytest.approx(expected, rel=1e-12)
    assert std_errors[level, "total"][rank] < 1e-7
    replaced = [(unused.geolevel, unused.rows) for unused in release.unused if unused.name == "total_dpq"]
    assert replaced == ([] if within else [(level, 1)])  # nothing was measured of what branches count together


@pytest.mark.parametrize("options", [[], ["--memory", "1e9"]])
def test_the_command_takes_totals(options: list[str], folder: Path, capsys: pytest.CaptureFixture) -> None:
    path, out = totals(folder, "geocode,total\n045,203\n"), str(folder.parent / "out")
    assert main(["estimate", str(folder), "--totals", path, "--out", out, *options]) == 0
    assert "total_dpq at State, 1 row: " in capsys.readouterr().out
    state = pl.read_parquet(Path(out) / "estimates" / "State.parquet").filter(table="total", geocode="045")
    assert state["estimate"][0][0] == pytest.approx(203, rel=1e-12)
    assert main(["query", out, "--geolevel", "State", "--geounits", "045"]) == 0
    assert "203.00" in capsys.readouterr().out


@cases(
    ("code,total\n045,1\n", "column 'geocode' is missing: there are 'code', 'total'"),
    ("geocode,count\n045,1\n", "column 'total' is missing"),
    ("geocode,total\n", "there are no rows"),
    ("geocode,total\n045,x\n", r"column 'total': 'x' is not a number \(row 2\)"),
    ("geocode,total\n045,-1\n", "column 'total' holds '-1' in row 2: a count is a whole number from 0 to 9,007"),
    ("geocode,total\n045,367.5\n", "column 'total' holds '367.5' in row 2: a count is a whole number from 0 to 9,007"),
    ("geocode,total\n045,inf\n", "column 'total' holds 'inf' in row 2: a count is a whole number"),
    ("geocode,total\n045,\n", "column 'total' holds None in row 2: a count is a whole number"),
    ("geocode,total\n045,1\n044+045,2\n", "row 3: geocode '045' is given twice, first in .*row 2"),
    ("geocode,total\n044+044,2\n", "row 2: geocode '044' is given twice"),  # not the total of all below their parent
)
def test_wrong_files_are_refused_by_row(text: str, message: str, folder: Path) -> None:
    path = totals(folder, text)
    with pytest.raises(ValueError, match=message) as error:
        read_totals(path)
    assert path in str(error.value)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("geocode,total\n046,1\n", r"totals\.csv, row 2: no geounit has the geocode '046'"),
        ("geocode,total\n044+144,1\n", "044\\+144 are not all children of one geounit"),
        ("geocode,total\n044001+045001,1\n", "044001\\+045001 are not all children of one geounit"),
        ("geocode,total\n045,1\n045001+045003,1\n", "row 3: this total is also that of .*row 2: give it once"),
    ],
)
def test_totals_of_no_geounit_are_refused(text: str, message: str, folder: Path, capsys: pytest.CaptureFixture) -> None:
    path = totals(folder, text)
    with pytest.raises(ValueError, match=message):
        read_noisy_measurements(folder, SETTINGS, totals=read_totals(path))
    assert main(["estimate", str(folder), "--totals", path, "--out", str(folder.parent / "out")]) == 2
    assert not (folder.parent / "out").exists()


def test_totals_that_contradict_constraints_are_refused(folder: Path) -> None:
    row = {"geocode": "045", "query_name": "total_con", "sign": "=", "value": [200], "sex": "*"}
    place = folder / "State.parquet" / "Constraint" / "part.parquet"
    place.parent.mkdir()
    pl.DataFrame([row]).write_parquet(place)
    with pytest.raises(ValueError, match=r"row 2: the total is 203, and what is known exactly .* 200"):
        read_noisy_measurements(folder, SETTINGS, totals=read_totals(totals(folder, "geocode,total\n045,203\n")))


def test_totals_far_from_all_measurements_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"row 2: the total is 9,000, and it was measured as \d{3}\.\d .*no noise"):
        read_noisy_measurements(folder, SETTINGS, totals=read_totals(totals(folder, "geocode,total\n045,9000\n")))


@cases(
    (None, [("044", "144"), ("045",)], ()),
    (["045"], [("045",)], ()),
    (["044", "045"], [("045",)], ("state 44 is not used: 144, which it counts too, is not taken",)),
    (["044001", "045"], [("045",)], ("state 44 is not used: no more than 044001 is taken of it",)),
)
def test_totals_of_states_are_used_that_are_taken_whole(
    within: list[str] | None, used: list[tuple[str, ...]], left_out: tuple[str, ...], folder: Path
) -> None:
    found = read_state_totals(totals(folder, "state,total\n44,302\n45,203\n"), folder, SETTINGS, within)
    assert [own.codes for own in found.totals] == used
    assert found.left_out == tuple(f"the total of {own}" for own in left_out)


def test_a_total_of_some_children_is_given_once(folder: Path) -> None:
    twice = [ExactTotal(("044", "144"), 300.0, f"{name}, row 2", "Whole") for name in ("one.csv", "other.csv")]
    with pytest.raises(ValueError, match=r"other.csv, row 2: this total is also that of one.csv, row 2"):
        read_noisy_measurements(folder, SETTINGS, totals=twice)

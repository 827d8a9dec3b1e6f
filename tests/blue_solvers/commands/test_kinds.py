"""A folder or a file that a command does not take is said to be what it is, with what can be done with it."""

import argparse
import shlex
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import examples
from blue_solvers.cli import main
from blue_solvers.commands.arguments import number_of_bytes
from tests.helpers.every import cases, every
from tests.helpers.refused_commands import refusal
from tests.helpers.simulated import settings_of, simulate

SETTINGS = settings_of(["County", "Block"], {"sex": ["female", "male"]}, {"total": "1/10", "sex": [0, "1/10"]})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    counts, geoids = np.full((4, 2), 50), [f"44001{block:010}" for block in range(4)]
    release = simulate(folder, SETTINGS, geoids, ["female", "male"], counts, seed=1)
    (folder / "table.csv").write_bytes(examples.BERKELEY.read_bytes())
    (folder / "empty").mkdir()
    (folder / "killed" / ".work").mkdir(parents=True)
    assert main(["estimate", str(release), "--out", str(folder / "result")]) == 0
    return folder


@cases(
    ("info release", "release is a folder of measurement files: estimate it with blue-solvers estimate release"),
    ("estimate release --within 44001 --within 44009 --out out", "at County there are 44001"),
    ("estimate release --within '' --out out", "within ''"),
    ("estimate release --within '' --out out", "or leave it out"),
    ("info killed", "killed is the work of estimate --memory that was not finished"),
    ("info empty", "empty is a folder of nothing that this command made"),
    ("estimate result --out out", "result is a result of estimate: ask it with blue-solvers query result"),
    ("estimate empty --out out", "measurement files lie in <Geolevel>.parquet/DPQuery"),
    ("query release --geounits 44001", "release is a folder of measurement files: estimate it with"),
    ("query killed --geounits 44001", "run the same command again"),
    ("query table.csv --geounits 44001", "table.csv is a file of tables: see it with blue-solvers info table.csv"),
    ("query settings.toml --geounits 44001", "settings.toml is a file of no kind that this command made"),
    ("query nothing --geounits 44001", "nothing/result.json: No such file or directory"),
    ("simulate release --settings settings.toml --out out", "release is a folder of measurement files"),
    ("design result --entity place", "result is a result of estimate"),
)
def test_what_a_command_does_not_take_is_called_by_name(
    command: str, message: str, here: Path, capsys: pytest.CaptureFixture
) -> None:
    assert message in refusal(capsys, *shlex.split(command))
    assert not (here / "out").exists()


def test_a_geounit_of_another_level_is_told_with_the_flag(here: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["query", "result", "--geounits", "440010000000000", "44001"]) == 2
    assert "no geounit '44001' at geolevel 'Block': '44001' is a County, give --geolevel County" in (
        capsys.readouterr().err
    )
    assert "no geounit '44007' at geolevel 'Block': its codes are such as '440010000000000'" in refusal(
        capsys, "query", "result", "--geounits", "44007"
    )
    assert main(["query", "result", "--geolevel", "County", "--geounits", "44001"]) == 0


def test_parameters_of_the_library_are_flags_here(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    shutil.copytree(here / "release", tmp_path / "release")
    county = tmp_path / "release" / "County.parquet" / "DPQuery" / "part-0.parquet"
    pl.read_parquet(county).with_columns(value=pl.lit([99_999])).write_parquet(county)
    words = ["estimate", str(tmp_path / "release"), "--out", str(tmp_path / "out")]
    assert "or --within should leave the level out" in refusal(capsys, *words)


@every(("text", "count"), [("4e9", 4e9), ("4GB", 4e9), ("500 MB", 5e8), ("2GiB", 2**31), ("1.5k", 1500), ("100", 100)])
def test_memory_is_given_in_any_unit(text: str, count: float) -> None:
    assert number_of_bytes(text) == count


@every("text", ["", "much", "-4e9", "0", "nan", "inf", "1e999", "4 apples", "GB"])
def test_what_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a number of bytes, 4e9 for instance"):
        number_of_bytes(text)

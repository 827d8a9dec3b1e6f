"""Paths are taken literally: no part of them is a pattern, an address or a home."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from blue_solvers import examples
from blue_solvers.cli import main
from constraint_builders.files import read_long_table
from constraint_builders.files.long_table import write_frame
from tests.helpers.simulated import settings_of

SETTINGS = settings_of(["County", "Block"], {"sex": ["female", "male"]}, {"total": ["1/10", 0], "sex": [0, "1/10"]})
STRANGE = ["run[1]", "run*", "run?", "{run,1}", "file:run", "s3:", "~", "State=run1", "%7E"]


def simulate(folder: Path, seed: int) -> None:
    folder.mkdir(parents=True)
    geoids = [f"44001{block:010}" for block in range(4)]
    counts = np.random.default_rng(seed).poisson(50, (4, 2))
    frame = pl.DataFrame({"geoid": geoids, "female": counts[:, 0], "male": counts[:, 1]})
    with (folder / "blocks.csv").open("wb") as file:
        frame.write_csv(file)
    (folder / "settings.toml").write_text(SETTINGS)
    arguments = ["--settings", str(folder / "settings.toml"), "--seed", str(seed), "--out", str(folder / "rel")]
    assert main(["simulate", str(folder / "blocks.csv"), *arguments]) == 0


def estimates(folder: Path) -> list[tuple]:
    files = sorted(path for path in folder.rglob("*.parquet") if path.is_file())
    return [row for path in files for row in pl.read_parquet(path.read_bytes()).rows()]


@pytest.fixture(scope="module")
def found_by_patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run1` and `run`, which are what a pattern would find, and with `plain`, whose name is none."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in ((0, "run1"), (1, "run"), (7, "plain")):
        simulate(folder / name, seed)
        assert main(["estimate", str(folder / name / "rel"), "--out", str(folder / name / "res")]) == 0
    assert main(["estimate", f"{folder}/plain/rel", "--out", f"{folder}/plain/streamed", "--memory", "1e9"]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(found_by_patterns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with these."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(found_by_patterns, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.few(3)
@pytest.mark.parametrize("name", STRANGE)
def test_folders_of_any_name_are_read_and_written_as_themselves(name: str, capsys: pytest.CaptureFixture) -> None:
    simulate(Path(name), 7)
    assert main(["estimate", f"{name}/rel", "--out", f"{name}/res"]) == 0
    assert main(["estimate", f"{name}/rel", "--out", f"{name}/streamed", "--memory", "1e9"]) == 0
    for result in ("res", "streamed"):
        assert estimates(Path(name) / result / "estimates") == estimates(Path("plain") / result / "estimates")
        capsys.readouterr()
        answers = []
        for folder in (name, "plain"):
            assert main(["query", f"{folder}/{result}", "--geounits", "440010000000000", "440010000000001"]) == 0
            answers.append(capsys.readouterr().out)
        assert answers[0] == answers[1]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_of_any_name_are_read_and_written_as_themselves(name: str, suffix: str, here: Path) -> None:
    frame = pl.read_csv(examples.BERKELEY, infer_schema=False)
    write_frame(frame, f"{name}{suffix}")
    write_frame(frame[:1], f"run1{suffix}")
    assert (here / f"{name}{suffix}").is_file()
    assert read_long_table(f"{name}{suffix}")[1].size == frame.height
    assert main(["estimate", f"{name}{suffix}", "--out", f"{name}-out{suffix}"]) == 0
    assert (here / f"{name}-out{suffix}").is_file()

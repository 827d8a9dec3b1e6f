"""Names and links never lead a run out of its folder, and foreign files stay."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blue_solvers import blue
from blue_solvers.results.checksums import seal_json
from blue_solvers.results.questions import Result
from blue_solvers.results.store import write_result
from blue_solvers.streaming import DamagedError, Partitions, partition, stream
from constraint_builders import Problem, Spine
from constraint_builders.files.settings import parse_settings
from tests.helpers.partitioned import invented_problem
from tests.helpers.refused import refuses
from tests.helpers.refused_commands import refusal
from tests.helpers.spines import consistent_measurements

SETTINGS = """
geolevels = ["State", "LEVEL", "Block"]
[variables]
sex = ["female", "male"]
[budget]
[budget.losses]
sex = [1, 1, 1]
"""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problem, folder = invented_problem(0, 20), tmp_path_factory.mktemp("parts") / "in"
    partition(folder, problem, consistent_measurements(problem, 1), at=problem.spine.levels[1])
    return folder


@pytest.fixture
def job(parts: Path, tmp_path: Path) -> Path:
    place = tmp_path / "a" / "b"
    shutil.copytree(parts, place / "in")
    return place


def outside(job: Path) -> set[Path]:
    """All files that are not below the job's folder."""
    return {path for path in job.parents[1].rglob("*") if path.is_file() and not path.is_relative_to(job)}


def rename_level(said: dict[str, Any]) -> None:
    old = said["levels"][0]
    said["levels"][0] = "../../Evil"
    for entry in (*said["parts"], said["top"]):
        entry["files"] = {
            path.replace(f"{old}.parquet", "../../Evil.parquet"): own for path, own in entry["files"].items()
        }


def rename_part(said: dict[str, Any]) -> None:
    said["parts"][0]["name"] = "../../../evil"


def read_elsewhere(said: dict[str, Any]) -> None:
    said["parts"][0]["files"] = {"../../../etc/passwd": "0" * 64}


@pytest.mark.parametrize("change", [rename_level, rename_part, read_elsewhere])
def test_a_hostile_manifest_is_refused(job: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = job / "in" / "manifest.json"
    said = json.loads(path.read_text())
    del said["sha256"]
    change(said)
    path.write_text(seal_json(said))
    with pytest.raises(DamagedError, match=r"manifest\.json is damaged: .*(cannot name a file|strange file)"):
        stream(job / "in", job / "out")
    assert outside(job) == set()
    assert not (job / "out").exists()


@pytest.mark.parametrize("change", ["format", "not sealed", "list", "deep", "text"])
def test_a_manifest_of_another_kind_is_refused(job: Path, change: str) -> None:
    path = job / "in" / "manifest.json"
    said = json.loads(path.read_text())
    texts = {
        "format": json.dumps({**said, "format": 2}),
        "not sealed": json.dumps({key: value for key, value in said.items() if key != "sha256"}),
        "list": "[]",
        "deep": "[" * 100_000,
        "text": "\x00",
    }
    path.write_text(texts[change])
    refuses(r"manifest\.json (is|has)", Partitions.open, job / "in", error=DamagedError)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"files": {"../../../etc/passwd": "0" * 64}}, "leads out of the folder"),
        ({"files": {"/etc/passwd": "0" * 64}}, "leads out of the folder"),
        ({"files": ["settings.toml"]}, r"result\.json is damaged.*files"),
        ({"tables": None}, r"result\.json is damaged.*tables"),
        ({"settings": 3}, r"result\.json is damaged.*settings"),
    ],
)
def test_a_hostile_result_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    settings = parse_settings(SETTINGS.replace('"LEVEL", ', "").replace("[1, 1, 1]", "[1, 1]"), "small")
    problem = Problem(settings.schema, settings.variances(), spine=Spine([-1, 0, 0], ["State", "Block", "Block"]))
    P = blue(problem)
    y = np.zeros(problem.observed.size)
    write_result(tmp_path / "result", P, P @ y, np.sqrt(P.variances()), settings)
    path = tmp_path / "result" / "result.json"
    said = json.loads(path.read_text())
    del said["sha256"]
    path.write_text(seal_json({**said, **change}))
    refuses(message, Result, tmp_path / "result")


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["level", ".work", ".work/up", ".work/temporary", ".work/done"])
def test_links_out_of_the_folder_are_not_followed(job: Path, where: str) -> None:
    stream(job / "in", job / "whole")
    shutil.copytree(job / "whole", job / "out")
    name = next(path.name for path in (job / "out").glob("*.parquet")) if where == "level" else where
    elsewhere = job.parent / "elsewhere"
    if where == ".work":
        shutil.move(job / "out" / name, elsewhere)
    else:
        elsewhere.mkdir()
        shutil.rmtree(job / "out" / name, ignore_errors=True)
    (job / "out" / name).symlink_to(elsewhere)
    before = outside(job)
    try:
        stream(job / "in", job / "out")
    except ValueError as error:
        message = str(error)
    else:
        message = ""
    assert "leads out of the folder" in message or (where == ".work/temporary" and not message)
    assert outside(job) == before


def test_a_link_in_the_place_of_a_file_is_replaced(job: Path) -> None:
    stream(job / "in", job / "whole")
    shutil.copytree(job / "whole", job / "out")
    path = next((job / "out").glob("*.parquet/*"))
    target = job.parent / "theirs"
    target.write_text("theirs")
    path.unlink()
    path.symlink_to(target)
    try:
        stream(job / "in", job / "out")
    except ValueError as error:
        assert "leads out of the folder" in str(error)  # noqa: PT017
    assert target.read_text() == "theirs"


def test_foreign_files_stay(job: Path) -> None:
    stream(job / "in", job / "whole")
    (job / "out").mkdir()
    theirs = [job / "out" / ".mine.0123abcd.part", job / "out" / "notes.txt"]
    for path in theirs:
        path.write_text("theirs")
    with pytest.raises(FileExistsError, match="it is there already: remove it, or choose another name"):
        stream(job / "in", job / "out")
    assert sorted((job / "out").iterdir()) == theirs
    shutil.rmtree(job / "out")
    shutil.copytree(job / "whole", job / "out")
    level = next((job / "out").glob("*.parquet"))
    theirs = [job / "out" / ".mine.0123abcd.part", level / ".mine.0123abcd.part", level / "notes.txt"]
    for path in theirs:
        path.write_text("theirs")
    stream(job / "in", job / "out")
    assert [path.read_text() for path in theirs] == ["theirs"] * 3


@pytest.mark.parametrize("level", ["../../Evil", "a/b", "..", "new\nline", "x" * 300])
def test_no_writer_takes_a_geolevel_that_is_a_path(level: str, tmp_path: Path) -> None:
    spine = Spine([-1, 0, 1, 1], ["State", level, "Block", "Block"])
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    text = SETTINGS.replace('"LEVEL"', json.dumps(level))
    settings = parse_settings(text, "hostile")
    problem = Problem(settings.schema, settings.variances(), spine=spine)
    y = np.zeros(problem.observed.size)
    P = blue(problem)
    refuses("cannot name a file", partition, place / "in", problem, y, at="State")
    refuses("cannot name a file", write_result, place / "result", P, P @ y, np.sqrt(P.variances()), settings)
    assert list(place.iterdir()) == []
    assert outside(place) == set()


def test_simulate_takes_no_geoid_that_is_a_path(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    (place / "settings.toml").write_text('noise = "discrete_gaussian"' + SETTINGS)
    (place / "blocks.csv").write_text("geoid,female,male\n/../../evil/x1,1,2\n")
    arguments = ["--settings", str(place / "settings.toml"), "--out", str(place / "out"), "--widths"]
    assert "geocode '/../../evil/' cannot name a file" in refusal(
        capsys, "simulate", str(place / "blocks.csv"), *arguments, "State=12,LEVEL=13,Block=14"
    )
    assert not (place / "out").exists()
    assert outside(place) == set()

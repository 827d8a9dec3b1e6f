"""Twenty-three mistakes in options and calls: each is refused in one line that names the thing and the remedy."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

from blue_solvers import blue, estimate
from blue_solvers.cli import main
from blue_solvers.testing import check_solver
from constraint_builders import Problem, Schema, Spine
from tests.helpers.every import every
from tests.helpers.simulated import settings_of, simulate

NOISY = "table,sex,value,variance\ntotal,*,21,4\nsex,female,9.5,1\nsex,male,11,1\n"
SETTINGS = settings_of(["State", "County", "Block"], {"sex": ["female", "male"]}, {"total": "1/6", "detailed": "1/6"})
BLOCKS = [f"44{county}00010010{block:02}" for county in ("001", "003") for block in range(4)]
OUT = ["--out", "out"]
TO_FILE = ["--out", "out.csv"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a folder of measurement files, and its result."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "noisy.csv").write_text(NOISY)
    counts = np.array([(block + 3, 7 - block) for block in [*range(4)] * 2])
    release = simulate(folder, SETTINGS, BLOCKS, ["female", "male"], counts, seed=1)
    assert main(["estimate", str(release), "--out", str(folder / "result")]) == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


class Call(NamedTuple):
    what: str
    arguments: list[str]
    names: str
    remedy: str
    before: Callable[[pytest.MonkeyPatch], Any] = lambda _: None


def without(module: str) -> Callable[[pytest.MonkeyPatch], Any]:
    return lambda patch: patch.setitem(sys.modules, module, None)


CALLS = [
    Call(
        "one prefix of two matches nothing",
        ["estimate", "release", "--within", "44001", "--within", "44009", *OUT],
        "within 44009",
        "at County there are 44001, 44003",
    ),
    Call("an empty prefix", ["estimate", "release", "--within", "", *OUT], "within ''", "or leave it out"),
    Call(
        "a folder without the lowest level",
        ["estimate", "release", *OUT],
        "Block",
        "settings",
        lambda _: shutil.rmtree("release/Block.parquet"),
    ),
    Call("a level in per cent", ["estimate", "noisy.csv", "--level", "95", *TO_FILE], "--level", "0.95 for instance"),
    Call("--level of a folder", ["estimate", "release", "--level", "0.9", *OUT], "--level", "give --level to query"),
    Call(
        "--nonnegative of a folder",
        ["estimate", "release", "--nonnegative", "nnls", *OUT],
        "--nonnegative",
        "fit a long table instead",
    ),
    Call(
        "query on measurements",
        ["query", "release", "--geounits", "44"],
        "release is a folder of measurement files",
        "blue-solvers estimate release",
    ),
    Call(
        "estimate on a result",
        ["estimate", "result", *OUT],
        "result is a result of estimate",
        "blue-solvers query result",
    ),
    Call(
        "info on a folder",
        ["info", "release"],
        "release is a folder of measurement files",
        "blue-solvers estimate release",
    ),
    Call(
        "a county among blocks",
        ["query", "result", "--geounits", "44001"],
        "'44001' is a County",
        "give --geolevel County",
    ),
    Call("nowhere to write", ["estimate", "noisy.csv"], "--out", "estimate --help"),
    Call(
        "a table that is none",
        ["estimate", "noisy.csv", "--desired", "gender", *TO_FILE],
        "'gender' is not a variable",
        "it has 'sex'",
    ),
    Call("a solver misspelt", ["estimate", "noisy.csv", "--solver", "choleski", *TO_FILE], "'choleski'", "cholesky"),
    Call(
        "pictures without matplotlib",
        ["estimate", "noisy.csv", "--plot", "picture.png", *TO_FILE],
        "--plot needs matplotlib",
        "pip install 'blue-solvers[plots]'",
        without("matplotlib.figure"),
    ),
    Call(
        "multigrid without pyamg",
        ["estimate", "noisy.csv", "--solver", "multigrid", *TO_FILE],
        "multigrid needs pyamg",
        "pip install 'blue-solvers[multigrid]'",
        without("pyamg"),
    ),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.what)
def test_the_command_says_what_is_wrong_and_what_to_do(
    call: Call, folder: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    call.before(monkeypatch)
    before = sorted(folder.rglob("*"))
    try:
        code: object = main(call.arguments)
    except SystemExit as end:
        code = end.code
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1), said
    assert said.startswith("blue-solvers: ")
    assert call.names in said
    assert call.remedy in said
    assert sorted(folder.rglob("*")) == before


class Mistake(NamedTuple):
    what: str
    attempt: Callable[[], Any]
    error: type[Exception]
    names: str
    remedy: str


SCHEMA = Schema({"sex": ["female", "male"]})
PROBLEM = Problem(SCHEMA, {"total": 4.0, "sex": 1.0})
MISTAKES = [
    Mistake("variables in a list", lambda: Schema(["sex"]), TypeError, "variables must be a mapping", "as in {"),
    Mistake("tables in a list", lambda: Problem(SCHEMA, ["sex"]), TypeError, "got list", "as in {'sex': 2.0}"),
    Mistake(
        "an array for a problem", lambda: blue(np.ones(3)), TypeError, "got ndarray", "Problem(schema, {'sex': 2.0})"
    ),
    Mistake("a name for a solver", lambda: check_solver("sea_blue"), TypeError, "got 'sea_blue'", "such as SeaBlue()"),
    Mistake(
        "sparse vectors",
        lambda: blue(PROBLEM) @ sparse.csr_array(np.eye(3)),
        TypeError,
        "dense vectors",
        "P @ x.toarray()",
    ),
    Mistake(
        "a table left out",
        lambda: estimate(PROBLEM, {"sex": [9, 11]}),
        ValueError,
        "no values for 'total'",
        "give every table",
    ),
    Mistake(
        "recodes that overlap",
        lambda: Schema({"age": 3}, {"age": {"adult": [[0, 1], [1, 2]]}}),
        (TypeError, ValueError),
        "recode 'adult'",
        "one",
    ),
    Mistake(
        "leading zeros lost",
        lambda: Spine.from_geoids([10010301001000, 10010301001001]),
        (TypeError, ValueError),
        "10010301001000",
        "text",
    ),
]


@every("mistake", MISTAKES)
def test_the_library_says_what_is_wrong_and_what_to_do(mistake: Mistake) -> None:
    with pytest.raises(mistake.error) as error:
        mistake.attempt()
    said = str(error.value)
    assert "\n" not in said
    assert mistake.names in said
    assert mistake.remedy in said


def test_there_are_twenty_three() -> None:
    assert len(CALLS) + len(MISTAKES) == 23

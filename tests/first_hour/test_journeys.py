"""Four newcomers go from nothing to an answer along docs/start/*.md, in half the commands and lines that it took."""

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from blue_solvers.cli import main
from constraint_builders.files import read_noisy_measurements, read_settings
from tests.helpers.dense_algebra import best
from tests.helpers.places import DOCS

BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
Z90 = 1.6448536269514722


class Journey(NamedTuple):
    """What a section of the page shows: files to begin with, commands, and lines of Python."""

    files: dict[str, str]
    commands: list[str]
    code: str

    @property
    def steps(self) -> int:
        """Commands and lines from nothing to the answer."""
        lines = [line for line in self.code.splitlines() if line.strip() and not line.strip().startswith("#")]
        return len(self.commands) + len(lines)


def journey(name: str, title: str) -> Journey:
    page = (DOCS / "start" / f"{name}.md").read_text()
    section = page.partition(f"## {title}")[2].partition("\n## ")[0]
    assert section
    found = BLOCK.findall(section)
    files = {name: text for kind, name, text in found if kind == "csv"}
    commands = [line for kind, _, text in found if kind == "sh" for line in text.splitlines()]
    return Journey(files, commands, "".join(text for kind, _, text in found if kind == "python"))


def walk(way: Journey, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Do what it shows, here, but for the installation."""
    for name, text in way.files.items():
        Path(name).write_text(text)
    for command in way.commands:
        words = shlex.split(command)
        if words[0] == "blue-solvers":
            assert main(words[1:]) == 0
        else:
            assert command == 'pip install ".[frames,fast]"'
    module = ModuleType("journey")  # where its classes are found, for pickling
    patch.setitem(sys.modules, module.__name__, module)
    exec(compile(way.code, "start.md", "exec"), module.__dict__)
    return module.__dict__


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_survey_statistician_has_own_tables(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    way = journey("tables", "Own tables with margins of error")
    assert way.steps <= 7 / 2
    walk(way, monkeypatch)
    S = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])
    y = np.array([12480.0, 6510, 6105, 3390, 3020, 3110])  # 40 and over before under 40, of men not published
    errors = np.array([210.0, 150, 160, 125, 120, 130]) / Z90
    measured = [0, 1, 2, 3, 4, 6]
    leaves, covariance = best(S[measured], errors**2, y)
    estimates, std_errors = S @ leaves, np.sqrt(np.diag(S @ covariance @ S.T))
    written = pl.read_csv("estimates.csv")
    assert written.columns[3:7] == ["estimate", "std_error", "lower", "upper"]
    assert np.all(abs(written["estimate"].to_numpy() - estimates) <= 0.005 * std_errors)  # of three digits
    assert np.allclose(written["std_error"], std_errors, rtol=0.005)
    assert np.all(abs(written["upper"].to_numpy() - (estimates + Z90 * std_errors)) <= 0.01 * std_errors)
    assert written["value"].to_list() == [*y[:-1], None, y[-1]]
    chi_square = (((y - estimates[measured]) / errors) ** 2).sum()
    assert f"chi-square {chi_square:,.6g} on 2 degrees of freedom" in capsys.readouterr().out


SETTINGS = """
geolevels = ["State", "County", "Tract", "Block"]
noise = "discrete_gaussian"
[variables]
votingage = ["under18", "adult"]
[budget]
total = "1"
[budget.geolevels]
State = "1/4"
County = "1/4"
Tract = "1/4"
Block = "1/4"
[budget.tables]
total = ["1/2", "1/2", "1/2", "1/2"]
detailed = ["1/2", "1/2", "1/2", "1/2"]
"""
PLACES = 41


def test_a_demographer_has_measurements_and_41_places(monkeypatch: pytest.MonkeyPatch) -> None:
    way = journey("census", "A table of places from measurement files")
    assert way.steps <= 10 / 2
    rng = np.random.default_rng(5)
    blocks = [f"44{c:03}{t:06}1{b:03}" for c in (1, 3) for t in (100, 200) for b in range(20)]
    counts = rng.poisson(30, (len(blocks), 2))
    pl.DataFrame({"geoid": blocks, "under18": counts[:, 0], "adult": counts[:, 1]}).write_csv("blocks.csv")
    Path("settings.toml").write_text(SETTINGS)
    assert main(["simulate", "blocks.csv", "--settings", "settings.toml", "--seed", "3", "--out", "release"]) == 0
    inside = rng.random((PLACES, len(blocks))) < 0.3
    rows = [(f"place {i:02}", blocks[j]) for i, j in zip(*np.nonzero(inside), strict=True)]
    pl.DataFrame(rows, schema=["place", "geocode"], orient="row").write_csv("places.csv")
    walk(way, monkeypatch)
    read = read_noisy_measurements("release", read_settings("settings.toml"))
    M = read.problem.marginal_matrix().toarray()
    leaves, covariance = best(M, read.problem.variances, read.y)
    weights = np.array([np.kron(own, cells) for own in inside for cells in ([1, 1], [0, 1])])
    written = pl.read_csv("places_counts.csv")
    assert written.select("place", "count").rows() == [
        (f"place {i:02}", count) for i in range(PLACES) for count in ("total", "votingage=adult")
    ]
    assert np.allclose(written["estimate"], weights @ leaves)
    assert np.allclose(written["std_error"], np.sqrt(np.einsum("ri,ij,rj->r", weights, covariance, weights)))
    truth = weights @ counts.ravel()
    assert abs((written["estimate"] - truth) / written["std_error"]).max() < 5


@pytest.mark.few(0)
def test_a_numerical_analyst_has_a_solver(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    way = journey("solvers", "A new solver, checked and timed")
    assert way.steps <= 20
    names = walk(way, monkeypatch)
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("solver 'mine' keeps ")
    assert [line.split()[0] for line in said[1:]] == ["mine", "dense", "cholesky", "sea_blue"]
    seconds = [float(re.search(r" (\d[\d.e-]*) ", line)[1]) for line in said[1:]]  # type: ignore[index]
    assert all(0 < own < 60 for own in seconds)
    assert names["est"].info.exact


def test_an_engineer_has_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    way = journey("tables", "A call in a service")
    assert way.steps <= 15 / 2 + 1  # a half, and the line that makes up data
    names = walk(way, monkeypatch)
    answer, fit = names["answer"], names["fit"]
    assert type(answer) is type(names["frame"])
    assert np.allclose(answer["estimate"], [9 - 1 / 3, 4 + 1 / 3, 4 + 1 / 3])
    assert (fit.degrees_of_freedom, fit.statistic) == (1, pytest.approx(1 / 3))
